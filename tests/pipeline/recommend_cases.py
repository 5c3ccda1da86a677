"""Twelve days of users whose right rates are known, as the events of two gateways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pidgate.events.definitions import EVENT_TYPES, Event, QuotaInForce, TopicPlaces
from pidgate.pipeline.recommend.measured import INPUT
from pidgate.pipeline.schemas import PARTITIONS, table_schema
from tests.pipeline.made_events import DAY, HOUR, MINUTE, MONDAY, event, write_events

DAYS = 12
END = MONDAY + DAYS * DAY
SECOND = 1_000


@dataclass
class Cases:
    """Each user has one story. `thinner`: a rogue brings one id in so many."""

    thinner: int = 1
    chance: Random = field(default_factory=lambda: Random(7))
    ids: int = 0
    of: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"decision": [], "id_usage": [], "connection": []}
    )

    def one(
        self,
        user: str,
        client_id: str,
        address: str,
        at: int,
        life: int = 0,
        requests: int = 1,
        *,
        transactional_id: str | None = None,
        gateways: int = 1,
    ) -> None:
        """A producer from its first batch to its last, and its connection's end; each day it is seen again."""
        who = self._who(user, client_id, address)
        told = {"transactional": transactional_id is not None, "transactional_id_hash": transactional_id}
        until = min(at + life, END - MINUTE)
        for gateway in range(gateways):
            through = {**who, "gateway_id": f"gw-{gateway}"}
            self._decide(at + gateway, "admit", "observe", **through, **told)
            # A slice of use for each hour; in each of six the gateway also refreshes the id.
            for number, first in enumerate(range(at, until + 1, HOUR)):
                last = min(first + HOUR - 1, until)
                share = max(1, requests * (last - first + 1) // max(1, until - at + 1))
                if first > at and number % 6 == 0:
                    self._decide(first, "admit", "refresh", **through)
                self._tell(
                    "id_usage", last + 10, **through, first_ms=first, last_ms=last, requests=share, batches=share,
                    records=10 * share, bytes=500 * share, partitions=2, epoch=0, connections=1,
                )  # fmt: skip
        if at + life < END:
            self._tell("connection", until + 20, **who, phase="close", node_id=1, close_reason="client")

    def _who(self, user: str, client_id: str, address: str) -> dict[str, Any]:
        self.ids += 1
        return {
            "user": user, "client_id": client_id, "address": address, "producer_id": self.ids,
            "connection_id": self.ids, "software_name": "apache-kafka-java", "software_version": "3.7.0",
        }  # fmt: skip

    def _decide(self, at: int, decision: str, reason: str, **told: Any) -> None:
        self._tell(
            "decision", at, decision=decision, reason=reason, topic="orders", partition=0, epoch=0, base_sequence=0,
            request_partitions=1, quota_version=1, **told,
        )  # fmt: skip

    def _tell(self, event_type: str, at: int, **told: Any) -> None:
        self.of[event_type].append({"wall_time_ms": at, **told})

    # The cases

    def rogue_only(self, user: str = "rogue only") -> None:
        """A producer per batch, every 10 s from 8 to 18 h."""
        for day in range(DAYS):
            for at in range(8 * HOUR, 18 * HOUR, 10 * SECOND * self.thinner):
                self.one(user, "loader", "10.0.0.1", MONDAY + day * DAY + at)

    def bridge(self, user: str = "bridge") -> None:
        """A producer per HTTP request, 0.15 a second from 9 to 17 h."""
        for day in range(DAYS):
            at = float(MONDAY + day * DAY + 9 * HOUR)
            while (
                at := at + self.chance.expovariate(0.15 / self.thinner) * SECOND
            ) < MONDAY + day * DAY + 17 * HOUR:
                self.one(user, "bridge", "10.0.0.2", int(at))

    def random_transactional_ids(self, user: str = "random ids") -> None:
        """Four workers, a new id every 600 s each."""
        for worker in range(4):
            for number, at in enumerate(range(MONDAY + worker * 150 * SECOND, END, 600 * SECOND)):
                name = f"{worker}-{number}"
                self.one(
                    user, f"worker-{worker}", f"10.0.1.{worker}", at, 590 * SECOND, 60, transactional_id=name
                )

    def mixed(self, user: str = "mixed") -> None:
        """Ten healthy pods of 1.5 to 2.5 days each, beside a loop of 18 s every 30 s."""
        for pod in range(10):
            at, number = MONDAY + pod * 40 * SECOND, 0
            while at < END:
                life = int(self.chance.uniform(1.5, 2.5) * DAY)
                self.one(user, f"shop-{number}f{pod}c", f"10.1.{number}.{pod}", at, life, 50_000)
                at, number = at + life + 10 * SECOND, number + 1
        # Its pace is the claim, so fewer days make it thinner.
        for at in range(END - max(2, DAYS // self.thinner) * DAY, END - MINUTE, 30 * SECOND):
            self.one(user, "crawler", "10.9.9.9", at, 18 * SECOND, 5)

    def censored(self, user: str = "censored") -> None:
        """Enforced at 10 an hour: 40 pods start daily at 9, 11 get in, 29 are refused 12 times each."""
        for day in range(DAYS):
            nine = MONDAY + day * DAY + 9 * HOUR
            for pod in range(40):
                at, address = nine + pod * 3 * SECOND, f"10.2.{day}.{pod}"
                if pod < 11:
                    self.one(user, f"pod-{day}f{pod}c", address, at, DAY - MINUTE, 9_000)
                    continue
                who = self._who(user, f"pod-{day}f{pod}c", address)
                for attempt in range(12):
                    self._decide(at + attempt * 10 * SECOND, "refuse", "first_seen", **who, tokens_after=-1)

    def gapped(self, user: str = "gapped") -> None:
        """One id on a day, 25 within an hour eleven days later."""
        self.one(user, "app", "10.3.0.0", MONDAY + 9 * HOUR, MINUTE, 9)
        for pod in range(25):
            self.one(user, "app", f"10.3.0.{pod}", MONDAY + 11 * DAY + 9 * HOUR + pod * 2 * MINUTE, MINUTE, 9)

    def young(self, user: str = "young") -> None:
        """25 pods in 8 minutes, 25 h before the end."""
        for pod in range(25):
            self.one(user, f"new-{pod}", f"10.4.0.{pod}", END - 25 * HOUR + pod * 19 * SECOND, 2 * DAY, 9_000)

    def weekly(self, user: str = "weekly") -> None:
        """Five long-lived ids, and 300 at once on days 3 and 10."""
        for pod in range(5):
            self.one(user, f"api-{pod}", f"10.5.0.{pod}", MONDAY + pod * 30 * SECOND, DAYS * DAY, 90_000)
        for day in (3, 10):
            for task in range(300):
                at = MONDAY + day * DAY + 2 * HOUR + task * 100
                self.one(user, "batch", f"10.5.{day}.{task % 250}", at, 40 * MINUTE, 200)

    def fleet(self, user: str = "fleet") -> None:
        """20 pods, deployed daily, seen by two gateways each."""
        for day in range(DAYS):
            for pod in range(20):
                at = MONDAY + day * DAY + 10 * HOUR + pod * 40 * SECOND
                name = f"app-{day}f{pod}c"
                self.one(user, name, f"10.6.{day}.{pod}", at, DAY + 15 * SECOND, 20_000, gateways=2)

    def autoscaler(self, user: str = "autoscaler") -> None:
        """Three pods always, three to twelve more by the hour of the day."""
        for pod in range(3):
            self.one(user, "web", f"10.7.0.{pod}", MONDAY + pod * SECOND, DAYS * DAY, 90_000)
        for day in range(DAYS):
            for pod in range(12):
                at = MONDAY + day * DAY + (7 * 60 + pod * 20 + self.chance.randrange(15)) * MINUTE
                until = MONDAY + day * DAY + (20 * 60 - pod * 15) * MINUTE
                self.one(user, "web", f"10.7.{day}.{10 + pod}", at, until - at, 9_000)

    def all(self) -> Cases:
        for made in (
            self.rogue_only, self.bridge, self.random_transactional_ids, self.mixed, self.censored, self.gapped,
            self.young, self.weekly, self.fleet, self.autoscaler,
        ):  # fmt: skip
            made()
        return self

    def write(self, root: str) -> None:
        """Write the events, a file for each type and day."""
        for event_type, rows in self.of.items():
            for day, table in _by_day(event_type, rows):
                folder = Path(root, "events", event_type, f"day={day}", "bucket=0")
                folder.mkdir(parents=True)
                pq.write_table(table, folder / "part.parquet")
        enforced = [{"user": "censored", "rate_milli": 10_000, "mode": "enforce", "exempt": False, "source": "file",
                     "set_by": "", "owner": "", "note": ""}]  # fmt: skip
        write_events(root, "config", [event(
            "config", quota_version=1, mode="observe", transactional="enforce", window_ms=HOUR, burst=1.0,
            remember_ms=DAY, layers=4, false_positive_rate=0.001, max_throttle_ms=10_000, max_live_ids=10_000_000,
            queue=1_000, sticky_entries=20_000, quotas=enforced,
        )])  # fmt: skip
        write_events(root, "topology", [event(
            "topology", brokers=[], topics=[{"topic": "orders", "leaders": [1, 2], "replicas": [[1, 2], [2, 3]]}],
        )])  # fmt: skip

    def events(self) -> Iterator[Event]:
        """Yield all events; a gateway numbers its own in order of time."""
        told = [(name, row) for name, rows in self.of.items() for row in rows]
        enforced = QuotaInForce(
            user="censored",
            rate_milli=10_000,
            mode="enforce",
            exempt=False,
            source="file",
            set_by="",
            owner="",
            note="",
        )
        told.append(("config", {
            "wall_time_ms": MONDAY, "quota_version": 1, "mode": "observe", "transactional": "enforce",
            "window_ms": HOUR, "burst": 1.0, "remember_ms": DAY, "layers": 4, "false_positive_rate": 0.001,
            "max_throttle_ms": 10_000, "max_live_ids": 10_000_000, "queue": 1_000, "sticky_entries": 20_000,
            "quotas": [enforced],
        }))  # fmt: skip
        topic = TopicPlaces(topic="orders", leaders=[1, 2], replicas=[[1, 2], [2, 3]])
        told.append(("topology", {"wall_time_ms": MONDAY, "brokers": [], "topics": [topic]}))
        numbers: Counter[str] = Counter()
        for name, row in sorted(told, key=lambda one: int(one[1]["wall_time_ms"])):
            stamped = {
                "cluster": "c",
                "gateway_id": "gw-0",
                "decision_time_ms": 0,
                "transactional": False,
                **row,
            }
            gateway, kind = stamped["gateway_id"], EVENT_TYPES[name]
            numbers[gateway] += 1
            stamped |= {"incarnation": f"of-{gateway}", "seq": numbers[gateway]}
            yield kind(**{one.name: stamped[one.name] for one in fields(kind) if one.name in stamped})


ROGUES = frozenset(("loader", "bridge", "crawler", *(f"worker-{number}" for number in range(4))))
"""Client ids that harm."""


def measured_rows(cases: Cases, user: str) -> pa.Table:
    """Return the user's rows of measured.INPUT, as recommend/by_id.sql makes them of its events."""
    lives: dict[int, dict[str, Any]] = {}
    for row in (one for one in cases.of["decision"] if one["user"] == user):
        life = lives.setdefault(
            row["producer_id"],
            {"user": user, "at_ms": row["wall_time_ms"], "healthy": row["client_id"] not in ROGUES, "refusals": 0,
             "transactional": bool(row.get("transactional")), "address": hash(row["address"])},
        )  # fmt: skip
        life["refusals"] += row["decision"] == "refuse"
    for use in (one for one in cases.of["id_usage"] if one["user"] == user and one["gateway_id"] == "gw-0"):
        life = lives[use["producer_id"]]
        life["first_ms"] = min(life.get("first_ms", use["first_ms"]), use["first_ms"])
        life["last_ms"] = max(life.get("last_ms", 0), use["last_ms"])
        for name in ("requests", "records"):
            life[name] = life.get(name, 0) + use[name]
        life["partitions"] = use["partitions"]
    return pa.Table.from_pylist(list(lives.values()), INPUT)


def _by_day(event_type: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, pa.Table]]:
    """Column by column, since a dictionary of all columns for each row takes minutes."""
    schema = table_schema(event_type)
    names = set(PARTITIONS.names)
    blank = {"gateway_id": "gw-0", "incarnation": "run", "cluster": "c", "schema_version": 1, "listener": "",
             "count": 1, "seconds": 0.0, "requests": 0, "throttle_time_ms": 0, "would_refuse": False}  # fmt: skip
    rows = sorted(rows, key=lambda row: int(row["wall_time_ms"]))
    for number, row in enumerate(rows):
        row["seq"] = number
    first = 0
    while first < len(rows):
        day = rows[first]["wall_time_ms"] // DAY
        last = next((n for n in range(first, len(rows)) if rows[n]["wall_time_ms"] // DAY != day), len(rows))
        mine = rows[first:last]
        columns = {
            name: pa.array([row.get(name, blank.get(name)) for row in mine], schema.field(name).type)
            for name in schema.names
            if name not in names
        }
        yield datetime.fromtimestamp(day * DAY / 1000, UTC).date().isoformat(), pa.table(columns)
        first = last
