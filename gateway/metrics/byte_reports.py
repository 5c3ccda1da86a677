"""What each worker has counted in bytes, and their sum. PURE.

A worker reports the buckets that changed, with its totals. What a worker had counted when it died stays in the sum:
totals never fall while a bucket is used by anybody. The rate is not added: workers share their windows, so each of
them already says the rate of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from pidgate.quota.byte_quota import IDLE_MS, OTHER_CLIENTS, ByteQuota, ByteSnapshot
from pidgate.quota.byte_rates import Kind, rate_of_bucket
from pidgate.quota.settings import ByteQuotas

REPORT_ROWS: Final = 2_000
"""Buckets in one report, some 200 KB; what has no room is in one of the next."""

REPORT_LATE_MS: Final = 2_000
"""A rate that was not told again for a window and as long is over."""

ByteReport = dict[str, Any]
_Key = tuple[Kind, str | None, str | None]


@dataclass(frozen=True, slots=True)
class ByteState:
    """All buckets of a gateway, and how often there was no room for one, or none in what workers share."""

    rows: list[ByteSnapshot]
    no_room: int
    not_shared: int


def state_of(quota: ByteQuota, now_ms: int) -> ByteState:
    """That of a gateway of one process."""
    return ByteState(quota.snapshots(now_ms), quota.no_room, quota.not_shared)


def byte_report_of(quota: ByteQuota, now_ms: int) -> ByteReport:
    """What changed in a worker since its last report, as JSON takes it."""
    return {
        "rows": [pack(row) for row in quota.changes(now_ms, REPORT_ROWS)],
        "no_room": quota.no_room,
        "not_shared": quota.not_shared,
    }


def pack(snapshot: ByteSnapshot) -> list[Any]:
    """As JSON takes it."""
    return list(astuple(snapshot))


def unpack(fields: list[Any]) -> ByteSnapshot:
    """The reverse of `pack`."""
    user, client_id, kind, *numbers = fields
    return ByteSnapshot(user, client_id, Kind(kind), *numbers)


@dataclass(slots=True)
class _Row:
    """One bucket: what each worker said of it last, and when; and what those that are gone have left."""

    parts: dict[int, tuple[ByteSnapshot, int]] = field(default_factory=dict)
    gone: ByteSnapshot | None = None
    last_ms: int = 0


class ByteReports:
    """The latest of each worker, by its process id, and what those that are gone have left."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._counts_gone = (0, 0)

    def take(self, process: int, report: Mapping[str, Any], now_ms: int) -> None:
        self._counts[process] = (report["no_room"], report["not_shared"])
        for fields in report["rows"]:
            told = unpack(fields)
            row = self._rows.setdefault((told.kind, told.user, told.client_id), _Row())
            before = row.parts.get(process)
            if before is not None and before[0].total_bytes > told.total_bytes:
                _leave(row, before[0])  # the worker had dropped the bucket and counts from 0 again
            row.parts[process] = (told, now_ms)
            row.last_ms = now_ms

    def retire(self, process: int) -> None:
        """The worker is gone."""
        mine, gone = self._counts.pop(process, (0, 0)), self._counts_gone
        self._counts_gone = (gone[0] + mine[0], gone[1] + mine[1])
        for row in self._rows.values():
            part = row.parts.pop(process, None)
            if part is not None:
                _leave(row, part[0])

    def state(self, quotas: ByteQuotas, now_ms: int) -> ByteState:
        """The sums, with the bounds that are in force now; what has been idle for an hour is forgotten."""
        for key in [key for key, row in self._rows.items() if now_ms - row.last_ms >= IDLE_MS]:
            del self._rows[key]
        fresh_ms = now_ms - quotas.samples * quotas.sample_ms - REPORT_LATE_MS
        rows = []
        for (kind, user, client_id), row in self._rows.items():
            joined = _joined(row, fresh_ms)
            if client_id != OTHER_CLIENTS:
                rate = rate_of_bucket(quotas, kind, (user, client_id))
                if rate is None:
                    continue
                joined = replace(joined, rate_bytes_per_s=rate)
            rows.append(joined)
        counts = [*self._counts.values(), self._counts_gone]
        return ByteState(rows, sum(count[0] for count in counts), sum(count[1] for count in counts))


def join(snapshots: list[ByteSnapshot]) -> ByteSnapshot:
    """One bucket as several processes see it: totals add up, the rate is that of all already."""
    return replace(
        snapshots[0],
        rate_bytes_per_s=max(one.rate_bytes_per_s for one in snapshots),
        bytes_per_s=max(one.bytes_per_s for one in snapshots),
        throttled=sum(one.throttled for one in snapshots),
        would_throttle=sum(one.would_throttle for one in snapshots),
        throttle_time_ms=max(one.throttle_time_ms for one in snapshots),
        total_bytes=sum(one.total_bytes for one in snapshots),
    )


def _joined(row: _Row, fresh_ms: int) -> ByteSnapshot:
    parts = [part if told_ms >= fresh_ms else _ended(part) for part, told_ms in row.parts.values()]
    return join(parts if row.gone is None else [*parts, row.gone])


def _leave(row: _Row, part: ByteSnapshot) -> None:
    row.gone = _ended(part) if row.gone is None else join([row.gone, _ended(part)])


def _ended(part: ByteSnapshot) -> ByteSnapshot:
    return replace(part, bytes_per_s=0.0, throttle_time_ms=0.0)
