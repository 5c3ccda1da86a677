"""The verdict in two sentences, and the next steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.sandbox.demo.evidence import Evidence, Half
from tools.sandbox.demo.findings import (
    bystander_saw,
    ids_in_log,
    mallory_saw,
    states_in_log,
)
from tools.sandbox.demo.plan import ALICE, BOB, MALLORY, Plan
from tools.sandbox.play import Check


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the demo."""

    passed: bool
    sentences: tuple[str, str]
    next_command: str
    next_shows: str


def conclude(plan: Plan, evidence: Evidence, checks: Sequence[Check], logs: Path) -> Outcome:
    """Return the outcome. `logs`: directory of the logs if a check failed."""
    passed = all(check.passed for check in checks)
    if passed:
        next_command = f"make demo QUOTA=off ROGUES={plan.rogues} SEED={plan.seed}"
        next_shows = "the same with a gateway without limits: the checks and the exit code fail"
    elif plan.quota is None:
        next_command = f"make demo ROGUES={plan.rogues} SEED={plan.seed}"
        next_shows = "the same with a quota of 100 new producer ids an hour for mallory"
    else:
        next_command, next_shows = f"ls {logs}", "the logs and journals of this run"
    sentences = (_directly(plan, evidence.direct), _through(plan, evidence.through_gateway))
    return Outcome(passed, sentences, next_command, next_shows)


def _directly(plan: Plan, direct: Half) -> str:
    broker = f"Kafka {plan.version} with a heap of {plan.heap_mb} MB"
    ids = f"{ids_in_log(direct)[MALLORY]:,} producer ids of mallory ({states_in_log(direct):,} states)"
    if direct.died:
        return f"Directly, {broker} died after {direct.attack_s:.1f} s and {ids}."
    return f"Directly, {broker} survived {direct.attack_s:.1f} s and {ids}."


def _through(plan: Plan, through: Half) -> str:
    if through.gateway is None:
        return "There was no gateway."
    way = "a gateway without limits" if plan.quota is None else "the gateway"
    if plan.fuse:
        way = "a gateway that observes, with a fuse,"
    if through.died:
        return (
            f"Through {way} it died, too, after {through.attack_s:.1f} s and "
            f"{ids_in_log(through)[MALLORY]:,} ids."
        )
    saw = mallory_saw(through)
    bystanders = [bystander_saw(through, user) for user in (ALICE, BOB)]
    good = sum(bystander.acknowledged for bystander in bystanders)
    sent = sum(bystander.sent for bystander in bystanders)
    once = all(bystander.is_in_log_once for bystander in bystanders)
    return (
        f"Through {way} it lives after {through.attack_s:.1f} s of the same: {ids_in_log(through)[MALLORY]:,} of "
        f"mallory's ids were let in and {saw.refused:,} refused, and {good:,} of {sent:,} records of alice and bob "
        f"were acknowledged{' and are in the log exactly once' if once else ''}."
    )
