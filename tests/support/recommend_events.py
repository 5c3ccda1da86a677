"""Decisions of users whose story is known: healthy fleets, a rogue alone, and both under one name. Seeded."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count
from random import Random
from typing import Any

from pidgate.events.definitions import BrokerPlace, ConfigEvent, DecisionEvent, QuotaInForce, TopologyEvent

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
Told = dict[str, Any]
ROGUES = ("batches", "mixed")
"""Users with a rogue: alone, and beside healthy producers that come when it rests."""


class History:
    """`decisions` as a gateway in observe mode writes them; `labels`: (user, producer_id, healthy, pattern)."""

    def __init__(self, days: int = 6, seed: int = 1) -> None:
        self.days = days
        self.labels: list[tuple[str, int, bool, str]] = []
        self._random = Random(seed)
        self._ids = count(1000)
        self._came: list[tuple[int, str, int, str, str, str]] = []
        self._fleet("deployed", "app", pods=20)
        self._fleet("café: #1", "kasse", pods=4)
        self._rogue("batches", every_ms=300_000)
        self._fleet("mixed", "orders", pods=10)
        self._rogue("mixed", every_ms=60_000, from_hour=14, to_hour=18)
        self.decisions = self._told()

    def _new(self, at_ms: int, user: str, client_id: str, address: str, *, pattern: str) -> int:
        producer_id = next(self._ids)
        healthy = pattern == "rolling_deployment"
        self.labels.append((user, producer_id, healthy, pattern))
        self._came.append((at_ms, user, producer_id, client_id, address, "observe"))
        return producer_id

    def _fleet(self, user: str, client_id: str, *, pods: int) -> None:
        """Every morning all pods anew, one after the other; each id is used again six hours later."""
        for day in range(self.days):
            at_ms = BEGIN_MS + day * DAY_MS + 9 * HOUR_MS
            for pod in range(pods):
                at_ms += self._random.randrange(5_000, 60_000)
                where = f"10.0.0.{pod}"
                producer_id = self._new(at_ms, user, client_id, where, pattern="rolling_deployment")
                self._came.append((at_ms + 6 * HOUR_MS, user, producer_id, client_id, where, "refresh"))

    def _rogue(self, user: str, *, every_ms: int, from_hour: int = 0, to_hour: int = 24) -> None:
        for day in range(self.days):
            at_ms = BEGIN_MS + day * DAY_MS + from_hour * HOUR_MS
            while at_ms < BEGIN_MS + day * DAY_MS + to_hour * HOUR_MS:
                at_ms += self._random.randrange(every_ms // 2, every_ms * 3 // 2)
                self._new(at_ms, user, "rogue", "10.9.9.9", pattern="producer_per_batch")

    def _told(self) -> list[Told]:
        told = []
        for seq, (at_ms, user, producer_id, client_id, address, reason) in enumerate(sorted(self._came), 3):
            event = DecisionEvent(
                **_stamp(seq, at_ms),
                connection_id=producer_id,
                user=user,
                client_id=client_id,
                address=address,
                producer_id=producer_id,
                epoch=0,
                transactional=False,
                topic="t",
                partition=0,
                base_sequence=0,
                request_partitions=1,
                decision="admit",
                reason=reason,  # type: ignore[arg-type]
                quota_version=1,
            )
            told.append(asdict(event))
        return told


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


def topology(seq: int = 2, at_ms: int = BEGIN_MS) -> Told:
    brokers = [BrokerPlace(node_id=1, host="127.0.0.1", port=19092)]
    return asdict(TopologyEvent(**_stamp(seq, at_ms), brokers=brokers, topics=[]))


def _stamp(seq: int, at_ms: int) -> Told:
    return {
        "cluster": "paper",
        "gateway_id": "gw",
        "incarnation": "run",
        "seq": seq,
        "wall_time_ms": at_ms,
        "decision_time_ms": at_ms - BEGIN_MS + 5_000,
    }
