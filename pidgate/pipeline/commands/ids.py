"""`pidgate pipeline ids`: writes its tables, shows ids per broker and ids that bypassed the gateways."""

from __future__ import annotations

from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from pidgate.pipeline.commands import common
from pidgate.pipeline.commands.rates import JsonOption
from pidgate.pipeline.days import Days
from pidgate.pipeline.ids import blocks_by_hour, epochs, id_blocks
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.tables import Tables


def ids(
    tables: common.TablesOption = common.DEFAULT_TABLES,
    since: common.SinceOption = None,
    until: common.UntilOption = None,
    as_json: JsonOption = False,
    master: common.MasterOption = None,
    memory: common.MemoryOption = common.DEFAULT_MEMORY,
) -> None:
    """Find the id blocks of each broker, the share of ids that bypassed the gateways, and epoch growth."""
    days = Days.parsed(since, until)
    found, console = common.start("ids", tables, master, memory)
    with replacing(found) as run:
        write_ids(run, days, console.print)
    _show(found, console, as_json=as_json)


def write_ids(run: Run, days: Days, say: common.Say) -> None:
    """Write all tables of the job. Raises HistoryEmpty."""
    tables = run.tables
    inits = tables.needed_events("init_producer_id", days)
    decisions, usages = days.of(tables.events("decision")), days.of(tables.events("id_usage"))
    say("Blocks of producer ids ...")
    blocks = run.write("ids_blocks", id_blocks(inits, decisions))
    run.write("ids_by_hour", blocks_by_hour(blocks))
    say("Epochs ...")
    run.write("ids_epochs", epochs(decisions, usages, inits))


def _show(tables: Tables, console: Console, *, as_json: bool) -> None:
    sums = ("blocks", "ids_seen", "ids_in_blocks", "ids_unnamed", "bursts")
    nodes = (
        tables.written("ids_by_hour")
        .groupBy("node_id")
        .agg(*(f.sum(name).alias(name) for name in sums))
        .withColumn("coverage", f.col("ids_seen") / f.col("ids_in_blocks"))
        .orderBy("node_id")
    )
    if as_json:
        common.print_json(nodes)
        return
    shown = Table(title="Producer ids handed out, by broker")
    for head in ("broker", "blocks", "ids seen", "handed out", "not named", "bursts", "coverage"):
        shown.add_column(head, justify="right")
    for row in nodes.collect():
        broker = "unknown" if row.node_id is None else str(row.node_id)
        shown.add_row(broker, *(f"{row[name]:,}" for name in sums), f"{row.coverage:.1%}")
    console.print(shown)
    risen = tables.written("ids_epochs").agg(f.count("*"), f.sum("bumps"), f.count_if("exhausted")).first()
    assert risen is not None
    console.print(
        f"{risen[0]:,} ids above epoch 0, {risen[1] or 0:,} bumps, {risen[2]:,} with their epochs used up."
    )
    console.print(f"Written to {tables.path('results')}: ids_*. Next: pidgate pipeline report.")
