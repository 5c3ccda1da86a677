"""The systemd units: systemd itself reads them, and rates their hardening."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from pidgate.gateway.config.settings import Settings
from tests.support.image import ROOT
from tests.support.release_tools import passes, tool, without

UNITS = ROOT / "deploy" / "systemd"
ONE, TEMPLATE = UNITS / "pidgate.service", UNITS / "pidgate@.service"
MOST_EXPOSED = 1.5
"""Of 10; 9.6 is a unit without any hardening."""


@pytest.mark.parametrize("unit", [ONE, TEMPLATE], ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    # It looks whether the command exists, so one of this machine stands in for it.
    here = unit.read_text().replace("/opt/pidgate/bin/pidgate", sys.executable)
    (tmp_path / unit.name).write_text(here)
    assert passes(tool("systemd-analyze"), "verify", tmp_path / unit.name) == ""


def test_systemd_names_a_wrong_line(tmp_path: Path) -> None:
    wrong = ONE.read_text().replace("/opt/pidgate/bin/pidgate", sys.executable)
    (tmp_path / ONE.name).write_text(wrong.replace("WatchdogSec=10", "WatchdogSec=ten"))
    assert "ignoring: ten" in passes(tool("systemd-analyze"), "verify", tmp_path / ONE.name)


def test_little_is_exposed() -> None:
    for unit in (ONE, TEMPLATE):
        shown = passes(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", unit)
        (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", shown)
        assert float(level) <= MOST_EXPOSED


def test_the_template_differs_only_in_what_each_gateway_has_of_its_own() -> None:
    own = ("#", "Description=", "ExecStart=", "StateDirectory=")
    assert without(ONE.read_text(), own) == without(TEMPLATE.read_text(), own)
    assert "--state-dir /var/lib/pidgate/%i --admin 127.0.0.1:%i" in TEMPLATE.read_text()


def test_a_stop_waits_for_the_drain() -> None:
    drain_s = Settings.model_fields["drain_timeout_ms"].default / 1000
    (stop_s,) = re.findall(r"TimeoutStopSec=(\d+)", ONE.read_text())
    values = yaml.safe_load((ROOT / "deploy/helm/pidgate/values.yaml").read_text())

    assert int(stop_s) > drain_s
    assert values["terminationGracePeriodSeconds"] > drain_s + values["preStopSeconds"]
