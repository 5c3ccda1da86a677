"""Gateways that share a port belong to one fleet."""

import subprocess
import sys
from pathlib import Path

import pytest

from pidgate.gateway.errors import CannotStart
from pidgate.gateway.process.port_lock import PortLocks, PortOfAnotherFleet, user_directory

OURS = {"events.topic": "__pidgate_events", "cluster.bootstrap_servers": ["k1:9092"]}
THEIRS = {"events.topic": "__pidgate_events", "cluster.bootstrap_servers": ["other:9092"]}


def test_gateways_of_one_fleet_share_a_port(tmp_path: Path) -> None:
    first, second = PortLocks(tmp_path / "ports"), PortLocks(tmp_path / "ports")
    first.hold([9292, 9300], OURS)
    second.hold([9292, 9300], OURS)
    first.release()
    second.release()


def test_a_gateway_of_another_cluster_does_not_start(tmp_path: Path) -> None:
    first, second = PortLocks(tmp_path / "ports"), PortLocks(tmp_path / "ports")
    first.hold([9292], OURS)
    with pytest.raises(PortOfAnotherFleet, match=r"port 9292.*other:9092"):
        second.hold([9292], THEIRS)
    second.hold([9293], THEIRS)


def test_the_last_of_a_fleet_gives_the_port_up(tmp_path: Path) -> None:
    first, second, third = (PortLocks(tmp_path / "ports") for _ in range(3))
    first.hold([9292], OURS)
    second.hold([9292], OURS)
    first.release()
    with pytest.raises(PortOfAnotherFleet):
        third.hold([9292], THEIRS)
    second.release()
    third.hold([9292], THEIRS)


def test_a_killed_gateway_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from pidgate.gateway.process.port_lock import PortLocks\n"
        f"locks = PortLocks(Path(sys.argv[1])); locks.hold([9292], {OURS!r}); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "ports")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "held\n"
        with pytest.raises(PortOfAnotherFleet):
            PortLocks(tmp_path / "ports").hold([9292], THEIRS)
        killed.kill()
        killed.wait()
    PortLocks(tmp_path / "ports").hold([9292], THEIRS)


@pytest.mark.parametrize("kind", ["link", "writable by others", "file"])
def test_a_directory_of_somebody_else_is_not_trusted(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "ports"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        directory.write_text("")
    else:
        directory.mkdir()
        directory.chmod(0o777)
    with pytest.raises(CannotStart, match="port locks"):
        PortLocks(directory).hold([9292], OURS)


def test_the_directory_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert user_directory() == tmp_path / "pidgate-ports"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert "pidgate-ports-" in user_directory().name
