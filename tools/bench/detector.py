"""Precision, recall and confusion of both front ends of pidgate/findings, over made-up histories.

    python -m tools.bench.detector            two fleets; half an hour on an idle core
    python -m tools.bench.detector --page     write the page again from the kept result

No rule is fitted to these seeds: to change a rule (findings/rules.py), look at other seeds (--seeds) and never at
these. `offenders` are the pipeline's kernels in this process, `who` is the console's tally, over the same events.
The result is kept in tools/bench/results/detector.json and printed into docs/how-to/pipeline/offenders.md.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa

from pidgate.events.definitions import (
    DecisionEvent,
    Event,
    IdUsageEvent,
    InitProducerIdEvent,
    ProduceErrorEvent,
)
from pidgate.findings.accuracy import NOTHING, Pairs, accuracy, confusion
from pidgate.findings.rules import PATTERNS
from pidgate.pipeline.in_force import REMEMBER_MS
from pidgate.pipeline.passes import OFFENDERS, Pass
from pidgate.who.findings import findings
from pidgate.who.painting import user_pictures
from pidgate.who.picture import Window
from pidgate.who.tally import Tally
from tools.bench.targets import ROOT
from tools.history.events_of_day import tables_of
from tools.history.makers import MAKERS
from tools.history.world import DAY_MS, Fleet, World

RESULT: Final = ROOT / "tools" / "bench" / "results" / "detector.json"
PAGE: Final = ROOT / "docs" / "how-to" / "pipeline" / "offenders.md"
PART: Final = re.compile(r"(<!-- tools\.bench\.detector -->\n).*?(<!-- end -->)", re.DOTALL)
HELD_OUT_SEEDS: Final[Mapping[Fleet, Sequence[int]]] = {
    Fleet.HABITS: (936_001, 936_002, 936_003),
    Fleet.REPORTS: (936_001,),
}
USERS, DAYS, SCALE = 300, 14, 0.3
BEGIN_MS: Final = 1_794_009_600_000
"""2026-11-07, UTC."""
FRONT_ENDS: Final = ("offenders", "who")
COUNTED: Final = ("users", "found", "true_positives")
_BY_CLIENT: Final = {"client", "reset"}


def main() -> None:
    """Make the histories, judge them and write the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, nargs="+", help="print what is found in these, and keep nothing")
    asked.add_argument("--fleet", type=Fleet, nargs="+", choices=list(Fleet), default=list(Fleet))
    asked.add_argument("--users", type=int, default=USERS, help="of each seed")
    asked.add_argument("--page", action="store_true")
    options = asked.parse_args()
    if not options.page:
        seeds = {fleet: options.seeds or HELD_OUT_SEEDS[fleet] for fleet in options.fleet}
        rows = list(measured(seeds, options.users))
        if options.seeds:
            print(page(rows))
            return
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(with_part(PAGE.read_text(), page(json.loads(RESULT.read_text()))))


def measured(seeds: Mapping[Fleet, Sequence[int]], users: int = USERS) -> Iterator[dict[str, Any]]:
    """Yield a row for each cell of the confusion, and for each pattern."""
    for fleet, of_fleet in seeds.items():
        cells: Counter[tuple[str, ...]] = Counter()
        sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        yield {"fleet": fleet, "seeds": list(of_fleet), "of_each": users}
        for seed in of_fleet:
            labels, found = judged(World(seed, users, DAYS, BEGIN_MS, SCALE, fleet=fleet))
            for front_end, pairs in found.items():
                for row in confusion(pairs, labels):
                    cells[front_end, row["actual"], row["predicted"]] += row["users"]
                for row in accuracy(pairs, labels, PATTERNS):
                    sums[front_end, row["pattern"]].update({name: row[name] for name in COUNTED})
        for (front_end, actual, predicted), count in sorted(cells.items()):
            yield {"fleet": fleet, "by": front_end, "actual": actual, "predicted": predicted, "users": count}
        for (front_end, pattern), counts in sorted(sums.items()):
            yield {"fleet": fleet, "by": front_end, "pattern": pattern, **counts}


def judged(world: World) -> tuple[Pairs, Mapping[str, Pairs]]:
    """Return the labels of a history, and what each front end finds in its events."""
    todo = Pass((OFFENDERS,), remember_ms=REMEMBER_MS, expiry_ms=DAY_MS)
    reads = {**todo.by_id, **todo.by_user}
    kept: dict[str, list[pa.Table]] = {name: [] for name in reads}
    tally = Tally()
    for day in range(world.days):
        tables = tables_of(world, 0, day).tables
        for name, read in reads.items():
            rows = tables[name] if read.where is None else tables[name].filter(read.where)
            kept[name].append(_with_whole_texts(rows.select(read.names)))
        take(tally, tables)
    every = {name: pa.concat_tables(parts) for name, parts in kept.items()}
    partial = todo.of_bucket({name: every[name] for name in todo.by_id})
    by_kernels = todo.of_part({**partial, **{name: every[name] for name in todo.by_user}})["offenders"]
    window = Window(world.begin_ms, world.end_ms, world.begin_ms)
    maker = MAKERS[world.fleet]
    users = [maker.user(world, number) for number in range(world.users)]
    return {(user.name, pattern.value) for user in users for pattern in maker.patterns(world, user)}, {
        "offenders": {(row["user"], row["pattern"]) for row in by_kernels.to_pylist()},
        "who": {
            (user.user, one.kind.value)
            for user in user_pictures(tally, window, None)
            for one in findings(user, window)
            if one.kind in PATTERNS
        },
    }


def take(tally: Tally, tables: Mapping[str, pa.Table]) -> None:
    """Feed the console's tally with the events of a day, in the order of their clocks."""
    kinds: tuple[type[Event], ...] = (DecisionEvent, IdUsageEvent, InitProducerIdEvent, ProduceErrorEvent)
    rows: list[tuple[int, int, type[Event] | None, dict[str, Any]]] = [
        (row["wall_time_ms"], row["seq"], kind, row) for kind in kinds for row in _rows(tables, kind)
    ]
    closes = tables["connection"].select(
        ["wall_time_ms", "seq", "user", "incarnation", "connection_id", "phase", "close_reason", "count"]
    )
    rows += [(row["wall_time_ms"], row["seq"], None, row) for row in closes.to_pylist()]
    rows.sort(key=lambda one: one[:2])
    for at_ms, _, kind, row in rows:
        if kind is not None:
            tally.add(kind(**row))
            continue
        tally.count_connections(row["user"], row["count"] if row["phase"] == "open" else -row["count"])
        if row["close_reason"] in _BY_CLIENT:
            was_cut = row["close_reason"] == "reset"
            tally.add_close(row["incarnation"], row["connection_id"], at_ms, was_cut=was_cut)


def _with_whole_texts(table: pa.Table) -> pa.Table:
    """Return the table with texts in place of indexes into a day's words: one day may have too many for that."""
    whole = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(whole))


def _rows(tables: Mapping[str, pa.Table], kind: type[Event]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables[kind.type].select([one.name for one in fields(kind)]).to_pylist()
    return found


def with_part(text: str, part: str) -> str:
    """Return the page with what was measured."""
    return PART.sub(lambda found: f"{found[1]}{part}{found[2]}", text)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the measured part of the page, in Markdown."""
    parts = []
    for fleet in dict.fromkeys(row["fleet"] for row in rows):
        mine = [row for row in rows if row["fleet"] == fleet]
        (seeds, users) = next((row["seeds"], row["of_each"]) for row in mine if "seeds" in row)
        size = f"{len(seeds) * users} users, {DAYS} days (seeds {', '.join(map(str, seeds))})"
        parts += [f"### Users of {fleet}: {size}", "", *_accuracy(mine), "", *_matrix(mine), ""]
    return "\n".join(parts)


def _accuracy(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| pattern | users | `offenders` precision | recall | `who` precision | recall |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    by = {(row["by"], row["pattern"]): row for row in rows if "pattern" in row}
    for pattern in sorted({pattern for _, pattern in by}):
        both = [by[front_end, pattern] for front_end in FRONT_ENDS]
        if any(row["users"] or row["found"] for row in both):
            shares = [_share(row["true_positives"], row[name]) for row in both for name in ("found", "users")]
            yield f"| `{pattern}` | {both[0]['users']} | {' | '.join(shares)} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _matrix(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the confusion of both: each cell is `offenders` / `who`."""
    cells = {(row["by"], row["actual"], row["predicted"]): row["users"] for row in rows if "actual" in row}
    there = {name for _, *names in cells for name in names}
    names = [*sorted(there - {NOTHING}), *sorted(there & {NOTHING})]
    yield f"| is \\ found | {' | '.join(name.replace('_', ' ') for name in names)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    for actual in names:
        counts = [[cells.get((by, actual, predicted), 0) for by in FRONT_ENDS] for predicted in names]
        shown = [" / ".join(map(str, both)) if any(both) else "" for both in counts]
        if any(shown):
            yield f"| {actual.replace('_', ' ')} | {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
