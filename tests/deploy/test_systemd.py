"""The systemd units: systemd itself reads them, and rates their hardening."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from pidgate.gateway.config.settings import Settings
from tests.support.image import ROOT
from tests.support.release_tools import passes, tool, without
from tools.sandbox.ports import free_port

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


def calls_allowed(name: str) -> set[str]:
    """Return the system calls of a group of systemd's, those of the groups in it included."""
    listed = passes(tool("systemd-analyze"), "syscall-filter", name).splitlines()[1:]
    words = [line.strip() for line in listed if line.strip() and not line.strip().startswith("#")]
    return {call for word in words for call in (calls_allowed(word) if word.startswith("@") else [word])}


def test_a_gateway_makes_no_call_that_the_unit_forbids(tmp_path: Path) -> None:
    trace, admin = tmp_path / "trace", free_port()
    options = [
        "--bind",
        f"127.0.0.1:{free_port()}",
        "--admin",
        f"127.0.0.1:{admin}",
        "--state-dir",
        str(tmp_path),
    ]
    command = [tool("strace"), "-f", "-qq", "-o", str(trace), sys.executable, "-m", "pidgate", "run"]
    with subprocess.Popen([*command, "--bootstrap-servers", "127.0.0.1:1", *options], cwd=ROOT) as gateway:
        while gateway.poll() is None and not answers(admin):
            time.sleep(0.2)
        # A strace that is told to end lets the gateway go on.
        (child,) = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
    lines = [line.partition(" ")[2].strip() for line in trace.read_text().splitlines()]
    made = {line.partition("(")[0] for line in lines if re.match(r"[a-z_0-9]+\(", line)}
    families = {family for line in lines for family in re.findall(r"^socket\((AF_\w+)", line)}

    assert "epoll_create1" in made
    assert made <= calls_allowed("@system-service") - calls_allowed("@privileged")
    assert families <= {"AF_INET", "AF_INET6", "AF_UNIX"}
    # MemoryDenyWriteExecute
    assert [line for line in lines if "PROT_WRITE|PROT_EXEC" in line] == []


def answers(admin: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/livez", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


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
