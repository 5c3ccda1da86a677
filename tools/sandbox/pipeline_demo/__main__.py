"""`python -m tools.sandbox.pipeline_demo`: observe, detect, recommend, enforce; the exit code is the result.

0: every check passed. 1: a check failed. 2: the demo could not run. 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from rich.text import Text

from pidgate.child_python import python_module
from tools.sandbox import guard
from tools.sandbox.demo.plan import MALLORY
from tools.sandbox.jars import NEWEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.pipeline_demo.acts import play as play_act
from tools.sandbox.pipeline_demo.checks import Evidence, rate_of, verify
from tools.sandbox.pipeline_demo.plan import BRIEF_SPARK, EVENTS_TOPIC, Act, Plan
from tools.sandbox.play import Clocked, checks_table, checks_title, console_of_stdout, play

_JOBS_WITHIN_S = 900.0


class _JobFailed(Exception):
    """The jobs failed and have printed the error."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.sandbox.pipeline_demo",
        description="A rogue is observed, detected by the pipeline, and held by its quotas.",
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of each act")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", default=NEWEST, help="Kafka version")
    parser.add_argument("--memory", default="1g", help="heap of Spark")
    parser.add_argument(
        "--report", type=Path, default=Path("pipeline-demo-report.html"), help="where to leave the report"
    )
    return parser


def _play(plan: Plan, clock: Clocked, work: Path, report: Path) -> Evidence:
    clock.say(f"Kafka {plan.version} starts")
    with Cluster(plan.cluster()) as cluster:
        first = Act("observed", work / "observed")
        clock.say(
            "[bold]First act: the gateway observes and refuses no ids. "
            "alice and bob send, mallory opens producers[/]"
        )
        observed = play_act(plan, first, cluster, {"mode": "observe"}, clock.say)
        clock.say("[bold]The pipeline reads the gateway's events[/]")
        findings = _study(plan, cluster, work / "tables")
        file = work / "tables" / "recommended" / "quotas.yaml"
        quotas = yaml.safe_load(file.read_text())["quotas"]
        rate = rate_of(quotas, MALLORY)
        clock.say(
            "[bold]Second act: the same producers; the gateway enforces the recommended quotas "
            f"(mallory: {'no limit' if rate is None else f'{rate:g} new ids per window'})[/]"
        )
        second = Act("enforced", work / "enforced")
        enforced = play_act(plan, second, cluster, quotas, clock.say)
    shutil.copy(work / "tables" / "report.html", report)
    return Evidence(
        observed=observed,
        enforced=enforced,
        findings=findings,
        page=report.read_text(),
        quotas=quotas,
        checked=_check(file, work),
    )


def _study(plan: Plan, cluster: Cluster, tables: Path) -> Sequence[Mapping[str, Any]]:
    """Run all jobs through the command line; return the report's findings. Raises _JobFailed."""
    servers = cluster.bootstrap_servers()
    # Enforcement is never a job's decision, so the demo passes the option as an operator would. Seconds of
    # history are enough for a demo; a real quota needs a week.
    # The rates of mended clients, since caps for now refuse nobody.
    quotas = ["--enforce", "--after-mending", "--least-history", "10s", "--bootstrap-servers", servers]
    taken = ["--kafka", servers, "--topic", EVENTS_TOPIC]
    typed = ["pipeline", "run", "--tables", str(tables), *taken, *quotas, "--json", "--memory", plan.memory]
    # Its progress is shown to the user.
    code, printed = _pidgate(typed, tables.parent / "run.json", stderr=None)
    if code != 0:
        raise _JobFailed(f"pidgate pipeline run failed with exit code {code}; see its output above.")
    findings: Sequence[Mapping[str, Any]] = json.loads(printed)["findings"]
    return findings


def _pidgate(words: Sequence[str], log: Path, stderr: int | None) -> tuple[int, str]:
    """Run the command line in its own process; return its exit code and its output in `log`."""
    with log.open("wb") as out:
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": BRIEF_SPARK}
        process = guard.spawn(python_module("pidgate", *words), stdout=out, stderr=stderr, env=environment)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_JOBS_WITHIN_S)
        finally:
            process.kill()
            code = process.wait()
            guard.ended(process)
    return code, log.read_text(errors="replace")


def _check(file: Path, work: Path) -> str | None:
    code, printed = _pidgate(["check", "--config", str(file)], work / "check.log", stderr=subprocess.STDOUT)
    return None if code == 0 else " ".join(printed.split())[:200]


def _run(plan: Plan, clock: Clocked, work: Path, report: Path) -> bool:
    try:
        evidence = _play(plan, clock, work, report)
    except _JobFailed as failure:
        print(failure, file=sys.stderr)
        return False
    checks = verify(evidence)
    passed = all(check.passed for check in checks)
    clock.console.print()
    clock.console.print(Text(checks_title(checks), style="bold cyan"))
    clock.console.print(checks_table(checks))
    clock.console.print(_verdict(evidence, passed))
    clock.console.print(Text(f"{clock.took_s:.0f} s. Open the report: {report.resolve()}", style="dim"))
    return passed


def _verdict(evidence: Evidence, passed: bool) -> Text:
    if not passed:
        return Text("A check failed.", style="bold red")
    return Text(
        f"Unlimited, mallory left {evidence.observed.mallory_ids_in_log:,} producer ids on the broker. The pipeline "
        f"named her; under the quotas it recommended she left {evidence.enforced.mallory_ids_in_log:,}, and every "
        "record of alice and bob is in the log exactly once.",
        style="bold green",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    plan = Plan(seconds=given.seconds, seed=given.seed, version=given.kafka, memory=given.memory)
    clock = Clocked(console_of_stdout())
    return play(
        "pidgate-pipeline-demo",
        plan.version,
        "logs, journals and tables",
        lambda work: _run(plan, clock, work, given.report),
    )


if __name__ == "__main__":
    sys.exit(main())
