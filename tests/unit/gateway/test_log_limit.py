"""No log line may be had at will: what a client can provoke is behind the one limit."""

import ast
from pathlib import Path

import pytest
import structlog

from pidgate.gateway.logs import KEYS_KEPT, MOST_LINES_A_SECOND, QUIET_MS, LogLimit, log_mistake
from tests.support.rules import rule

GATEWAY = Path(__file__).resolve().parents[3] / "pidgate" / "gateway"

PROVOKED_BY_CLIENTS = ("proxy", "cluster", "metrics", "logs.py", "admin/http_log.py")
"""Rooms in which every line above debug level is asked for at a LogLimit."""

NOT_AT_WILL = {
    "cluster/nodes.py": "once in a process: that it holds as many brokers as it may",
    "cluster/probe.py": "the probe asks every few seconds, and logs changes",
    "metrics/otlp.py": "one export an interval, and it logs changes",
    "proxy/listeners.py": "once for each broker that comes",
}


def unlimited(source: str) -> list[str]:
    """The functions that log above debug level and do not ask a limit."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            calls = {
                (getattr(call.func.value, "id", ""), call.func.attr)
                for call in ast.walk(function)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            }
            logs = {name for owner, name in calls if owner == "log"} - {"debug"}
            if logs and not any(name == "take" for _, name in calls):
                found.append(function.name)
    return found


def callers_ask(source: str, function: str) -> bool:
    """Return whether every call of this method stands behind `take`."""
    return f"self.{function}(" in source and ".take(" in source


@rule("Log lines that a client can cause are rate limited.", "memory")
def test_every_line_that_a_client_can_provoke_is_behind_the_limit() -> None:
    found = {}
    for room in PROVOKED_BY_CLIENTS:
        for path in [GATEWAY / room] if room.endswith(".py") else (GATEWAY / room).rglob("*.py"):
            name, source = str(path.relative_to(GATEWAY)), path.read_text("utf-8")
            if name not in NOT_AT_WILL:
                found[name] = [line for line in unlimited(source) if not callers_ask(source, line)]
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_a_line_without_limit_is_noticed() -> None:
    assert unlimited("def close(self):\n    log.warning(Event.CONNECTION_CLOSED)\n") == ["close"]
    assert not unlimited("def close(self):\n    log.debug(Event.CONNECTION_CLOSED)\n")


def test_made_up_keys_do_not_get_round_it() -> None:
    limit = LogLimit()
    lines = sum(limit.take(f"user-{n}", 5) is not None for n in range(3 * KEYS_KEPT))
    assert lines == MOST_LINES_A_SECOND
    assert len(limit._left_out) <= KEYS_KEPT
    assert limit.take("alice", 5 + QUIET_MS) is not None


def test_a_mistake_of_ours_is_one_traceback_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.gateway.logs._mistakes", LogLimit())
    monkeypatch.setattr("pidgate.gateway.logs.monotonic_s", lambda: 7.0)
    with structlog.testing.capture_logs() as lines:
        for _ in range(100):
            try:
                raise KeyError("sticky")
            except KeyError:
                log_mistake("requests", user="mallory")
    assert [line["event"] for line in lines] == ["unexpected_error"]
