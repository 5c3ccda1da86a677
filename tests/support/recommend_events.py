"""Quotas in force, as a gateway tells them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pidgate.events.definitions import ConfigEvent, QuotaInForce

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
Told = dict[str, Any]


def config(seq: int = 1, at_ms: int = BEGIN_MS, **words: Any) -> Told:
    """The quotas in force: a default, an owner, somebody set at run time."""
    said: Told = {
        "quota_version": 1,
        "mode": "observe",
        "transactional": "observe",
        "window_ms": HOUR_MS,
        "burst": 1.0,
        "remember_ms": DAY_MS,
        "layers": 4,
        "false_positive_rate": 0.001,
        "max_throttle_ms": 10_000,
        "max_live_ids": 10_000_000,
        "queue": 1_000,
        "sticky_entries": 20_000,
        "default_rate_milli": 500_000,
        "quotas": [
            QuotaInForce(
                user="batches", rate_milli=100_000, mode="enforce", owner="team-etl", note='say "no": #7'
            ),
            QuotaInForce(user="gone", rate_milli=1_500, exempt=True),
        ],
        **words,
    }
    return asdict(ConfigEvent(**_stamp(seq, at_ms), **said))


def _stamp(seq: int, at_ms: int) -> Told:
    return {
        "cluster": "paper",
        "gateway_id": "gw",
        "incarnation": "run",
        "seq": seq,
        "wall_time_ms": at_ms,
        "decision_time_ms": at_ms - BEGIN_MS + 5_000,
    }
