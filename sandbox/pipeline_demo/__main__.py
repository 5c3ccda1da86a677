"""`python -m pidgate.sandbox.pipeline_demo`: watch, find, recommend, hold; the exit code tells.

0: every check passed. 1: a check failed. 2: the demo could not be played. 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pidgate.sandbox import guard
from pidgate.sandbox.demo.verifier import Check
from pidgate.sandbox.errors import SandboxError
from pidgate.sandbox.gateway import GatewayNotReady
from pidgate.sandbox.jars import NEWEST, class_path
from pidgate.sandbox.java import java_for
from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.pipeline_demo import jobs
from pidgate.sandbox.pipeline_demo.acts import play
from pidgate.sandbox.pipeline_demo.checks import Evidence, rate_of, verify
from pidgate.sandbox.pipeline_demo.plan import EVENTS_TOPIC, MALLORY, Act, Plan

PASSED, FAILED, NOT_PLAYED, INTERRUPTED = 0, 1, 2, 130
_WIDTH_WITHOUT_TERMINAL = 160


class Teller:
    """Says what is done, and since when."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text.assemble((f"{self.took_s:6.1f} s  ", "dim"), (text, style)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pidgate.sandbox.pipeline_demo",
        description="A rogue among healthy producers is watched, found by the pipeline, and held by its quotas.",
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the producers send, each time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", default=NEWEST, help="Kafka version")
    parser.add_argument("--memory", default="1g", help="heap of each job")
    parser.add_argument(
        "--report", type=Path, default=Path("pipeline-demo-report.html"), help="where to leave the report"
    )
    return parser


def _play(plan: Plan, teller: Teller, work: Path, report: Path) -> Evidence:
    teller.say(f"Kafka {plan.version} starts")
    with Cluster(plan.cluster()) as cluster:
        first = Act("observed", "observed", work / "observed")
        teller.say(
            "First act: the gateway observes and refuses nobody. alice and bob send, mallory opens producers",
            "bold",
        )
        observed = play(plan, first, cluster, {"mode": "observe"}, teller.say)
        teller.say("The pipeline reads the gateway's events", "bold")
        told = _study(plan, cluster, work / "tables", teller)
        file = work / "tables" / "recommended" / "quotas.yaml"
        quotas = yaml.safe_load(file.read_text())["quotas"]
        rate = rate_of(quotas, MALLORY)
        teller.say(
            "Second act: the same producers; the gateway enforces the recommended quotas "
            f"(mallory: {'no limit' if rate is None else f'{rate:g} new ids per window'})",
            "bold",
        )
        second = Act("enforced", "enforced", work / "enforced")
        enforced = play(plan, second, cluster, quotas, teller.say)
    shutil.copy(work / "tables" / "report.html", report)
    return Evidence(
        observed=observed,
        enforced=enforced,
        ingested=told["ingest"],
        findings=told["report"]["findings"],
        page=report.read_text(),
        quotas=quotas,
        checked=_check(file, work),
    )


def _study(plan: Plan, cluster: Cluster, tables: Path, teller: Teller) -> dict[str, Any]:
    """Every job once; what those said that tell a program."""
    servers = cluster.bootstrap_servers()
    steps: list[tuple[str, list[str]]] = [
        ("ingest", ["--kafka", servers, "--topic", EVENTS_TOPIC, "--available-now", "--json"]),
        ("rates", []),
        ("offenders", []),
        # Enforcing is never decided by a job: whoever runs the demo types it, as an operator would.
        ("recommend", ["--enforce", "--bootstrap-servers", servers]),
        ("ids", []),
        ("failover", []),
        ("report", ["--json"]),
    ]
    told: dict[str, Any] = {}
    for job, options in steps:
        done = jobs.run(job, tables, *options, memory=plan.memory)
        teller.say(f"pidgate pipeline {job} {' '.join(options)}: {done.took_s:.0f} s")
        if "--json" in options:
            told[job] = done.json()
    return told


def _check(file: Path, work: Path) -> str | None:
    code, stdout, stderr = jobs.pidgate(["check", "--config", str(file)], work / "check.log")
    return None if code == 0 else " ".join((stderr + stdout).split())[:200]


def _show(console: Console, checks: Sequence[Check]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        mark = Text("ok", style="green") if check.passed else Text("FAIL", style="bold red")
        table.add_row(mark, Text(check.name), Text(check.found, style="dim" if check.passed else ""))
    console.print()
    console.print(
        Text(f"Checks: {sum(check.passed for check in checks)} of {len(checks)}", style="bold cyan")
    )
    console.print(table)


def _run(plan: Plan, teller: Teller, work: Path, report: Path) -> int:
    # Asked for first: what is missing shows before anything is started.
    java_for(plan.version)
    class_path(plan.version)
    evidence = _play(plan, teller, work, report)
    checks = verify(evidence)
    passed = all(check.passed for check in checks)
    _show(teller.console, checks)
    teller.console.print(_verdict(evidence, passed))
    teller.console.print(Text(f"{teller.took_s:.0f} s. Open the report: {report.resolve()}", style="dim"))
    return PASSED if passed else FAILED


def _verdict(evidence: Evidence, passed: bool) -> Text:
    if not passed:
        return Text("A check failed.", style="bold red")
    return Text(
        f"Unlimited, mallory left {evidence.observed.mallory_ids_in_log:,} producer ids on the broker. The pipeline "
        f"named her; under the quotas it recommended she left {evidence.enforced.mallory_ids_in_log:,}, and every "
        "record of alice and bob is in the log exactly once.",
        style="bold green",
    )


def _terminated(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    plan = Plan(seconds=given.seconds, seed=given.seed, version=given.kafka, memory=given.memory)
    teller = Teller(Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL))
    signal.signal(signal.SIGTERM, _terminated)
    work = guard.temporary_directory("pidgate-pipeline-demo-")
    code = NOT_PLAYED
    try:
        code = _run(plan, teller, work, given.report)
    except jobs.JobFailed as failure:
        print(failure, file=sys.stderr)
        code = FAILED
    except (SandboxError, GatewayNotReady, KafkaException, OSError) as error:
        print(f"the demo could not be played: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        code = INTERRUPTED
    finally:
        guard.keep_or_remove(work, keep=code in (FAILED, NOT_PLAYED), what="logs, journals and tables")
    return code


if __name__ == "__main__":
    sys.exit(main())
