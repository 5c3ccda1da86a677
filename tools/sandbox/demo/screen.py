"""The last screen: verdict, causes, bystanders, mallory's outcomes, time line, checks, next command."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tools.sandbox.demo.evidence import Evidence, Half
from tools.sandbox.demo.findings import (
    BystanderSaw,
    bystander_saw,
    ids_in_log,
    latency,
    mallory_saw,
    refused_by_gateway,
)
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, MALLORY, Plan, plain
from tools.sandbox.demo.sparks import spark
from tools.sandbox.demo.verdict import Outcome
from tools.sandbox.play import Check, checks_table, checks_title

_SPARK_CELLS = 48


def show(console: Console, plan: Plan, evidence: Evidence, checks: Sequence[Check], outcome: Outcome) -> None:
    ascii_only = console.options.ascii_only
    sections: list[tuple[str, RenderableType]] = [
        ("Verdict", _verdict(outcome)),
        ("Who and why", _who(plan, evidence.through_gateway)),
        ("Bystanders", _bystanders(evidence)),
        ("What mallory saw", _mallory(evidence.through_gateway)),
        ("Heap and ids over time", _over_time(plan, evidence, ascii_only=ascii_only)),
        (checks_title(checks), checks_table(checks)),
        ("Next", Text.assemble((outcome.next_command, "bold"), f"   # {outcome.next_shows}")),
    ]
    console.print()
    for title, body in sections:
        console.print(Text(title, style="bold cyan"))
        console.print(Padding(body, (0, 0, 1, 2), expand=False))


def _verdict(outcome: Outcome) -> RenderableType:
    return Text(" ".join(outcome.sentences), style="bold green" if outcome.passed else "bold red")


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", header_style="dim")
    return table


def _who(plan: Plan, through: Half) -> RenderableType:
    saw, ids = mallory_saw(through), ids_in_log(through)
    named = {refused.user: refused for refused in refused_by_gateway(through)}
    table = _table("user", "client id", "address", "quota an hour", "what it does")
    starts = len(through.carol.entries)
    rows = {
        MALLORY: (
            saw.client_ids,
            saw.hosts,
            f"a new producer for each batch: {saw.brought:,} ids brought, {ids[MALLORY]:,} in the log",
        ),
        CAROL: (
            ("carol-nightly",),
            sorted(named[CAROL].hosts) if CAROL in named else ("-",),
            f"crashes after each record: {starts:,} starts, {ids[CAROL]:,} ids in the log",
        ),
    }
    for user, (client_ids, hosts, does) in rows.items():
        rate = plan.rate_of(user)
        quota = "none" if rate is None else f"{plain(rate):,}"
        table.add_row(user, _span(client_ids), ", ".join(hosts), quota, does)
    return table


def _span(names: Sequence[str]) -> str:
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} .. {names[-1]}"


def _bystanders(evidence: Evidence) -> RenderableType:
    through = evidence.through_gateway
    table = _table(
        "user",
        "client",
        "refused",
        "acknowledged",
        "in the log once",
        "p50 / p99 ms",
        "direct runs",
        right=("refused", "acknowledged", "in the log once"),
    )
    for user in (ALICE, BOB):
        saw = bystander_saw(through, user)
        runs = [latency(run[user]) for run in evidence.baseline]
        table.add_row(
            user,
            saw.client,
            "?" if saw.refused is None else f"{saw.refused}",
            f"{saw.acknowledged:,} of {saw.sent:,}",
            _in_log(saw),
            "-" if saw.latency is None else f"{saw.latency.p50_ms} / {saw.latency.p99_ms}",
            ",  ".join("-" if run is None else f"{run.p50_ms} / {run.p99_ms}" for run in runs),
        )
    direct = [bystander_saw(evidence.direct, user) for user in (ALICE, BOB)]
    unanswered = sum(saw.failed + saw.unknown for saw in direct)
    lost = f"Beside the rogues without the gateway, {unanswered:,} of their records failed or had no answer."
    delay = (
        f"The machine's own share of these times: a timer was late by {through.delay_ms:.0f} ms (p99), "
        f"{evidence.baseline_delay_ms:.0f} ms in the direct runs."
    )
    return Group(table, Text(f"{delay}\n{lost}", style="dim"))


def _in_log(saw: BystanderSaw) -> str:
    if saw.verdict is None:
        return "not readable"
    once = saw.verdict.is_good and saw.acknowledged == saw.verdict.in_log
    return f"{saw.verdict.in_log:,}{'' if once else ' (see checks)'}"


def _mallory(through: Half) -> RenderableType:
    saw = mallory_saw(through)
    least_ms, greatest_ms = saw.throttle_times_ms
    lines = [
        f"{saw.admitted:,} ids admitted, {saw.admitted_after_waiting:,} of them after waiting; "
        f"{saw.refused:,} refused; {saw.gave_up:,} gave up, {saw.waiting_at_the_end:,} still waiting at the end",
    ]
    if saw.refused:
        least = "" if least_ms == greatest_ms else f"{least_ms / 1000:.1f} to "
        lines.append(
            f"told to wait {least}{greatest_ms / 1000:.1f} s at a time, "
            f"waited up to {saw.longest_wait_ms / 1000:.1f} s; {saw.came_back:,} came back to ask again"
        )
        lines.append(f'in her log: "{saw.message}"')
    return Text("\n".join(lines))


def _over_time(plan: Plan, evidence: Evidence, *, ascii_only: bool) -> RenderableType:
    halves = {"direct": evidence.direct, "gateway": evidence.through_gateway}
    until = max(half.attack_s for half in halves.values())
    most_ids = max((point.ids for half in halves.values() for point in half.points), default=1)
    table = Table.grid(padding=(0, 2, 0, 0))
    for what, top in (("heap", plan.heap_mb), ("ids", most_ids)):
        for name, half in halves.items():
            points = half.points
            values = [point.heap_used_mb if what == "heap" else point.ids for point in points]
            line = spark(
                [point.at_s for point in points],
                values,
                cells=_SPARK_CELLS,
                until=until,
                top=top,
                ascii_only=ascii_only,
            )
            last = values[-1] if values else 0
            unit = f"{last} of {plan.heap_mb} MB" if what == "heap" else f"{last:,} in each partition"
            end = Text("dead", style="bold red") if half.died else Text("alive", style="green")
            table.add_row(what, name, line, unit, end)
    return Group(table, Text(f"0 to {until:.0f} s of the rogues", style="dim"))
