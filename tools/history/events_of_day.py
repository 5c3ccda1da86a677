"""One day of one shard as Arrow tables, one per event type with its exact columns, and the labels.

Adds the common columns to rows: user, gateway, process and sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pidgate.events.definitions import EVENT_TYPES, SCHEMA_VERSION, TransactionalIdEvent
from pidgate.pipeline.files import Files
from pidgate.pipeline.schemas import bucket_of, folder_of, table_schema
from tools.history import gateways, observed, refusals
from tools.history.observed import Columns
from tools.history.own_columns import OWN_COLUMNS, array_of, coded
from tools.history.sessions import Incarnation, Sessions, incarnations, sessions
from tools.history.shard import Day, day_of
from tools.history.world import DAY_MS, HOUR_MS, World, dice

CLUSTER = "q8Zt1vXgRZe0history0AA"
LISTENER = "sasl"
TYPES = tuple(word for word in EVENT_TYPES if word != TransactionalIdEvent.type)
"""Generated users have no rate of transactional ids."""

IDS = pa.schema(
    [("user", pa.string()), ("producer_id", pa.int64()), ("healthy", pa.bool_()), ("pattern", pa.string())]
)
"""labels_ids: ground truth of each id."""


@dataclass(frozen=True)
class DayTables:
    """`tables`: by type, sorted by hour of wall_time_ms. `ids`: see IDS."""

    tables: dict[str, pa.Table]
    ids: pa.Table


def tables_of(world: World, shard: int, number: int) -> DayTables:
    """Return all tables of day `number`."""
    day = day_of(world, shard, number)
    processes = incarnations(world, shard, number)
    roll = dice(world.seed, "telling", number, shard)
    seen = sessions(day, processes, roll)
    sights = observed.sights(day, seen, roll)
    sights, outcomes = _enforced(day, seen, processes, sights, roll)
    usage = observed.usage(day, seen, roll)
    rows = {
        "decision": sights,
        "refusal_outcome": outcomes,
        "id_usage": usage.rows,
        "init_producer_id": observed.answers(day, seen, roll),
        "produce_error": observed.errors(day, seen, roll),
        "connection": observed.connections(day, seen, usage, roll),
        "config": gateways.config(day, processes),
        "lifecycle": gateways.lifecycle(world, processes, shard),
        "topology": gateways.topology(day, processes),
    }
    for columns in rows.values():
        if "session" in columns:
            columns["incarnation"] = seen.incarnation[columns["session"]]
    _number([rows[kind] for kind in TYPES])
    envelope = _Envelope(day, seen, processes)
    tables = {kind: envelope.table(kind, rows[kind]) for kind in TYPES}
    return DayTables(tables, _truth(day, sights, seen))


def _number(rows: Sequence[Columns]) -> None:
    """Add the seq of each row: 1, 2, 3 ... within its incarnation, in order of true time."""
    incarnation, at_ms = (np.concatenate([one[name] for one in rows]) for name in ("incarnation", "at_ms"))
    order = np.lexsort((at_ms, incarnation))
    counts = np.bincount(incarnation)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    seq = np.empty(len(order), np.int64)
    seq[order] = np.arange(len(order)) - begins + 1
    ends = np.cumsum([len(one["at_ms"]) for one in rows])
    for one, numbers in zip(rows, np.split(seq, ends[:-1]), strict=True):
        one["seq"] = numbers


def _enforced(
    day: Day,
    seen: Sessions,
    processes: Sequence[Incarnation],
    sights: Columns,
    roll: np.random.Generator,
) -> tuple[Columns, Columns]:
    """Replace first sights of enforced users by quota decisions; add the outcomes of refusals."""
    session, refresh = sights["session"], sights["is_refresh"]
    unknown = np.full(len(session), np.nan)
    full: Columns = {
        **sights,
        "admitted": np.ones(len(session), bool),
        "reason": np.where(refresh, "refresh", "observe").astype(object),
        **dict.fromkeys((*refusals.BALANCE, "waited_ms"), unknown),
        "throttle_time_ms": np.zeros(len(session), np.int64),
    }
    dropped = np.zeros(len(session), bool)
    decided: list[refusals.Row] = []
    outcomes: list[refusals.Row] = []
    user_of = day.user_place[seen.life[session]]
    for place, user in enumerate(day.users):
        first = (user_of == place) & ~refresh & (sights["base_sequence"] == 0)
        if user.rate_per_hour is None or not first.any():
            continue
        decisions, ended = refusals.judged(day, seen, user, session[first], roll)
        dropped |= first
        decided += decisions
        outcomes += ended
    # A refresh follows an admission, and a stopped process writes nothing.
    dropped |= refresh & (full["at_ms"] <= seen.first_use_ms[session])
    ends = np.array([process.end_ms for process in processes])

    def columns(rows: list[refusals.Row], kinds: dict[str, np.dtype[Any]]) -> Columns:
        written = [row for row in rows if row["at_ms"] < ends[seen.incarnation[row["session"]]]]
        return {name: np.array([row[name] for row in written], kind) for name, kind in kinds.items()}

    more = columns(decided, {name: column.dtype for name, column in full.items()})
    of_outcomes = ("session", "at_ms", "attempts", "waited_ms", "admitted")
    return (
        {name: np.concatenate([full[name][~dropped], more[name]]) for name in full},
        columns(outcomes, dict.fromkeys(of_outcomes, np.dtype(np.int64))),
    )


def _truth(day: Day, decisions: Columns, seen: Sessions) -> pa.Table:
    """Return the labels of each id of this day, admitted or not."""
    life = np.unique(seen.life[decisions["session"][~decisions["is_refresh"]]])
    patterns = [one.pattern.value for one in day.deployments]
    return pa.table(
        [
            pa.array([user.name for user in day.users]).take(pa.array(day.user_place[life])),
            pa.array(day.lives.producer_id[life]),
            pa.array(day.lives.healthy[life]),
            pa.array(patterns).take(pa.array(day.deployment_place[life])),
        ],
        schema=IDS,
    )


@dataclass(frozen=True)
class _Envelope:
    """Converter of rows to tables: the common columns and each type's own."""

    day: Day
    seen: Sessions
    processes: Sequence[Incarnation]

    def table(self, kind: str, rows: Columns) -> pa.Table:
        schema = table_schema(kind)
        gateway = np.array([process.gateway for process in self.processes])[rows["incarnation"]]
        wall_ms = rows["at_ms"] + self.day.world.skews_ms[gateway]
        # By hour first, so that each hour's file is one slice.
        order = np.lexsort((rows["seq"], rows["incarnation"], wall_ms // HOUR_MS))
        gateway, size = gateway[order], len(order)
        mine = {name: column[order] for name, column in rows.items()}
        columns: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "cluster": CLUSTER,
            "gateway_id": coded(gateway, [f"gw-{number}" for number in range(self.day.world.gateways)]),
            "incarnation": coded(mine["incarnation"], [process.name for process in self.processes]),
            "seq": mine["seq"],
            "wall_time_ms": wall_ms[order],
            "decision_time_ms": mine["at_ms"] - self.day.world.boots_ms[gateway],
        }
        if "own" in mine:
            own = mine["own"]
            columns |= dict.fromkeys(_OF_A_CLIENT, "") | {name: [one[name] for one in own] for name in own[0]}
        else:
            columns |= self._client(mine) | OWN_COLUMNS[kind](self.day, self.seen, mine)
        arrays = [array_of(columns.get(field.name), field, size) for field in schema]
        return pa.table(arrays, names=schema.names)

    def _client(self, rows: Columns) -> dict[str, Any]:
        day, session = self.day, rows["session"]
        life = self.seen.life[session]
        deployment = day.deployment_place[life]
        bootstrap = rows.get("bootstrap", 0)
        return {
            "connection_id": 1 + 2 * session + bootstrap,
            "listener": LISTENER,
            "user": coded(day.user_place[life], [user.name for user in day.users]),
            "client_id": coded(day.client_code[life], day.client_words),
            "software_name": coded(deployment, [one.software[0] for one in day.deployments]),
            "software_version": coded(deployment, [one.software[1] for one in day.deployments]),
            "address": coded(day.address_code[life], day.address_words),
        }


_OF_A_CLIENT = ("listener", "user", "client_id", "software_name", "software_version", "address")


# Files: one per type, day and bucket, named for the task only, so that a repeated task writes the same files.
# The task itself writes them, because its nine tables do not fit one DataFrame.


def write(made: DayTables, root: str, shard: int, day: int) -> dict[str, int]:
    """Write a day's tables; returns the rows by type. `root`: as for Files."""
    files = Files(root)
    name = f"history-{day:05d}-{shard:03d}.parquet"
    for kind, table in made.tables.items():
        days = np.asarray(table["wall_time_ms"]) // DAY_MS
        ids = np.asarray(table["producer_id"]) if "producer_id" in table.column_names else 0 * days
        buckets = np.fromiter(map(bucket_of, ids.tolist()), np.int64, table.num_rows)
        for one, bucket in sorted(set(zip(days.tolist(), buckets.tolist(), strict=True))):
            rows = table.filter(pa.array((days == one) & (buckets == bucket)))
            _put(files, rows, folder_of(kind, one, bucket), name)
    _put(files, made.ids, "labels_ids", name)
    return {kind: table.num_rows for kind, table in made.tables.items()}


def _put(files: Files, table: pa.Table, folder: str, name: str) -> None:
    # Readers skip names with a leading dot, so they see complete files only.
    partial = f"{folder}/.{name}"
    files.write_table(partial, table)
    files.rename(partial, f"{folder}/{name}")
