"""`pidgate pipeline rates`, `offenders` and `ids`: read events, write their tables, and show the most of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from pidgate.findings.accuracy import accuracy, confusion
from pidgate.findings.rules import PATTERNS
from pidgate.pipeline.commands.common import Call, Say, command, print_rows
from pidgate.pipeline.engines import Results
from pidgate.pipeline.kernels import Kernel
from pidgate.pipeline.passes import IDS, JOBS, OFFENDERS, RATES, Pass
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.schemas import schema_of
from pidgate.pipeline.tables import Tables
from pidgate.quota import entities
from pidgate.units import about_duration

USERS_SHOWN: Final = 10
FINDINGS_SHOWN: Final = 20
"""On the screen; the result has all of them."""
ACCURACY: Final = {
    "detector_accuracy": schema_of(
        "string: pattern; int64: users found true_positives; "
        "double: precision precision_low precision_high recall recall_low recall_high"
    ),
    "detector_confusion": schema_of("string: actual predicted; int64: users"),
}
"""Result tables where users have labels."""


@command
def rates(call: Call) -> None:
    """Count each user's producer ids: arrival rates, ids held by brokers, and waiting clients."""
    tables, console = call.tables, call.console
    with replacing(tables) as run:
        write_rates(run, console.print, *call.results(run, RATES))
    top = tables.query("rates_users", f'from found order by new_ids desc, "user" limit {USERS_SHOWN}')
    if call.as_json:
        print_rows(top)
        return
    ((users,),) = (row.values() for row in tables.query("rates_users", "select count(*) from found"))
    shown = Table(title=f"Users by new producer ids (the first {USERS_SHOWN} of {users})")
    shown.add_column("user", overflow="fold", min_width=20)
    columns = {
        "new_ids": "new ids",
        "peak_new_ids_per_hour": "peak/h",
        "new_ids_per_hour_p95": "p95/h",
        "refused_ids": "refused",
        "gave_up": "gave up",
        "ids_held": "held",
    }
    for head in columns.values():
        shown.add_column(head, justify="right")
    for row in top:
        user = entities.shown(row["user"]) or "(unidentified)"
        shown.add_row(user, *(f"{row[name]:,.0f}" for name in columns))
    console.print(shown)
    console.print(
        f"Written to {tables.path('results')}: rates_*, held_by_hour. Next: pidgate pipeline offenders."
    )


def write_rates(run: Run, say: Say, todo: Pass, found: Results) -> None:
    """Write all tables of the job."""
    expire, remembered = about_duration(todo.expiry_ms), about_duration(todo.remember_ms)
    say(f"States expire after {expire}, ids are remembered {remembered}.")
    for name in JOBS[RATES].results:
        found.write(run, name)


@command
def offenders(call: Call) -> None:
    """Find the users that burn producer ids and the pattern: restart loops, a producer per error or batch."""
    tables, console = call.tables, call.console
    with replacing(tables) as run:
        write_offenders(run, call.results(run, OFFENDERS)[1])
    counts = tables.query(
        "offenders", "select pattern, count(*) as users from found group by all order by all"
    )
    console.print(", ".join(f"{row['pattern']}: {row['users']:,} users" for row in counts))
    harmful = tables.query("offenders", 'from found where harmful order by new_ids desc, "user" desc')
    if call.as_json:
        print_rows(harmful)
    else:
        for row in harmful[:FINDINGS_SHOWN]:
            print(row["sentence"])
        if not harmful:
            console.print("No user burns producer ids.")
        elif (more := len(harmful) - FINDINGS_SHOWN) > 0:
            console.print(f"... and {more:,} more.")
    _show_accuracy(tables, console)
    console.print(
        f"Written to {tables.path('results', 'offenders')}. Next: `pidgate pipeline recommend`, then `report`."
    )


def write_offenders(run: Run, found: Results) -> None:
    """Write offenders and offenders_places; with labels also detector_accuracy and detector_confusion."""
    for name in JOBS[OFFENDERS].results:
        found.write(run, name)
    if run.tables.exists("labels"):
        labels, named = _pairs(run.tables.query_at("labels")), _pairs(run.query("offenders"))
        for name, rows in {
            "detector_accuracy": accuracy(named, labels, PATTERNS),
            "detector_confusion": confusion(named, labels),
        }.items():
            run.write(name, pa.Table.from_pylist(list(rows), ACCURACY[name]))


def _pairs(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(row["user"], row["pattern"]) for row in rows}


def _show_accuracy(tables: Tables, console: Console) -> None:
    """Show precision and recall if users have labels."""
    if not tables.exists("labels"):
        return
    shown = Table(
        "pattern", "users", "found", "precision", "95 %", "recall", "95 %", title="Against the labels"
    )
    for row in tables.query("detector_accuracy", "from found order by pattern"):
        counts = (row["pattern"], str(row["users"]), str(row["found"]))
        shown.add_row(*counts, *_share(row, "precision"), *_share(row, "recall"))
    console.print(shown)


def _share(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    if row[name] is None:
        return "-", "-"
    return f"{row[name]:.3f}", f"{row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f}"


@command
def ids(call: Call) -> None:
    """Find the id blocks of each broker, the share of ids that bypassed the gateways, and epoch growth."""
    tables, console = call.tables, call.console
    tables.check_events("init_producer_id", call.days)
    with replacing(tables) as run:
        write_ids(run, call.results(run, IDS)[1])
    sums = ("blocks", "ids_seen", "ids_in_blocks", "ids_unnamed", "bursts")
    summed = ", ".join(f"sum({name})::bigint as {name}" for name in sums)
    share = "sum(ids_seen) / sum(ids_in_blocks) as coverage"
    nodes = tables.query(
        "ids_by_hour",
        f"select node_id, {summed}, {share} from found group by all order by node_id nulls first",
    )
    if call.as_json:
        print_rows(nodes)
        return
    shown = Table(title="Producer ids handed out, by broker")
    for head in ("broker", "blocks", "ids seen", "handed out", "not named", "bursts", "coverage"):
        shown.add_column(head, justify="right")
    for row in nodes:
        broker = "unknown" if row["node_id"] is None else str(row["node_id"])
        shown.add_row(broker, *(f"{row[name]:,}" for name in sums), f"{row['coverage']:.1%}")
    console.print(shown)
    risen = (
        "count(*) as ids, coalesce(sum(bumps), 0)::bigint as bumps, count(*) filter (exhausted) as exhausted"
    )
    (row,) = tables.query("ids_epochs", f"select {risen} from found")
    console.print(
        f"{row['ids']:,} ids above epoch 0, {row['bumps']:,} bumps, {row['exhausted']:,} with their epochs used up."
    )
    console.print(f"Written to {tables.path('results')}: ids_*. Next: pidgate pipeline report.")


def write_ids(run: Run, found: Results) -> None:
    """Write all tables of the job."""
    found.write(run, "ids_epochs")
    with Kernel({"merged": found.each("merged", lambda blocks: blocks)}) as kernel:
        kernel.run("ids/by_node")
        for name in ("ids_blocks", "ids_by_hour"):
            run.write(name, kernel.table(name))
