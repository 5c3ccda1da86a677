"""`python -m tools.sandbox.demo`: play both halves, verify, show; the exit code is the result.

0: every check passed. 1: a check failed. 2: the demo could not run. 3: a wait ended without progress. 130: Ctrl-C.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from rich.console import Console

from tools.sandbox.demo import screen, summary
from tools.sandbox.demo.evidence import Evidence
from tools.sandbox.demo.halves import play_direct, play_through_gateway
from tools.sandbox.demo.plan import Plan
from tools.sandbox.demo.stage import Stage
from tools.sandbox.demo.verdict import conclude
from tools.sandbox.demo.verifier import verify
from tools.sandbox.jars import NEWEST
from tools.sandbox.play import console_of_stdout, keep_brokers_in_memory, play

# Two brokers' logs and indexes, with a margin.
_ROOM_BYTES = 1 << 30


def _quota(text: str) -> Fraction | None:
    if text.lower() == "off":
        return None
    try:
        quota = Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of producer ids per hour nor 'off'"
        ) from error
    if quota < 0:
        raise argparse.ArgumentTypeError("a quota cannot be below 0; 0 lets no new producer id in")
    return quota


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.sandbox.demo",
        description="A broker dies of producer ids, then lives behind the gateway.",
    )
    parser.add_argument(
        "--quota", type=_quota, default=Fraction(100), help="mallory's new producer ids an hour, or 'off'"
    )
    parser.add_argument("--fuse", action="store_true", help="observe, with a fuse")
    parser.add_argument("--rogues", type=_at_least_one, default=4, help="mallory's processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", default=NEWEST, help="Kafka version")
    parser.add_argument("--summary", type=Path, default=Path("demo-summary.json"), help="where to write")
    return parser


def _play(plan: Plan, console: Console, work: Path) -> Evidence:
    began_s = time.monotonic()
    with Stage(console) as stage:
        baseline, delay_ms, direct = play_direct(plan, stage, work / "direct")
        through = play_through_gateway(plan, stage, work / "gateway", direct.attack_s)
    return Evidence(
        baseline=baseline,
        baseline_delay_ms=delay_ms,
        direct=direct,
        through_gateway=through,
        total_s=time.monotonic() - began_s,
    )


def _run(plan: Plan, console: Console, work: Path, summary_path: Path) -> bool:
    evidence = _play(plan, console, work)
    checks = verify(plan, evidence)
    outcome = conclude(plan, evidence, checks, work)
    summary.write(summary_path, summary.summarize(plan, evidence, checks, outcome))
    screen.show(console, plan, evidence, checks, outcome)
    console.print(
        f"[dim]{evidence.total_s:.0f} s; the same with sources in {summary_path}[/]", highlight=False
    )
    return outcome.passed


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    plan = Plan(quota=given.quota, fuse=given.fuse, rogues=given.rogues, seed=given.seed, version=given.kafka)
    console = console_of_stdout()

    def run(work: Path) -> bool:
        # The work directory exists already, so logs and journals stay on disk.
        keep_brokers_in_memory(_ROOM_BYTES)
        return _run(plan, console, work, given.summary)

    return play("pidgate-demo", plan.version, "logs and journals", run)


if __name__ == "__main__":
    sys.exit(main())
