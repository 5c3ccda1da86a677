"""`pidgate pipeline recommend`: replays each user's history, writes tables and the quotas file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pidgate import units
from pidgate.pipeline.commands import common
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.engines import results_of
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.in_force import InForce, expiration_ms, newest_event, settings, shares
from pidgate.pipeline.passes import RECOMMEND, Pass
from pidgate.pipeline.recommend.chosen import Asked
from pidgate.pipeline.recommend.quotas_file import NOT_TOLD, NewRate, changes_diff, mode_of, quotas_yaml
from pidgate.pipeline.recommend.recommended import HARMFUL, SUMMED, TOTALS, Question, Row, totals_of
from pidgate.pipeline.recommend.sentences import overall
from pidgate.pipeline.runs import Run, replacing
from pidgate.pipeline.schemas import LABELS_OF_IDS
from pidgate.pipeline.tables import Tables
from pidgate.units import about_duration

SHOWN = 12
DEFAULTS = Asked()
LEAST_HISTORY = "7d"
ALL_HEALTHY, BY_FINDINGS, BY_LABELS = "assumed", "offenders", "labels"
"""Where the health of ids comes from."""
HEALTHY_BY = {
    BY_LABELS: "by the history's own labels",
    BY_FINDINGS: "unless `offenders` found harm",
    ALL_HEALTHY: "all of them: run `pidgate pipeline offenders` first to tell a rogue's",
}

LeastHistoryOption = Annotated[
    str, typer.Option("--least-history", help="With less history than this no rate is recommended.")
]
EnforceOption = Annotated[
    bool,
    typer.Option("--enforce", help="Write `mode: enforce` beside new rates (default: observe first)."),
]
AfterMendingOption = Annotated[
    bool,
    typer.Option("--after-mending", help="Write the rates for mended clients, instead of caps for now."),
]
ServersOption = Annotated[
    str,
    typer.Option("--bootstrap-servers", help="For the file's `cluster` (default: the brokers in events)."),
]


@common.command
def recommend(
    call: common.Call,
    heap: common.HeapOption = None,
    after_mending: AfterMendingOption = False,
    candidates: Annotated[
        str, typer.Option(help="More rates to try for all users, to see what they would refuse: 10,50,100.")
    ] = "",
    headroom: Annotated[
        float, typer.Option(min=1.0, help="Factor on the least rate that refuses no id.")
    ] = DEFAULTS.headroom,
    least_history: LeastHistoryOption = LEAST_HISTORY,
    least_ids: Annotated[
        int, typer.Option(min=1, help="Users with fewer new ids get no recommendation.")
    ] = DEFAULTS.least_ids,
    enforce: EnforceOption = False,
    bootstrap_servers: ServersOption = "",
) -> None:
    """Find each user's quota, with its price: a cap for now, and a rate for after mending."""
    asked = Asked(
        headroom=headroom,
        least_history_ms=common.duration_ms(least_history, "--least-history"),
        least_ids=least_ids,
        after_mending=after_mending,
        heap_bytes=common.heap_of(heap),
        tried=rates_of(candidates),
        enforce=enforce,
        servers=bootstrap_servers,
    )
    tables, progress = call.tables, common.Progress(call.console, ["recommend"])
    with progress.of("recommend"), replacing(tables) as run:
        write_recommendations(run, progress.say, call.days, asked)
    if call.as_json:
        common.print_rows(tables.query("recommendations"))
    else:
        _show(tables, call.console)


def rates_of(text: str) -> tuple[float, ...]:
    """Parse `10,50,100`. Raises BadOption."""
    try:
        rates = tuple(float(rate) for rate in text.split(",") if rate.strip())
    except ValueError as error:
        raise BadOption(f"--candidates takes numbers, as in 10,50,100, not {text!r}") from error
    if any(not 0.001 <= rate <= 1e9 for rate in rates):
        raise BadOption("--candidates: rates must be between 0.001 and 1,000,000,000 ids per window")
    return rates


def write_recommendations(run: Run, say: common.Say, days: Days = EVER, asked: Asked = DEFAULTS) -> None:
    """Write all tables and files of the job. Raises HistoryEmpty."""
    run.tables.check_events("decision", days)
    question = _question(run.tables, asked)
    remember_ms = settings(question.config).remember_ms
    found = results_of(Pass((RECOMMEND,), remember_ms, question.expiry_ms, question), run, days)
    shared = question.shared_totals(found.each("recommend_extent", lambda extent: extent).to_pylist())
    if shared is None:
        raise HistoryEmpty("no decision event names a user, so there is nobody to recommend a quota for.")
    say(
        f"{about_duration(shared['history_ms'])} of history with data, the last "
        f"{about_duration(shared['end_ms'] - shared['split_ms'])} kept back to judge. Healthy are ids "
        f"{HEALTHY_BY[question.healthy_by]}."
    )
    for name in ("recommendations", "recommend_candidates"):
        found.write(run, name)
    totals = totals_of(question, shared, run.query("recommendations", SUMMED))
    run.write("recommend_totals", pa.Table.from_pylist([totals], TOTALS))
    for sentence in overall(totals):
        say(sentence)
    _write_files(run, say, question.config, totals, asked)


def _question(tables: Tables, asked: Asked) -> Question:
    """Return what the replay of each user needs. Health is by labels, else by the places of harmful findings."""
    healthy_by, harmful, findings = BY_LABELS, HARMFUL.empty_table(), []
    if not tables.exists(LABELS_OF_IDS):
        healthy_by = BY_FINDINGS if tables.exists("results", "offenders_places") else ALL_HEALTHY
    if healthy_by == BY_FINDINGS:
        places = tables.query(
            "offenders_places", 'select distinct "user", client_id, address, true as is_harmful from found'
        )
        harmful = pa.Table.from_pylist(places, HARMFUL)
    if tables.exists("results", "offenders"):
        findings = tables.query("offenders", _FINDINGS)
    return Question(
        asked=asked,
        config=newest_event(tables, "config"),
        shares=shares(tables),
        expiry_ms=expiration_ms(tables),
        healthy_by=healthy_by,
        harmful=harmful,
        findings={row.pop("user"): row for row in findings},
    )


_FINDINGS = """
    select
        "user", list(distinct pattern order by pattern) as patterns,
        coalesce(list(distinct client order by client) filter (client is not null), []) as rogues
    from (select *, 'client ' || nullif(client_id, '') || coalesce(' at ' || address, '') as client from found)
    where harmful group by all
"""


def _write_files(run: Run, say: common.Say, config: InForce | None, totals: Row, asked: Asked) -> None:
    """Write recommended/quotas.yaml and recommended/changes.diff."""
    tables = run.tables
    changes = [
        NewRate(
            row["user"],
            row["recommended_rate"],
            mode_of(row["mode"], row["current_rate"], enforce=asked.enforce),
            row["reasons"],
        )
        for row in run.query("recommendations", "from found where action = 'set' order by \"user\"")
    ]
    first, split, last = (
        datetime.fromtimestamp(totals[name] / 1000, UTC).date().isoformat()
        for name in ("begin_ms", "split_ms", "end_ms")
    )
    head = [
        "Quotas recommended by `pidgate pipeline recommend`: everything in force, and new rates with their reasons.",
        f"Rates are ids per window, fitted to all days from {first} to {last}. The same rule, given only the days "
        f"before {split}, was judged on those from then on.",
        f"Healthy are ids {HEALTHY_BY[totals['healthy_by']]}.",
        *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in overall(totals)),
        f"Take the section `quotas` into the gateway's own file: events do not contain {NOT_TOLD}. "
        "Check it with `pidgate check --config`.",
    ]
    cluster = config["cluster"] if config else ""
    reached = [server.strip() for server in asked.servers.split(",") if server.strip()] or _brokers(tables)
    default = totals["default_rate"]
    text = quotas_yaml(
        config, changes, head=head, cluster=cluster, bootstrap_servers=reached, default_rate=default
    )
    run.write_text("recommended", "quotas.yaml", text)
    run.write_text("recommended", "changes.diff", changes_diff(config, changes, default))
    say(
        f"{units.counted(len(changes), 'new rate')}: {tables.path('recommended', 'quotas.yaml')}, and changes.diff."
    )


def _brokers(tables: Tables) -> list[str]:
    """Return the broker addresses of the newest topology event."""
    told = newest_event(tables, "topology", "len(brokers) > 0")
    return [f"{one['host']}:{one['port']}" for one in told["brokers"]] if told else []


def _show(tables: Tables, console: Console) -> None:
    order = f"rogue_ids desc, list_position(['set', 'keep', 'none'], action), \"user\" limit {SHOWN}"
    rows = tables.query("recommendations", f"from found order by {order}")
    table = Table("user", "action", "now", "cap for now", "after mending", "why")
    for row in rows:
        rates = (
            "-" if row[name] is None or row["action"] == "none" else units.number(row[name])
            for name in ("current_rate", "cap_rate", "mended_rate")
        )
        table.add_row(Text(row["user"]), row["action"], *rates, Text("; ".join(row["reasons"][:4])))
    console.print(table)
    console.print(
        "Load it with `mode: observe` first, check the result, then `pidgate promote` user by user.",
        soft_wrap=True,
    )
