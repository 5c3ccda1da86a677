"""A gateway whose event loop hangs: /livez says so, and systemd's watchdog gets no message."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

from pidgate.gateway.admin.hang_watch import HANGS_AFTER
from tests.support.rules import rule
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess

ROOT = Path(__file__).parents[4]
NOBODY = "127.0.0.1:1"
HANG_S = 4.0
CHECK_S = 0.4
"""The loop hangs after HANGS_AFTER times this."""


def livez(gateway: GatewayProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{gateway.admin_url}/livez", timeout=1) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def received(systemd: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(systemd.recv(100, socket.MSG_DONTWAIT).decode())
        except BlockingIOError:
            return found


@rule(
    "A gateway whose event loop hangs says so at /livez, and systemd's watchdog gets no message.", "failures"
)
def test_a_loop_that_hangs_is_said_by_a_thread(tmp_path: Path) -> None:
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(str(tmp_path / "notify"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "HANG_S": str(HANG_S),
        "HANG_CHECK_S": str(CHECK_S),
    }
    gateway = GatewayProcess(NOBODY, module="tests.support.hanging", environment=environment)
    with closing(systemd):
        try:
            gateway.start(wait=False)
            until(lambda: livez(gateway) == (200, "alive\n"))
            until(lambda: "READY=1" in received(systemd))
            until(lambda: "WATCHDOG=1" in received(systemd))
            gateway.signal(signal.SIGUSR1)
            began_s = time.monotonic()
            until(lambda: livez(gateway)[0] == 503, HANG_S)
            assert time.monotonic() - began_s > HANGS_AFTER * CHECK_S - 0.2
            received(systemd)
            assert "the event loop hangs" in livez(gateway)[1]
            assert gateway.status("/readyz") == 503
            assert received(systemd) == []
            (line,) = gateway.log_events("event_loop_hangs")
            assert "hanging.py" in line["stack"].splitlines()[-1], "it names where"
            until(lambda: livez(gateway) == (200, "alive\n"))
            until(lambda: "WATCHDOG=1" in received(systemd))
            assert gateway.stop() == 0
            assert "STOPPING=1" in received(systemd)
        finally:
            gateway.__exit__(None, None, None)
