"""deploy/prometheus: each alert asks for metrics that exist, has a runbook, and fires when it should."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.support.import_graph import ROOT
from tests.unit.gateway.metrics.test_metrics_page import families

FOLDER = ROOT / "deploy" / "prometheus"
RUNBOOKS = (ROOT / "docs" / "how-to" / "runbooks.md").read_text("utf-8")
METRIC = re.compile(r"pidgate_\w+")


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    return list(group["rules"])


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_asks_for_metrics_that_exist_and_has_a_runbook(alert: dict[str, Any]) -> None:
    asked = {name.removesuffix("_total") for name in METRIC.findall(alert["expr"])}
    assert asked
    assert asked <= families()
    name = alert["alert"]
    assert alert["annotations"]["runbook"] == f"docs/how-to/runbooks.md#{name.lower()}"
    section = RUNBOOKS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"- \*\*(\w+)\*\*: \S", section)
    assert steps[:3] == ["Means", "Check", "Do"]
    assert steps[3:] in ([], ["Undo"])


def test_no_runbook_is_left_over_and_every_alert_has_a_test() -> None:
    named = [alert["alert"] for alert in alerts()]
    assert re.findall(r"\n## (\w+)", RUNBOOKS) == named
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text("utf-8"))["tests"]
    assert [test["name"] for test in tests] == named


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian's package prometheus)")
def test_they_fire_when_they_should_and_only_then() -> None:
    subprocess.run(["promtool", "test", "rules", "alerts_test.yaml"], cwd=FOLDER, check=True, timeout=60)
