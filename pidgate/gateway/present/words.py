"""The admin API's answers about quotas as text and columns for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from pidgate import units
from pidgate.quota.entities import shown
from pidgate.quota.settings import rate_milli
from pidgate.units import moment, number, printable

DEFAULT_USER: Final = "(default)"
ALL_USERS: Final = "(all users)"
RATE: Final = "producer_ids_rate"
TRANSACTIONAL_RATE: Final = "transactional_ids_rate"
STATES_RATE: Final = "producer_states_rate"
RATES: Final = (RATE, TRANSACTIONAL_RATE, STATES_RATE)
_TOKENS: Final = {RATE: "tokens", TRANSACTIONAL_RATE: "transactional_tokens", STATES_RATE: "states_tokens"}
BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
MODE: Final = "mode"

GRACE: Final = "grace"
_TRANSACTIONAL: Final = "but those of transactional producers (producer_ids.transactional: observe)"
_SOURCES: Final = {"file": "file", "run_time": "run time", "nothing": "not set"}


def unset(user: str | None) -> str:
    """Describe a missing value: a user then has the default user's rate, and the default user has no limit."""
    return "no limit" if user is None else "not set"


def entity(user: str | None, setting: str = RATE) -> str:
    if user is None:
        return DEFAULT_USER if setting in (*RATES, *BYTE_RATES) else ALL_USERS
    return shown(user)


def value(setting: str, given: float | str | None, window_ms: int, nothing: str = "no limit") -> str:
    """Describe a value: 100 per 1h, blocked, or a mode. `nothing` is the text for a rate that is not set."""
    if setting == MODE:
        return "not set" if given is None else str(given)
    if given is None:
        return nothing
    if setting in BYTE_RATES:
        return bytes_per_s(round(float(given)))
    if setting == GRACE:
        return f"{number(float(given))} x the rate" if given else "off"
    if given == 0:
        return "0 (blocked)"
    return f"{units.show_milli(rate_milli(float(given)))} per {units.show_duration(window_ms)}"


def bytes_per_s(rate: int) -> str:
    return f"{units.show_size(rate)} per s"


def id_blocks(begun_1h: int, years_left: int | None) -> str:
    """Describe the use of producer ids: 12 id blocks/1h, over 1 M years left."""
    text = f"{units.counted(begun_1h, 'id block')}/1h"
    if years_left is None:
        return text
    years = "over 1 M" if years_left > 1_000_000 else number(years_left)
    return f"{text}, {years} years left"


def source(origin: Mapping[str, Any]) -> str:
    """Describe the source of a value: file; run time, until 16:05; and its entity, unless that is the user."""
    text = _SOURCES.get(origin["source"], str(origin["source"]))
    if origin["until_wall_ms"] is not None:
        text += f", until {moment(origin['until_wall_ms'])}"
    elif origin["source"] == "run_time" and origin["value"] is None:
        text += " (removed)"
    if origin["of"] != "user":
        text += {"default": ", of the default user", "all": ", of all users"}[origin["of"]]
    return text


def set_by(origin: Mapping[str, Any]) -> str:
    """Describe the author of a value: cli:root at 2026-11-21 14:02; nothing for the file's."""
    if origin["set_wall_ms"] is None:
        return ""
    by = printable(origin["set_by"]) or "somebody"
    return f"{by} at {moment(origin['set_wall_ms'])}"


def when_refused(entry: Mapping[str, Any]) -> str:
    """Say from when on a user's new producer ids are refused, or why not and what changes that."""
    found, user = entry["not_refused"], entry["user"]
    why, mode = found["why"], entry["effective_mode"]
    name = "any other user" if user is None else shown(user)
    option = "--all" if user is None else f"--user {quoted(user)}"
    if why is None:
        rate = entry[RATE if user is None else "effective_rate"]["value"]
        text = f"In force now: {'every' if rate == 0 else 'each'} new producer id of {name}"
        text += " is refused" if rate == 0 else " is refused above the quota"
        return text + ("." if found["refuses_transactional"] else f", {_TRANSACTIONAL}.")
    if why == "grace":
        left = found["ids_left"]
        many = "all" if left is None else f"{left:,} more"
        return (
            f"In force from {moment(found['until_wall_ms'])}: until then {many} new producer ids of {name} pass "
            f"uncharged (grace). To enforce now: pidgate quotas grace {option} --end"
        )
    if why == "restoring":
        return (
            "In force in a moment: the gateway still reads its state, and new producer ids pass until then."
        )
    if why == "exempt":
        return f"Not in force: the file exempts {name}. Nothing is refused in any mode."
    if why == "no_rate":
        setter = "--entity-default" if user is None else option
        return (
            f"Not in force: {name} has no limit. "
            f"To set one: pidgate quotas alter {setter} --add-config producer_ids_rate=N"
        )
    ends = f"pidgate mode enforce {option}"
    if mode["of"] == "all" and mode["source"] == "run_time" and user is not None:
        ends = "pidgate mode file --all" + ("" if mode["in_file"] == "enforce" else f", then {ends}")
    return f"Not in force: {name} is observed ({source({**mode, 'of': 'all'})}). To enforce: {ends}"


def when_throttled(entry: Mapping[str, Any]) -> str:
    """Say whether clients above a byte rate wait, at which gateways."""
    name = "any other user" if entry["user"] is None else shown(entry["user"])
    if not entry["throttles_bytes"]:
        return f"Not in force: {name} is observed, or exempt from byte rates: bytes are counted, and no client waits."
    return f"In force now: clients of {name} wait above it. Each gateway that they connect to allows the full rate."


def unseen(answer: Mapping[str, Any]) -> str:
    """Say that the gateway knows no producer id of the user, with the nearest name it knows; empty if it does."""
    found = answer.get("unseen")
    if found is None:
        return ""
    text = "This gateway has seen no producer id of this name"
    if found["nearest"]:
        return f"{text}; the nearest known name is {shown(found['nearest'])}."
    if found["known"] == ["ANONYMOUS"]:
        return f"{text}: its clients do not log in, so all of them are ANONYMOUS."
    return f"{text}."


def quoted(user: str) -> str:
    """Return a user's name as it is typed in a shell."""
    return shlex.quote(shown(user))


def tokens(entry: Mapping[str, Any], setting: str = RATE) -> str:
    """Describe the balance of a rate: 41.5 of 100; nothing without a limit."""
    name = _TOKENS.get(setting, "")
    left, full = entry.get(name), entry.get(f"full_{name}")
    return "" if left is None or full is None else f"{number(left)} of {number(full)}"


def kept(answer: Mapping[str, Any], topic: str | None) -> str:
    """Describe where a change is kept and which gateways have it, with a remedy unless all have it."""
    gateway = answer["gateway"]
    if answer["kept"] == "topic":
        return f"{gateway}: in force; kept in the topic{f' {topic}' if topic else ''}: every gateway has it"
    place = "in its state directory" if answer["kept"] == "state_dir" else "in its memory, until it ends"
    later = f"; the topic {topic} gets it when it can be written again" if topic else ""
    return (
        f"{gateway}: in force; kept {place}: only this gateway has it{later}\n"
        "  for the others: repeat it with --admin HOST:PORT for each"
    )


def change_in_words(change: Mapping[str, Any], window_ms: int) -> str:
    """Describe a change: alice: producer_ids_rate 500 per 1h until 2026-11-21 16:02."""
    setting, name = change["setting"], entity(change["user"], change["setting"])
    if change["action"] == "reset":
        return f"{name}: {setting} is again {'as before' if change['temporary'] else 'as in the file'}"
    if change["action"] == "remove":
        return f"{name}: {setting} is not set any more"
    until = change["until_wall_ms"]
    lasts = "" if until is None else f" until {moment(until)}"
    return f"{name}: {setting} {value(setting, change['value'], window_ms)}{lasts}"
