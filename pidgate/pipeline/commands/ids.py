"""`pidgate pipeline ids`: writes its tables, shows ids per broker and ids that bypassed the gateways."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.commands.rates import JsonOption
from pidgate.pipeline.days import Days
from pidgate.pipeline.engines import Engine, Results, results_of
from pidgate.pipeline.kernels import Kernel
from pidgate.pipeline.passes import IDS
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables


def ids(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    as_json: JsonOption = False,
    engine: common.EngineOption = Engine.SPARK,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Find the id blocks of each broker, the share of ids that bypassed the gateways, and epoch growth."""
    days = Days.parsed(since, until)
    found, console = common.start("ids", tables, master, memory, engine)
    found.check_events("init_producer_id", days)
    with replacing(found) as run:
        write_ids(run, results_of(common.pass_over(found, days, IDS), run, days))
    _show(found, console, as_json=as_json)


def write_ids(run: Run, found: Results) -> None:
    """Write all tables of the job."""
    found.write(run, "ids_epochs")
    with Kernel({"merged": found.each("merged", lambda blocks: blocks)}) as kernel:
        kernel.run("ids/by_node")
        for name in ("ids_blocks", "ids_by_hour"):
            run.write(name, kernel.table(name))


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    sums = ("blocks", "ids_seen", "ids_in_blocks", "ids_unnamed", "bursts")
    summed = ", ".join(f"sum({name})::bigint as {name}" for name in sums)
    share = "sum(ids_seen) / sum(ids_in_blocks) as coverage"
    nodes = tables.query(
        "ids_by_hour",
        f"select node_id, {summed}, {share} from found group by all order by node_id nulls first",
    )
    if as_json:
        common.print_rows(nodes)
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
