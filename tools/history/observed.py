"""Event rows of each type from the sessions of one day, without names and numbers.

Rows are columns of equal length; `session` and `at_ms` (true time) are their session and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.history.lives import CLOSE_REASONS, DRAIN, IDLE
from tools.history.sessions import NEVER, Sessions, is_installed
from tools.history.shard import Day
from tools.history.world import MINUTE_MS, SLICE_MS, USAGE_MS

Columns = dict[str, NDArray[Any]]
_IDLE_MS = 10 * MINUTE_MS
_COORDINATOR_LOAD_IN_PROGRESS = 14


def stacked(*parts: dict[str, Any]) -> Columns:
    """Concatenate the rows of all parts. A scalar applies to all rows of its part; a missing column is 0."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate([np.broadcast_to(part.get(name, 0), len(part["session"])) for part in parts])
        for name in names
    }


@dataclass
class Usage:
    """Rows of id_usage, and per session the sums for its connection's close event."""

    rows: Columns
    requests: NDArray[np.int64]
    bytes: NDArray[np.int64]


def connections(day: Day, seen: Sessions, usage: Usage, roll: np.random.Generator) -> Columns:
    """Return a connection to the written broker, after a bootstrap connection when a life begins."""
    begun = np.flatnonzero(seen.is_first)
    node = day.leader_of(seen.life)
    reason = np.where(seen.is_last, day.lives.close[seen.life], DRAIN)
    booted_ms = seen.begin_ms[begun] - 15
    booted_end = np.minimum(seen.end_ms[begun], booted_ms + _IDLE_MS)
    requests = 4 + usage.requests
    opened = {"session": np.arange(len(seen)), "at_ms": seen.begin_ms, "node_id": node, "reason": -1}
    closed = {
        "at_ms": seen.end_ms,
        "is_close": 1,
        "reason": reason,
        "ms": seen.end_ms - seen.begin_ms,
        "bytes_in": usage.bytes + 380,
        "bytes_out": 60 * requests,
        "requests": requests,
    }
    booted = {"session": begun, "at_ms": booted_ms, "node_id": -1, "reason": -1, "bootstrap": 1}
    left = {
        "at_ms": booted_end + 1,
        "is_close": 1,
        "reason": np.where(booted_end < seen.end_ms[begun], IDLE, reason[begun]),
        "ms": booted_end - booted_ms,
        "bytes_in": 310,
        "bytes_out": 2_400,
        "requests": 4,
    }
    return stacked(opened, opened | closed, booted, booted | left)


CLOSE_WORDS = ("", *CLOSE_REASONS)
"""Indexed by `reason` + 1."""


def answers(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """Return InitProducerId responses: one per life, and a few brokers waiting for a block of ids."""
    begun = np.flatnonzero(seen.is_first)
    life = seen.life[begun]
    at = seen.begin_ms[begun] + roll.integers(2, 15, len(begun))
    waits = roll.random(len(begun)) < 0.002
    node_id = day.lives.node_id[life]
    return stacked(
        {
            "session": begun,
            "at_ms": at,
            "answered_producer_id": day.lives.producer_id[life],
            "answered_epoch": day.lives.epoch[life],
            "error": 0,
            "node_id": node_id,
        },
        {
            "session": begun[waits],
            "at_ms": at[waits] - 1,
            "answered_producer_id": -1,
            "answered_epoch": -1,
            "error": _COORDINATOR_LOAD_IN_PROGRESS,
            "node_id": node_id[waits],
        },
    )


def sights(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """Return decisions without refusals: each id's first sight, and a refresh in each later slice."""
    used = seen.first_use_ms < NEVER
    new = used & day.lives.opens[seen.life] & seen.is_first
    new |= used & is_installed(day, seen.life, seen.begin_ms)
    first = np.flatnonzero(new)
    session, slice_ms = _slices(day, seen, np.flatnonzero(used))
    gap = roll.exponential(1, len(session)) / np.maximum(seen.per_ms[session], 1e-12)
    at = slice_ms + np.minimum(gap, 2 * SLICE_MS).astype(np.int64)
    kept = (at < seen.end_ms[session]) & (at < slice_ms + SLICE_MS) & (at > seen.first_use_ms[session])
    rows = stacked(
        {"session": first, "at_ms": seen.first_use_ms[first], "is_refresh": False},
        {"session": session[kept], "at_ms": at[kept], "is_refresh": True},
    )
    began = ~rows["is_refresh"] & seen.is_first[rows["session"]]
    rows["base_sequence"] = np.where(began, 0, roll.integers(1, 2_000_000, len(began)))
    return rows


def _slices(
    day: Day, seen: Sessions, chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each slice start within each session. Slices of users start at different times."""
    offset = (day.lives.user[seen.life[chosen]].astype(np.int64) * 7_919_000) % SLICE_MS
    first = (seen.begin_ms[chosen] - offset) // SLICE_MS + 1
    count = np.maximum(0, (seen.end_ms[chosen] - offset) // SLICE_MS - first + 1)
    place = np.repeat(np.arange(len(chosen)), count)
    number = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    return chosen[place], (first[place] + number) * SLICE_MS + offset[place]


def usage(day: Day, seen: Sessions, roll: np.random.Generator) -> Usage:
    """Return a row per quarter of an hour with use, at its end or at the connection's close."""
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
    # The failed request counts too.
    failed = (day.lives.error[seen.life[session]] != 0) & seen.is_last[session] & (slice_end == end[place])
    requests = np.maximum(requests, number == 0) + failed
    kept = requests > 0
    session, requests, number, failed = session[kept], requests[kept], number[kept], failed[kept]
    slice_begin, slice_end = slice_begin[kept], slice_end[kept]
    life = seen.life[session]
    gap = (slice_end - slice_begin) / (requests + 1)
    first_ms = slice_begin + np.where(number == 0, 0, gap * roll.random(len(gap))).astype(np.int64)
    last_ms = np.where(
        requests == 1,
        first_ms,
        np.maximum(first_ms, slice_end - 1 - (gap * roll.random(len(gap)) * ~failed).astype(np.int64)),
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
        "partitions": np.minimum(day.of_deployment("partitions")[life], requests),
        "first_ms": first_ms,
        "last_ms": last_ms,
    }
    sums = [np.bincount(session, weights, len(seen)).astype(np.int64) for weights in (requests, size)]
    return Usage(rows, sums[0], sums[1])


def errors(day: Day, seen: Sessions, roll: np.random.Generator) -> Columns:
    """Return the errors that end lives, and the errors of all clients during broker incidents."""
    ended = np.flatnonzero(seen.is_last & (day.lives.error[seen.life] != 0) & (seen.first_use_ms < NEVER))
    parts = [
        {"session": ended, "at_ms": seen.end_ms[ended], "code": day.lives.error[seen.life[ended]], "count": 1}
    ]
    for begin_ms, end_ms, code in day.world.incidents:
        there = np.flatnonzero((seen.first_use_ms < end_ms) & (seen.end_ms > begin_ms + 1_000))
        there = there[roll.random(len(there)) < 0.5]
        at = np.minimum(
            seen.end_ms[there],
            np.maximum(seen.first_use_ms[there] + 1, end_ms + roll.integers(0, 60_000, len(there))),
        )
        count = 1 + roll.poisson(3, len(there))
        parts.append({"session": there, "at_ms": at, "code": code, "count": count})
    return stacked(*parts)
