"""Columns of each event type besides the common ones, from its rows (observed.py, refusals.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tools.history import observed, refusals
from tools.history.observed import Columns
from tools.history.sessions import Sessions
from tools.history.shard import Day, mixed, numbered

SHORT_LIST = 2_000


def coded(codes: Any, words: Sequence[str]) -> pa.Array:
    """Return text as indexes into a list of words (dictionary encoding)."""
    place, distinct = numbered(words)
    coded = pa.DictionaryArray.from_arrays(place[np.asarray(codes)], pa.array(distinct, pa.string()))
    # Otherwise each hour's file would contain the whole list.
    return coded if len(distinct) < SHORT_LIST else coded.cast(pa.string())


def array_of(values: Any, field: pa.Field, size: int) -> pa.Array:
    """Return an Arrow column; a scalar applies to all rows, None leaves them empty."""
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, str):
        return coded(np.zeros(size, np.int32), [values])
    if values is None or isinstance(values, int | tuple):
        return pa.repeat(pa.scalar(values, field.type), size)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and pa.types.is_integer(field.type):
        missing = np.isnan(values)
        return pa.array(np.where(missing, 0, values).astype(np.int64), field.type, mask=missing)
    return pa.array(values, field.type)


def _decision(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    life = seen.life[rows["session"]]
    transactional = day.of_deployment("is_transactional")[life]
    topics = [f"{user.number}.{topic}" for user in day.users for topic in user.topics]
    begins = np.cumsum([0, *(len(user.topics) for user in day.users)])[:-1]
    sizes = np.array([len(user.topics) for user in day.users])
    drawn = mixed(day.pod_key[life] + np.uint64(11))
    topic = begins[day.user_place[life]] + (drawn % sizes[day.user_place[life]].astype(np.uint64)).astype(
        np.int64
    )
    spread = np.maximum(1, np.minimum(day.of_deployment("partitions")[life], 8)).astype(np.uint64)
    by_tokens = ~np.isnan(rows["tokens_before"])
    return {
        "producer_id": day.lives.producer_id[life],
        "epoch": day.lives.epoch[life].astype(np.int64),
        "transactional": transactional,
        "transactional_id_hash": pa.array(_hashes(day, life, transactional), pa.string()),
        "topic": coded(topic, topics),
        "partition": ((drawn >> np.uint64(20)) % np.uint64(4)).astype(np.int64),
        "base_sequence": rows["base_sequence"],
        "request_partitions": 1 + ((drawn >> np.uint64(30)) % spread).astype(np.int64),
        "decision": coded(rows["admitted"].astype(np.int32), ["refuse", "admit"]),
        "reason": pa.array(rows["reason"], pa.string()).dictionary_encode(),
        "would_refuse": False,
        "tokens_before": rows["tokens_before"],
        "tokens_after": rows["tokens_after"],
        "token_units": np.where(by_tokens, float(refusals.TOKEN_UNITS), np.nan),
        "throttle_time_ms": rows["throttle_time_ms"],
        "queue_position": rows["queue_position"],
        "waited_ms": rows["waited_ms"],
        "quota_version": 1,
        # Simulated gateways follow no other gateway.
        "applied_offsets": (),
    }


def _hashes(day: Day, life: NDArray[np.int64], transactional: NDArray[np.bool_]) -> list[str | None]:
    """Return hashes of transactional ids: per fleet slot, or random per producer."""
    lives = day.lives
    kept = lives.identity[life] >= 0
    own = lives.identity[life].astype(np.uint64) + (day.deployment_place[life] * 1_000_003).astype(np.uint64)
    key = mixed(np.where(kept, own, day.lives.producer_id[life].astype(np.uint64) + np.uint64(1 << 50)))
    return [
        f"h:{one:016x}" if is_so else None
        for one, is_so in zip(key.tolist(), transactional.tolist(), strict=True)
    ]


def _outcome(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    return {
        "producer_id": day.lives.producer_id[seen.life[rows["session"]]],
        "attempts": rows["attempts"],
        "waited_ms": rows["waited_ms"],
        "outcome": coded(rows["admitted"], ["gave_up", "admitted"]),
    }


def _usage(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    life = seen.life[rows["session"]]
    # By the gateway's wall clock, like all its events.
    shift_ms = day.world.skews_ms[seen.gateway[rows["session"]]]
    return {
        "producer_id": day.lives.producer_id[life],
        "epoch": day.lives.epoch[life].astype(np.int64),
        "requests": rows["requests"],
        "batches": rows["requests"] + rows["partitions"] - 1,
        "records": rows["records"],
        "bytes": rows["bytes"],
        "partitions": rows["partitions"],
        "first_ms": rows["first_ms"] + shift_ms,
        "last_ms": rows["last_ms"] + shift_ms,
        "connections": 1,
    }


def _answer(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    life = seen.life[rows["session"]]
    return {
        "asked_producer_id": -1,
        "asked_epoch": -1,
        "answered_producer_id": rows["answered_producer_id"],
        "answered_epoch": rows["answered_epoch"].astype(np.int64),
        "error": rows["error"],
        "node_id": rows["node_id"],
        "transactional": day.of_deployment("is_transactional")[life],
        "count": 1,
    }


def _error(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    life = seen.life[rows["session"]]
    return {
        "producer_id": day.lives.producer_id[life],
        "code": rows["code"].astype(np.int64),
        "count": rows["count"],
        "node_id": day.leader_of(life),
    }


def _connection(day: Day, seen: Sessions, rows: Columns) -> dict[str, Any]:
    bootstrap = rows["bootstrap"] == 1
    return {
        "phase": coded(rows["is_close"], ["open", "close"]),
        "node_id": np.where(bootstrap, np.nan, rows["node_id"]),
        "principal_mechanism": "SCRAM-SHA-512",
        "close_reason": coded(rows["reason"] + 1, observed.CLOSE_WORDS),
        "seconds": rows["ms"] / 1_000,
        "bytes_in": rows["bytes_in"],
        "bytes_out": rows["bytes_out"],
        "requests": rows["requests"],
        "count": 1,
    }


OWN_COLUMNS: dict[str, Callable[[Day, Sessions, Columns], dict[str, Any]]] = {
    "decision": _decision,
    "refusal_outcome": _outcome,
    "id_usage": _usage,
    "init_producer_id": _answer,
    "produce_error": _error,
    "connection": _connection,
}
