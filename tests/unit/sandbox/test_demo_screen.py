"""What people see: the last screen in its order, the live picture, and plain lines where there is no terminal."""

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.demo_evidence import PLAN, good_evidence, mallory
from tools.sandbox.demo import screen
from tools.sandbox.demo.evidence import Evidence
from tools.sandbox.demo.plan import ALICE, BOB, Plan
from tools.sandbox.demo.stage import Scene, Stage
from tools.sandbox.demo.verdict import conclude
from tools.sandbox.demo.verifier import verify
from tools.sandbox.demo.watch import Point


def shown(plan: Plan, evidence: Evidence) -> str:
    output = io.StringIO()
    checks = verify(plan, evidence)
    outcome = conclude(plan, evidence, checks, Path("/kept"))
    screen.show(Console(file=output, width=200), plan, evidence, checks, outcome)
    return output.getvalue()


def scene(*, alive: bool = True) -> Scene:
    return Scene(
        title="direct, no gateway",
        of_s=20.0,
        points=[Point(0.0, 40, 0, True), Point(9.0, 78, 1_234, alive)],
        bystanders={ALICE: Counter(sent=10, acknowledged=9), BOB: Counter(sent=8, acknowledged=8)},
        mallory=[mallory()],
        crash_loop=Counter(sent=4, acknowledged=3),
        heap_mb=80,
    )


def test_a_failed_check_is_marked_and_the_next_command_shows_the_logs() -> None:
    evidence = good_evidence()
    evidence.through_gateway.broker.exit_code = 3

    text = shown(PLAN, evidence)

    assert "Checks: 16 of 18" in text
    assert text.count("FAIL") == 2
    assert "ls /kept" in text
    assert "it died, too" in text


@pytest.mark.parametrize(("alive", "word"), [(True, "alive"), (False, "DEAD")])
def test_the_live_picture_shows_broker_and_people(alive: bool, word: str) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=110, height=40, legacy_windows=False)
    stage = Stage(console)

    with stage:
        stage.show(scene(alive=alive))

    text = output.getvalue()
    assert word in text
    assert "direct, no gateway" in text
    assert "78 of 80 MB" in text
    assert "9 acknowledged of 10 sent" in text
    assert "crashed 4 times" in text
