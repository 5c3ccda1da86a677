"""A small crowd through a reload, a restore and a fail-over; `make crowd` is the large one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crowd.plan import CrowdPlan
from tests.crowd.running import play

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_nothing_is_lost_nobody_within_its_quota_refused_and_rogues_are_held(tmp_path: Path) -> None:
    said: list[str] = []
    plan = CrowdPlan(minutes=6, users=100, rogues=4, every_s=5.0)
    is_good = play(plan, tmp_path, said.append)
    print("\n".join(said))
    (written,) = tmp_path.glob("*.json")
    found = json.loads(written.read_text())
    assert found["problems"] == []
    assert is_good
    assert found["records"]["acknowledged"] > 20_000
    # The reload, the restore and the fail-over have been.
    assert [phase["phase"] for phase in found["phases"][2:]] == ["reload", "restore", "fail-over"]
