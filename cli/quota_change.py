"""`pidgate quotas alter`, `delete`, `reset`, `raise`, `block`, `release`, `refill` and `pidgate mode`: what is posted.

What is typed last holds: a standing change ends a temporary one of the same setting, and says so.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from pidgate import units
from pidgate.cli import quota_words as words
from pidgate.cli.admin_client import Gateway, Told, Where, Wrong, for_each
from pidgate.cli.quota_words import MODE, RATE
from pidgate.quota.settings import rate_milli
from pidgate.units import moment, printable

_MODES: Final = ("observe", "enforce")
_BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Words:
    """What goes with a change: how long it lasts ("2h"; "": until it is changed again) and why it is made."""

    lasts: str = ""
    note: str = ""
    zone: tzinfo | None = None


def set_by() -> str:
    """The user of the operating system, as cli:NAME."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:uid {os.getuid()}"


# ---- the commands --------------------------------------------------------------------------------------


def alter(
    where: Where,
    user: str | None,
    add: Iterable[str],
    delete: Iterable[str],
    extra: Words,
    name: str = "alter",
) -> int:
    """Set and remove settings in the spelling of kafka-configs. `user` None: the default user."""

    def changes(_told: Told) -> list[Told]:
        found = [_set(user, setting, value, extra) for setting, value in added(add, user)]
        found += [_removed(user, setting, extra) for setting in deleted(delete, user)]
        if not found:
            raise Wrong(
                "what is to change? --add-config producer_ids_rate=100 or --delete-config producer_ids_rate"
            )
        return found

    return _change(where, f"quotas {name}", user, changes, extra)


def raise_rate(where: Where, user: str, rate: str, extra: Words) -> int:
    """A higher rate than the one that holds."""

    def changes(told: Told) -> list[Told]:
        holds, wanted = told["entries"][0]["effective_rate"]["value"], _rate(rate)
        if holds is None:
            raise Wrong(f"{printable(user)} has no limit at {told['gateway']}: there is nothing to raise")
        if rate_milli(wanted) <= rate_milli(holds):
            now = words.value(RATE, holds, told["window_ms"])
            raise Wrong(
                f"{printable(user)} has {now} at {told['gateway']} already; a lower rate is set with "
                "pidgate quotas alter"
            )
        return [_set(user, RATE, wanted, extra)]

    return _change(where, "quotas raise", user, changes, extra)


def block(where: Where, user: str, extra: Words) -> int:
    """No new producer id any more; those that are known go on."""
    return _change(where, "quotas block", user, lambda _told: [_set(user, RATE, 0, extra)], extra)


def reset(where: Where, user: str | None, extra: Words) -> int:
    """What the file says holds again, for everything of this user (None: of the default user)."""

    def changes(told: Told) -> list[Told]:
        return [
            {"setting": one["setting"], "user": user, "action": "reset", "temporary": one["temporary"]}
            for one in told["changes"]
            if one["user"] == user and (user is not None or one["setting"] == RATE)
        ]

    return _change(where, "quotas reset", user, changes, extra)


def mode(where: Where, to: str, user: str | None, extra: Words) -> int:
    """`to`: observe, enforce, or file: what the file says. `user` None: every user."""

    def changes(told: Told) -> list[Told]:
        if to != "file":
            return [_set(user, MODE, to, extra)]
        return [
            {"setting": MODE, "user": user, "action": "reset", "temporary": one["temporary"]}
            for one in told["changes"]
            if one["setting"] == MODE and one["user"] == user
        ]

    return _change(where, "mode", user, changes, extra)


def command(where: Where, deed: str, user: str, producer_id: int | None) -> int:
    """Refill the user's bucket, or let one producer id in."""
    content: Told = {"deed": deed, "user": user, "set_by": set_by()}
    if producer_id is not None:
        content["producer_id"] = producer_id

    def show(told: Told) -> None:
        what = (
            "its bucket is full" if producer_id is None else f"producer id {producer_id} is let in, uncharged"
        )
        fleet = "told to every gateway" if told["kept"] == "topic" else "done by this gateway only"
        print(f"{printable(user)}: {what}\n{told['gateway']}: done; {fleet}")
        if told["kept"] != "topic":
            print("  for the others: repeat it with --admin HOST:PORT for each")

    return for_each(where, f"quotas {deed}", lambda gateway: gateway.post("/v1/commands", content), show)


# ---- asking and posting --------------------------------------------------------------------------------


def _change(
    where: Where, name: str, user: str | None, wanted: Callable[[Told], list[Told]], extra: Words
) -> int:
    def do(gateway: Gateway) -> Told:
        told = gateway.get("/v1/quotas", user=user)
        changes = wanted(told)
        if not changes:
            return {**_head(told), "kept": None, "changes": [], "ended": []}
        ended = _ended_with(changes, told["changes"])
        posted = gateway.post(
            "/v1/quotas/changes",
            {"changes": changes + [_end_of(change) for change in ended], "set_by": set_by()},
        )
        return {**_head(told), **posted, "ended": ended}

    return for_each(where, name, do, lambda told: _show(told, extra.zone))


def _head(told: Told) -> Told:
    return {key: told[key] for key in ("address", "gateway", "topic", "window_ms")}


def _ended_with(changes: list[Told], there: Iterable[Told]) -> list[Told]:
    """The temporary changes that would stand above what is set now."""
    standing = {
        (change["setting"], change["user"])
        for change in changes
        if change["action"] != "reset" and "for" not in change
    }
    return [one for one in there if one["temporary"] and (one["setting"], one["user"]) in standing]


def _end_of(change: Mapping[str, Any]) -> Told:
    return {"setting": change["setting"], "user": change["user"], "action": "reset", "temporary": True}


def _show(told: Told, zone: tzinfo | None) -> None:
    if told["kept"] is None:
        print(f"{told['gateway']}: nothing was set at run time: what the file says holds")
        return
    ended = {(one["setting"], one["user"]) for one in told["ended"]}
    for change in told["changes"]:
        target = (change["setting"], change["user"])
        if not (change["action"] == "reset" and target in ended):
            print(_in_words(change, told["window_ms"], zone))
    for one in told["ended"]:
        until = moment(one["until_wall_ms"], zone)
        value = words.value(one["setting"], one["value"], told["window_ms"])
        print(f"  the temporary {value} (until {until}, {words.who_and_when(one, zone)}) has ended with it")
    print(words.kept(told, told["topic"]))


def _in_words(change: Told, window_ms: int, zone: tzinfo | None) -> str:
    setting, name = change["setting"], words.whom(change["user"], change["setting"])
    if change["action"] == "reset":
        return (
            f"{name}: {setting} is what {'it was before' if change['temporary'] else 'the file says'} again"
        )
    if change["action"] == "remove":
        return f"{name}: {setting} is not set any more"
    until = change["until_wall_ms"]
    lasts = "" if until is None else f" until {moment(until, zone)}"
    return f"{name}: {setting} {words.value(setting, change['value'], window_ms)}{lasts}"


# ---- what was typed ------------------------------------------------------------------------------------


def added(texts: Iterable[str], user: str | None) -> list[tuple[str, float | str]]:
    """producer_ids_rate=100,mode=enforce as kafka-configs takes it. Raises Wrong."""
    found: list[tuple[str, float | str]] = []
    for text in _split(texts):
        setting, equals, value = (part.strip() for part in text.partition("="))
        _check_setting(setting, user)
        if not equals:
            raise Wrong(f"{text!r} sets nothing; write {setting}=VALUE, or --delete-config {setting}")
        if setting == MODE and value not in _MODES:
            raise Wrong(f"{value!r} is no mode; write mode=observe or mode=enforce")
        found.append((setting, _rate(value) if setting == RATE else value))
    return found


def deleted(texts: Iterable[str], user: str | None) -> list[str]:
    """Names, one or several with commas. Raises Wrong."""
    names = _split(texts)
    for setting in names:
        _check_setting(setting, user)
    return names


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _check_setting(setting: str, user: str | None) -> None:
    if setting in _BYTE_RATES:
        raise Wrong(
            f"{setting} is not set at run time: write it into the gateway's file (quotas.users), or set the "
            "brokers' own with kafka-configs"
        )
    if setting not in (RATE, MODE):
        raise Wrong(f"{setting!r} cannot be set; write producer_ids_rate=100 or mode=enforce")
    if setting == MODE and user is None:
        raise Wrong("there is no mode of the default user; pidgate mode observe --all sets that of all users")


def _rate(text: str) -> float:
    try:
        rate = units.rate(float(text))
    except ValueError as error:
        raise Wrong(f"{text!r} is not a rate; write a number of ids per window: 100 or 0.5") from error
    return int(rate) if rate == int(rate) else rate


def _set(user: str | None, setting: str, value: float | str, extra: Words) -> Told:
    change = {"setting": setting, "user": user, "action": "set", "value": value, "note": extra.note}
    if extra.lasts:
        try:
            units.duration_ms(extra.lasts)
        except ValueError as error:
            raise Wrong(f"--for: {error}") from error
        change["for"] = extra.lasts
    return change


def _removed(user: str | None, setting: str, extra: Words) -> Told:
    if extra.lasts:
        raise Wrong("--for goes with what is set; what is removed stays removed")
    return {"setting": setting, "user": user, "action": "remove", "note": extra.note}
