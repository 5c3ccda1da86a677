"""A short soak with a leak that was put there: the statistic of the long one catches it, and all else is good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.plan import SoakPlan
from tests.soak.running import soak

pytestmark = [pytest.mark.faults, pytest.mark.slow]

LEAK_MB_PER_H = 1_500
"""So much that minutes show it beside a gateway that is still warming up."""


@pytest.mark.timeout(600)
def test_an_injected_leak_is_caught(tmp_path: Path) -> None:
    said: list[str] = []
    assert not soak(SoakPlan(hours=0.06, leak_mb_per_h=LEAK_MB_PER_H, folder=tmp_path), said.append)
    print("\n".join(said))
    (written,) = tmp_path.glob("*.json")
    found = json.loads(written.read_text())
    rss = found["growth_per_h"]["rss_mb"]
    assert not rss["is_good"]
    assert 0.7 * LEAK_MB_PER_H < rss["slope"] < 1.5 * LEAK_MB_PER_H
    # Nothing was lost or failed beside it.
    assert found["problems"] == []
    assert len(next(tmp_path.glob("*.csv")).read_text().splitlines()) > 100
