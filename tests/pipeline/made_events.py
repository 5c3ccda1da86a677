"""Events written down by hand or by a seeded random generator, as the tables that jobs read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pidgate.events.definitions import EVENT_TYPES, Event
from pidgate.events.writing import to_json
from pidgate.pipeline.passes import Pass, Read
from pidgate.pipeline.schemas import PARTITIONS, bucket_of, table_schema

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000
"""A midnight, UTC."""

Row = dict[str, Any]
_numbers = count(1)


def event(event_type: str, **told: Any) -> Row:
    """A row of the event's table; what is not told has the event's own default, or null."""
    row: Row = {name: None for name in table_schema(event_type).names}
    row |= {one.name: one.default for one in fields(EVENT_TYPES[event_type]) if one.default is not MISSING}
    row |= {"gateway_id": "gw-1", "incarnation": "run", "seq": next(_numbers), "wall_time_ms": MONDAY, **told}
    return row


def write_events(root: str, event_type: str, rows: Iterable[Row]) -> None:
    """Under root/events, in folders by day and bucket."""
    schema = pa.schema([*table_schema(event_type), *PARTITIONS])
    table = pa.Table.from_pylist([{**row, **_folder(row)} for row in rows], schema=schema)
    pq.write_to_dataset(table, Path(root) / "events" / event_type, partition_cols=PARTITIONS.names)


def land(folder: Path, events: Iterable[Event]) -> None:
    """Write a file for each type, as a sink does."""
    folder.mkdir()
    lines: dict[str, list[bytes]] = {}
    for one in events:
        lines.setdefault(one.type, []).append(to_json(one) + b"\n")
    for event_type, mine in lines.items():
        (folder / f"{event_type}.jsonl").write_bytes(b"".join(mine))


def rows_of_events(events: Iterable[Event]) -> dict[str, list[Row]]:
    """By type, as rows of their tables."""
    found: dict[str, list[Row]] = {}
    for one in events:
        found.setdefault(one.type, []).append({"schema_version": 1, **asdict(one)})
    return found


def tables_of(rows: Mapping[str, Sequence[Row]], reads: Mapping[str, Read]) -> dict[str, pa.Table]:
    """What a kernel reads of these events."""
    found = {}
    for event_type, read in reads.items():
        schema = table_schema(event_type)
        every = pa.Table.from_pylist([dict(row) for row in rows.get(event_type, ())], schema=schema)
        found[event_type] = (every if read.where is None else every.filter(read.where)).select(read.names)
    return found


def results(rows: Mapping[str, Sequence[Row]], *jobs: str, expiry_ms: int = DAY) -> dict[str, list[Row]]:
    """What a pass finds in these events, in one bucket and one part, without an engine."""
    return results_of_pass(rows, Pass(jobs, remember_ms=DAY, expiry_ms=expiry_ms))


def results_of_pass(rows: Mapping[str, Sequence[Row]], todo: Pass) -> dict[str, list[Row]]:
    partial = todo.of_bucket(tables_of(rows, todo.by_id))
    found = todo.of_part(partial | tables_of(rows, todo.by_user))
    return {name: table.to_pylist(maps_as_pydicts="strict") for name, table in found.items()}


def _folder(row: Row) -> Mapping[str, str]:
    day = f"{datetime.fromtimestamp(row['wall_time_ms'] / 1000, UTC):%Y-%m-%d}"
    return {"day": day, "bucket": str(bucket_of(row.get("producer_id") or 0))}


USERS = ("alice", "", 'o\'brien "the" rogue', "ünï/cödé=100%_", "CN=a,O=b")


class MadeUp:
    """Three days of a small fleet: ids that are refused, come in, work, rest, come back; `of` has the rows by type."""

    def __init__(self, seed: int, ids: int) -> None:
        self._random = random.Random(seed)
        self.of: dict[str, list[Row]] = {"decision": [], "id_usage": [], "refusal_outcome": []}
        for producer_id in self._random.sample(range(10_000), ids):
            # The second user holds most of the ids, as a rogue does.
            user = USERS[self._random.choice((0, 1, 2, 2, 2, 2, 2, 3))]
            self._life(user, producer_id)
        self._refused_only(USERS[4])

    def write(self, root: str) -> None:
        for event_type, rows in self.of.items():
            write_events(root, event_type, rows)

    def _life(self, user: str, producer_id: int) -> None:
        who = {"user": user, "producer_id": producer_id, "client_id": self._client()}
        at = self._moment(MONDAY + self._random.randrange(DAY))
        if self._random.random() < 0.2:
            self._known(who, at)
            return
        for refusal_at in self._refusals(at):
            at = refusal_at
            self._decide(who, at, "refuse")
        if self._random.random() < 0.15:
            self._tell("refusal_outcome", at, **who, attempts=1, waited_ms=40_000, outcome="gave_up")
            return
        at = self._moment(at + self._random.randrange(20_000))
        self._decide(who, at, "admit")
        waited = self._random.randrange(90_000)
        self._tell("refusal_outcome", at, **who, attempts=2, waited_ms=waited, outcome="admitted")
        self._work(who, at)
        if self._random.random() < 0.3:
            back = at + self._random.choice((DAY + HOUR, DAY + 7 * HOUR, 20 * HOUR, 5 * HOUR))
            self._decide(who, self._moment(back), "admit")
            self._work({**who, "client_id": self._client()}, back)

    def _known(self, who: Row, at: int) -> None:
        self._tell(
            "decision", at, **who, decision="admit", reason=self._random.choice(("refresh", "inherited"))
        )
        self._work(who, at)
        self._decide(who, at + HOUR, "admit")

    def _refused_only(self, user: str) -> None:
        for number in range(3):
            who = {"user": user, "producer_id": 20_000 + number, "client_id": "blocked"}
            self._tell(
                "decision",
                MONDAY + number * HOUR,
                **who,
                decision="refuse",
                reason="blocked",
            )

    def _refusals(self, at: int) -> Iterator[int]:
        for _ in range(self._random.choice((0, 0, 0, 1, 3))):
            yield at
            at += self._random.randrange(15_000)

    def _decide(self, who: Row, at: int, decision: str, **more: Any) -> None:
        reason = self._random.choice(
            ("first_seen", "queue", "observe", "grace") if decision == "admit" else ("sticky", "queue")
        )
        more = {"tokens_after": self._random.choice((None, 5)), **more}
        self._tell("decision", at, **who, decision=decision, reason=reason, **more)
        if self._random.random() < 0.3:
            # A second gateway that had not heard of it.
            later = at + self._random.randrange(200)
            self._tell(
                "decision", later, gateway_id="gw-2", **who, decision=decision, reason="first_seen", **more
            )

    def _work(self, who: Row, at: int) -> None:
        for _ in range(self._random.choice((0, 1, 2, 6))):
            first = self._moment(at)
            last = first + self._random.choice((0, 1, self._random.randrange(15 * MINUTE)))
            partitions = self._random.randrange(1, 9)
            self._tell(
                "id_usage", last, **who, gateway_id=self._random.choice(("gw-1", "gw-2")), first_ms=first, last_ms=last,
                requests=self._random.randrange(1, 100), partitions=partitions,
            )  # fmt: skip
            at = last + self._random.randrange(3 * HOUR)

    def _client(self) -> str | None:
        return self._random.choice(("app", "app", "", None, "ärger,'1'"))

    def _moment(self, at: int) -> int:
        """Often a border of hours or days, or the millisecond before."""
        near = self._random.random()
        if near < 0.1:
            return at - at % DAY + DAY
        if near < 0.3:
            return at - at % HOUR + HOUR - (near < 0.2)
        return at

    def _tell(self, event_type: str, at: int, **told: Any) -> None:
        self.of[event_type].append(event(event_type, wall_time_ms=at, **told))
