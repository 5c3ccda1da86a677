"""Write docs/reference/logs.md from gateway/logs.py: `python -m tests.support.logs_page` (`make docs`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pidgate.gateway import logs
from pidgate.gateway.logs import Event
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "logs.md"
PACKAGE: Final = Path(logs.__file__).parents[1]
SOURCES: Final = [
    file for room in ("gateway", "cli", "load", "who") for file in (PACKAGE / room).rglob("*.py")
]
LEVELS: Final = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
}
"""Method of a logger -> the level of its lines."""

_HEAD: Final = """\
# Log lines

For operators who search the gateway's log or alert on it. The page is generated from `gateway/logs.py`. Names and \
keys of events [are stable](releases.md#what-is-held-stable).

Lines go to stderr: JSON, one object a line, or text on a terminal. Every line has `timestamp` (UTC), `level` and \
`event`. `suppressed_count` is the number of similar lines left out since the last one: lines that clients can cause \
are limited to 50 a second, and one a second for each user or cause. `remedy` says what to do. Keys of a \
connection: `connection_id`, `listener`, `address`, `user`, `client_id`, `node_id`.

`log_level: debug` adds a line for each connection; it needs no restart.

| event | level | what has happened | keys |
| --- | --- | --- | --- |
"""
_CONNECTION: Final = frozenset({"connection_id", "listener", "address", "user", "client_id", "node_id"})


def log_calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Yield (place, call, name of the Event) of every call that logs one."""
    for file in sorted(SOURCES):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and node.args:
                first = node.args[0]
                if (
                    isinstance(first, ast.Attribute)
                    and isinstance(first.value, ast.Name)
                    and first.value.id == "Event"
                ):
                    yield f"{file.name}:{node.lineno}", node, first.attr


def page() -> str:
    levels: dict[str, set[str]] = {}
    for _, call, name in log_calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS:
            levels.setdefault(name, set()).add(LEVELS[call.func.attr])
    rows = []
    for event in sorted(Event):
        # Two topics share the code that logs their events, so no call names these.
        default = "warning" if event.name.endswith(("_UNAVAILABLE", "_UNSAFE")) else "info"
        level = ", ".join(sorted(levels.get(event.name, {default}), key=list(LEVELS.values()).index))
        keys = event.keys - _CONNECTION
        of_connection = ["those of a connection"] * (event.keys >= _CONNECTION)
        named = sorted(event.keys if not of_connection else keys)
        shown = ", ".join([*of_connection, *(f"`{key}`" for key in named)])
        rows.append(f"| `{event}` | {level} | {event.means} | {shown} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
