"""Rows of each type of event that the sessions of one day give, still without names and numbers.

Rows are columns of equal length; `session` and `at_ms` (true time) give their session and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidgate.pipeline.history.lives import CLOSE_REASONS, DRAIN, IDLE
from pidgate.pipeline.history.sessions import NEVER, Sessions, is_installed
from pidgate.pipeline.history.shard import Day, mixed
from pidgate.pipeline.history.world import MINUTE_MS, SLICE_MS, USAGE_MS

Columns = dict[str, NDArray[Any]]
_IDLE_MS = 10 * MINUTE_MS
_COORDINATOR_LOAD_IN_PROGRESS = 14


@dataclass
class Usage:
    """Rows of id_usage, and of each session the sums for its connection's close."""

    rows: Columns
    requests: NDArray[np.int64]
    bytes: NDArray[np.int64]


def connections(day: Day, seen: Sessions, usage: Usage, roll: np.random.Generator) -> Columns:
    """One to the broker it writes to; before it, at the beginning of a life, one to a bootstrap address."""
    place = np.arange(len(seen))
    begun = place[seen.is_first]
    node = 1 + (mixed(day.pod_key[seen.life] + np.uint64(3)) % np.uint64(4 * day.world.shards)).astype(
        np.int64
    )
    reason = np.where(seen.is_last, day.lives.close[seen.life], DRAIN)
    length = seen.end_ms - seen.begin_ms
    booted_ms = seen.begin_ms[begun] - 15
    booted_end = np.minimum(seen.end_ms[begun], booted_ms + _IDLE_MS)
    booted_reason = np.where(booted_end < seen.end_ms[begun], IDLE, reason[begun])
    zeros, none = np.zeros(len(place), np.int64), np.zeros(len(begun), np.int64)
    requests = 4 + usage.requests
    parts: list[tuple[Any, ...]] = [
        (place, seen.begin_ms, zeros, node, zeros - 1, zeros, zeros, zeros, zeros, zeros),
        (
            place,
            seen.end_ms,
            zeros + 1,
            node,
            reason,
            length,
            usage.bytes + 380,
            60 * requests,
            requests,
            zeros,
        ),
        (begun, booted_ms, none, none - 1, none - 1, none, none, none, none, none + 1),
        (begun, booted_end + 1, none + 1, none - 1, booted_reason, booted_end - booted_ms, none + 310,
         none + 2_400, none + 4, none + 1),
    ]  # fmt: skip
    names = (
        "session",
        "at_ms",
        "is_close",
        "node_id",
        "reason",
        "ms",
        "bytes_in",
        "bytes_out",
        "requests",
        "bootstrap",
    )
    return {name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(names)}


CLOSE_WORDS = ("", *CLOSE_REASONS)
"""`reason` + 1 is a place in here."""


def answers(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """InitProducerId: one for each life, and now and then a broker that waits for its next block of ids."""
    begun = np.flatnonzero(seen.is_first)
    life = seen.life[begun]
    at = seen.begin_ms[begun] + roll.integers(2, 15, len(begun))
    waits = roll.random(len(begun)) < 0.002
    given = day.producer_id[life]
    session = np.concatenate([begun, begun[waits]])
    failed = np.arange(len(session)) >= len(begun)
    of = np.concatenate([life, life[waits]])
    return {
        "session": session,
        "at_ms": np.concatenate([at, at[waits] - 1]),
        "answered_producer_id": np.where(failed, -1, np.concatenate([given, given[waits]])),
        "answered_epoch": np.where(failed, -1, day.lives.epoch[of]),
        "error": np.where(failed, _COORDINATOR_LOAD_IN_PROGRESS, 0),
        "node_id": day.node_id[of],
    }


def sights(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """Return decisions while nothing is refused: each id's first sight, and a refresh in each later slice."""
    used = seen.first_use_ms < NEVER
    new = used & day.opens[seen.life] & seen.is_first
    new |= used & is_installed(day, seen.life, seen.begin_ms)
    first = np.flatnonzero(new)
    session, slice_ms = _slices(day, seen, np.flatnonzero(used))
    gap = roll.exponential(1, len(session)) / np.maximum(seen.per_ms[session], 1e-12)
    at = slice_ms + np.minimum(gap, 2 * SLICE_MS).astype(np.int64)
    kept = (at < seen.end_ms[session]) & (at < slice_ms + SLICE_MS) & (at > seen.first_use_ms[session])
    again, again_at = session[kept], at[kept]
    is_refresh = np.concatenate([np.zeros(len(first), bool), np.ones(len(again), bool)])
    session = np.concatenate([first, again])
    began = ~is_refresh & seen.is_first[session]
    return {
        "session": session,
        "at_ms": np.concatenate([seen.first_use_ms[first], again_at]),
        "is_refresh": is_refresh,
        "base_sequence": np.where(began, 0, roll.integers(1, 2_000_000, len(session))),
    }


def _slices(
    day: Day, seen: Sessions, chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each begin of a slice within each session. Slices of users begin at different times."""
    offset = (day.lives.user[seen.life[chosen]].astype(np.int64) * 7_919_000) % SLICE_MS
    first = (seen.begin_ms[chosen] - offset) // SLICE_MS + 1
    count = np.maximum(0, (seen.end_ms[chosen] - offset) // SLICE_MS - first + 1)
    place = np.repeat(np.arange(len(chosen)), count)
    number = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    return chosen[place], (first[place] + number) * SLICE_MS + offset[place]


def usage(day: Day, seen: Sessions, roll: np.random.Generator) -> Usage:
    """Return a row for each quarter of an hour with use, at its end or at the connection's close."""
    used = np.flatnonzero(seen.first_use_ms < NEVER)
    begin, end = seen.first_use_ms[used], seen.end_ms[used]
    first = begin // USAGE_MS
    count = (end - 1) // USAGE_MS - first + 1
    place = np.repeat(np.arange(len(used)), count)
    number = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    session = used[place]
    slice_begin = np.maximum(begin[place], (first[place] + number) * USAGE_MS)
    slice_end = np.minimum(end[place], (first[place] + number + 1) * USAGE_MS)
    mean = seen.per_ms[session] * (slice_end - slice_begin)
    requests = np.where(count[place] == 1, np.maximum(seen.exactly[session], -1), -1)
    requests = np.where(requests >= 0, requests, roll.poisson(np.minimum(mean, 1e9)))
    requests = np.maximum(requests, number == 0)
    kept = requests > 0
    session, requests, number = session[kept], requests[kept], number[kept]
    slice_begin, slice_end = slice_begin[kept], slice_end[kept]
    life = seen.life[session]
    gap = (slice_end - slice_begin) / (requests + 1)
    first_ms = slice_begin + np.where(number == 0, 0, gap * roll.random(len(gap))).astype(np.int64)
    last_ms = np.where(
        requests == 1,
        first_ms,
        np.maximum(first_ms, slice_end - 1 - (gap * roll.random(len(gap))).astype(np.int64)),
    )
    records = np.maximum(requests, roll.poisson(requests * day.of_deployment("records_per_request")[life]))
    size = 130 * requests + 60 * records + (records * 140 * roll.random(len(gap))).astype(np.int64)
    told = np.where(slice_end == seen.end_ms[session], slice_end, slice_end + roll.integers(0, 900, len(gap)))
    rows = {
        "session": session,
        "at_ms": np.minimum(told, seen.end_ms[session]),
        "requests": requests,
        "records": records,
        "bytes": size,
        "partitions": np.minimum(day.of_deployment("partitions")[life].astype(np.int64), requests),
        "first_ms": first_ms,
        "last_ms": last_ms,
    }
    sums = [np.bincount(session, weights, len(seen)).astype(np.int64) for weights in (requests, size)]
    return Usage(rows, sums[0], sums[1])


def errors(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """Return the errors that end lives, and those of everyone while brokers are in trouble."""
    ended = np.flatnonzero(seen.is_last & (day.lives.error[seen.life] != 0) & (seen.first_use_ms < NEVER))
    parts = [(ended, seen.end_ms[ended], day.lives.error[seen.life[ended]], np.ones(len(ended), np.int64))]
    for begin_ms, end_ms, code in day.world.incidents:
        there = np.flatnonzero((seen.first_use_ms < end_ms) & (seen.end_ms > begin_ms + 1_000))
        there = there[roll.random(len(there)) < 0.5]
        at = np.minimum(
            seen.end_ms[there],
            np.maximum(seen.first_use_ms[there] + 1, end_ms + roll.integers(0, 60_000, len(there))),
        )
        parts.append((there, at, np.full(len(there), code), 1 + roll.poisson(3, len(there))))
    names = ("session", "at_ms", "code", "count")
    return {name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(names)}
