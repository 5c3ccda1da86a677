"""A finding: the outcome of one check, with cause, remedy and a page of the docs. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNASKED = "unasked"
    """The check could not be made."""


class Start(StrEnum):
    """The page of each check before the start."""

    FILE = "docs/how-to/doctor.md#the-file"
    NAMES = "docs/how-to/doctor.md#names"
    PORTS = "docs/how-to/doctor.md#ports"
    NODE_PORTS = "docs/how-to/doctor.md#ports-of-brokers"
    OPEN_FILES = "docs/how-to/doctor.md#open-files"
    TLS = "docs/how-to/doctor.md#certificates"
    BROKERS = "docs/how-to/doctor.md#brokers"
    LOGIN = "docs/how-to/doctor.md#the-login-of-the-own-client"
    RIGHTS = "docs/how-to/doctor.md#rights-on-the-gateways-topics"
    TOPICS = "docs/how-to/doctor.md#settings-of-the-gateways-topics"
    EXPIRATION = "docs/how-to/doctor.md#how-long-brokers-remember"
    ADMIN = "docs/how-to/doctor.md#a-gateway-that-does-not-answer"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check. `title`: what holds if it is OK, with measurements; `text`: the cause if it is not."""

    section: str
    title: str
    page: str
    state: State = State.OK
    text: str = ""
    remedy: str = ""


class Checks:
    """Collects the findings of one section. A check without a problem is OK."""

    def __init__(self, section: str) -> None:
        self._section = section
        self.findings: list[Finding] = []

    def add(self, title: str, page: str, problems: Iterable[tuple[State, str, str]] = ()) -> bool:
        """Add a finding for each problem (state, text, remedy), or one that is OK. Returns whether there was none."""
        found = [Finding(self._section, title, page, *problem) for problem in problems]
        self.findings += found or [Finding(self._section, title, page)]
        return not found


def failed(text: str, remedy: str = "") -> tuple[State, str, str]:
    return State.FAILED, text, remedy


def warning(text: str, remedy: str = "") -> tuple[State, str, str]:
    return State.WARNING, text, remedy


def unasked(text: str, remedy: str = "") -> tuple[State, str, str]:
    return State.UNASKED, text, remedy


MARKS = {State.OK: "√", State.WARNING: "‼", State.FAILED: "\N{MULTIPLICATION SIGN}", State.UNASKED: "?"}
PLAIN_MARKS = {State.OK: "ok  ", State.WARNING: "warn", State.FAILED: "FAIL", State.UNASKED: "?   "}


def lines(findings: Iterable[Finding], *, is_plain: bool) -> Iterator[str]:
    """Yield the findings for a terminal. `is_plain`: it shows ASCII only."""
    section, marks = "", PLAIN_MARKS if is_plain else MARKS
    for finding in findings:
        if finding.section != section:
            section = finding.section
            yield section
        yield f"{marks[finding.state]} {finding.title}"
        if finding.state is State.OK:
            continue
        yield f"    {finding.text}"
        if finding.remedy:
            yield f"    to mend it: {finding.remedy}"
        yield f"    see {finding.page}"


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0, 1 if a check failed, or 2 if one could not be made."""
    states = {finding.state for finding in findings}
    return 2 if State.UNASKED in states else int(State.FAILED in states)
