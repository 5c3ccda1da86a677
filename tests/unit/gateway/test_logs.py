"""What is logged: one format for everything, constant names, fixed keys."""

import ast
import asyncio
import contextlib
import errno
import io
import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from pidgate.gateway import logs
from pidgate.gateway.admin.hang_watch import HangWatch
from pidgate.gateway.logs import Event
from tests.support.logs_page import PAGE, SOURCES, log_calls, page

METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hook = list(root.handlers), root.level, sys.unraisablehook
    yield
    sys.unraisablehook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_every_event_has_its_keys_and_says_what_it_means() -> None:
    assert all(event.keys and event.means.endswith(".") for event in Event)


def test_the_page_of_the_log_is_the_generated_one() -> None:
    assert page() == PAGE.read_text("utf-8"), "run `make docs`: python -m tests.support.logs_page"


def test_every_event_is_logged_somewhere() -> None:
    named = {
        node.attr
        for file in SOURCES
        if file != Path(logs.__file__)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Event"
    }
    assert named >= set(Event.__members__)


def test_every_call_keeps_to_the_keys_of_its_event() -> None:
    calls = list(log_calls())
    strange = [
        f"{where}: {name} has no key {keyword.arg!r}; add it to its keys or use one of {sorted(Event[name].keys)}"
        for where, call, name in calls
        for keyword in call.keywords
        if keyword.arg is not None and keyword.arg not in Event[name].keys
    ]

    assert len(calls) > 5
    assert strange == []


def test_nothing_is_logged_under_a_name_made_on_the_spot() -> None:
    literal = []
    for file in sorted(SOURCES):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in METHODS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "logger")
                and not (node.args and isinstance(node.args[0], ast.Attribute))
            ):
                literal.append(f"{file.name}:{node.lineno}")
    assert literal == []


def test_json_is_one_object_a_line_with_when_how_bad_and_what_first() -> None:
    stream = io.StringIO()
    logs.configure("info", stream, "json")
    log = logs.logger()
    log.info(Event.LISTENING, bind="127.0.0.1:9292", node_id=None)
    log.debug(Event.CONNECTION_OPENED, address="x")
    log.warning(Event.CONFIG_WARNING, text=Path("/ü"))

    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert list(first)[:3] == ["timestamp", "level", "event"]
    assert (first["level"], first["event"], first["bind"]) == ("info", "listening", "127.0.0.1:9292")
    assert (second["level"], second["text"]) == ("warning", "/ü")


def test_the_level_changes_at_run_time() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream, "json")
    log = logs.logger().bind()
    log.info(Event.LISTENING, bind="first")
    logs.set_level("info")
    log.info(Event.LISTENING, bind="second")
    assert not logs.writes_debug()
    logs.set_level("error")
    log.warning(Event.LISTENING, bind="third")
    assert [json.loads(line)["bind"] for line in stream.getvalue().splitlines()] == ["second"]


def test_the_console_shows_no_local_variables() -> None:
    stream = io.StringIO()
    logs.configure("info", stream, "console")
    password = "hunter2"
    try:
        raise ValueError(str(len(password)))
    except ValueError:
        logs.logger().error(Event.UNEXPECTED_ERROR, exc_info=True)

    text = stream.getvalue()
    assert "unexpected_error" in text
    assert "ValueError: 7" in text
    # The line of source is shown where it fails; the value never is.
    assert "hunter2" not in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_hang_is_logged_in_both_formats(log_format: logs.Format) -> None:
    """The console's renderer has a way of its own with a key called `stack`."""
    stream = io.StringIO()
    logs.configure("info", stream, log_format)
    with socket.socket() as listening:
        stack = HangWatch(listening, None)._stack()
    logs.logger().error(Event.EVENT_LOOP_HANGS, seconds=5, stack=stack, remedy="report it")
    assert "test_logs.py" in stream.getvalue()


class Disk(io.StringIO):
    """It may be full; then a line is taken, and fails when it is flushed, as with a file."""

    is_full = False

    def flush(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


@contextlib.contextmanager
def without_room(stream: TextIO) -> Iterator[TextIO]:
    """Close it in the end, which fails once more."""
    yield stream
    with contextlib.suppress(OSError):
        stream.close()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_that_cannot_be_written_raises_nothing(log_format: logs.Format) -> None:
    with without_room(open("/dev/full", "w")) as full:
        logs.configure("info", full, log_format)
        logs.logger().error(Event.STATE_NOT_SAVED, cause="no room")
        logging.getLogger("asyncio").error("a task failed")
        logs.log_mistake("here")
        with pytest.raises(OSError, match="No space left"):
            full.flush()
    logs.logger().error(Event.UNEXPECTED_ERROR, reason="the stream is closed")


def test_the_next_line_that_is_written_says_how_many_were_not() -> None:
    disk = Disk()
    logs.configure("info", disk, "json")
    log = logs.logger()
    disk.is_full = True
    log.info(Event.LISTENING)
    logging.getLogger("asyncio").error("a task failed")
    disk.is_full = False
    disk.seek(0)
    disk.truncate()
    log.info(Event.LISTENING)
    log.info(Event.LISTENING)
    told = [json.loads(line).get("lines_not_written") for line in disk.getvalue().splitlines()]
    assert told == [2, None]


STEERING = "joe\x1b[2J\x00\x9b31m\u202e\ud800\nforged"
"""What a client may choose for its name: it clears a screen, colours, turns around, and begins a line."""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_that_a_client_chooses_steers_a_terminal(log_format: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure("info", stream, log_format)
    logs.logger().info(Event.CONNECTION_CLOSED, client_id=STEERING, user="zoë")
    logging.getLogger("asyncio").error("of %s", STEERING)
    try:
        raise ValueError(STEERING)
    except ValueError:
        logs.logger().error(Event.UNEXPECTED_ERROR, exc_info=True)
    text = stream.getvalue()
    assert text.replace("\n", "").isprintable()
    assert "user=zoë" in text or '"zoë"' in text
    beginnings = [line[:6] for line in text.splitlines()]
    assert "forged" not in beginnings[:2]


def test_what_cannot_be_raised_is_logged_once_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Falls:
        def __del__(self) -> None:
            raise LookupError("in a callback")

    monkeypatch.setattr(logs, "_mistakes", logs.LogLimit())
    monkeypatch.setattr(logs, "monotonic_s", lambda: 7.0)
    stream = io.StringIO()
    logs.configure("info", stream, "json")
    for _ in range(20):
        Falls()
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["event"], line["reason"]) == ("unexpected_error", "LookupError where it cannot be raised")
    assert "LookupError: in a callback" in line["exception"]
    assert capsys.readouterr().err == ""


def test_work_that_fails_is_logged_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    logs.configure("info", stream, "json")
    monkeypatch.setattr(logs, "ANEW_S", 0.0)
    monkeypatch.setattr(logs, "_mistakes", logs.LogLimit())
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ValueError("a mistake")

    asyncio.run(logs.begun_anew("here", work))
    assert begun == 3
    asyncio.run(logs.guarded("there", failing()))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["reason"] for line in lines] == [
        "a task has failed and restarts: here",
        "a task has ended: there",
    ], "of one place a line a second"


async def failing() -> None:
    raise ValueError("a mistake")
