"""What gateways tell of quotas, in the words and columns of a terminal. Pure: the time zone is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final

from pidgate import units
from pidgate.quota.settings import rate_milli
from pidgate.units import moment, number, printable

DEFAULT_USER: Final = "(default)"
ALL_USERS: Final = "(all users)"
RATE: Final = "producer_ids_rate"
MODE: Final = "mode"

_SOURCES: Final = {"file": "file", "run_time": "run time", "nothing": "not set"}


def nothing_said(user: str | None) -> str:
    """Of a user the default user's rate holds then; of the default user itself there is no limit."""
    return "no limit" if user is None else "not set"


def whom(user: str | None, setting: str = RATE) -> str:
    if user is None:
        return ALL_USERS if setting == MODE else DEFAULT_USER
    return printable(user)


def value(setting: str, told: float | str | None, window_ms: int, nothing: str = "no limit") -> str:
    """100 per 1h, blocked; or a mode. `nothing`: in place of a rate that is not said."""
    if setting == MODE:
        return "not set" if told is None else str(told)
    if told is None:
        return nothing
    if told == 0:
        return "0 (blocked)"
    return f"{units.show_milli(rate_milli(float(told)))} per {units.show_duration(window_ms)}"


def bytes_per_s(told: int) -> str:
    return f"{units.show_size(told)} per s"


def where_from(said: Mapping[str, Any], zone: tzinfo | None) -> str:
    """file; run time, until 16:05; and whom it was said of, when it was not the user."""
    text = _SOURCES.get(said["source"], str(said["source"]))
    if said["until_wall_ms"] is not None:
        text += f", until {moment(said['until_wall_ms'], zone)}"
    elif said["source"] == "run_time" and said["value"] is None:
        text += " (removed)"
    if said["of"] != "user":
        text += {"default": ", of the default user", "all": ", of all users"}[said["of"]]
    return text


def who_and_when(said: Mapping[str, Any], zone: tzinfo | None) -> str:
    """cli:root at 2026-11-21 14:02; nothing for what a file says."""
    if said["set_wall_ms"] is None:
        return ""
    by = printable(said["set_by"]) or "somebody"
    return f"{by} at {moment(said['set_wall_ms'], zone)}"


def tokens(entry: Mapping[str, Any]) -> str:
    """41.5 of 100; nothing without a limit."""
    left, full = entry.get("tokens"), entry.get("full_tokens")
    return "" if left is None or full is None else f"{number(left)} of {number(full)}"


def kept(told: Mapping[str, Any], topic: str | None) -> str:
    """Where a change is kept, who has it, and what to do when that is not all of them."""
    gateway = told["gateway"]
    if told["kept"] == "topic":
        return f"{gateway}: in force; kept in the topic{f' {topic}' if topic else ''}: every gateway has it"
    place = "in its state directory" if told["kept"] == "state_dir" else "in its memory, until it ends"
    later = f"; the topic {topic} gets it when it can be written again" if topic else ""
    return (
        f"{gateway}: in force; kept {place}: only this gateway has it{later}\n"
        "  for the others: repeat it with --admin HOST:PORT for each"
    )
