"""Reports of tests on their way from a process that runs them to the one that prints them."""

from typing import Any

import execnet


def sendable(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report as it is if it can be sent, else with the parts that cannot be as text."""
    try:
        execnet.dumps(report)
    except execnet.DumpError:
        return {name: _sendable(value) for name, value in report.items()}
    return report


def _sendable(part: Any) -> Any:
    match part:
        case str():
            return part.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair has no UTF-8
        case dict():
            return {_sendable(key): _sendable(value) for key, value in part.items()}
        case list() | tuple():
            return [_sendable(value) for value in part]
        case None | bool() | bytes():
            return part
        case int() | float() if type(part) in (int, float):
            return part
    return repr(part)
