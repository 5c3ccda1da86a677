"""`pidgate quotas alter`, `reset`, `raise`, `block`, `release`, `refill` and `pidgate mode`.

The last command wins: a standing change ends a temporary one of the same setting, and the command prints
that.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pidgate import units
from pidgate.cli.admin_client import BadUsage, Gateway, JsonObject, for_each
from pidgate.cli.options import (
    AlterOptions,
    BlockOptions,
    GatewayOptions,
    GraceOptions,
    ModeOptions,
    RaiseOptions,
    RefillOptions,
    ReleaseOptions,
    ResetOptions,
    complain,
)
from pidgate.gateway.present import words
from pidgate.gateway.present.words import BYTE_RATES, GRACE, MODE, RATE, RATES
from pidgate.quota.entities import shown
from pidgate.quota.settings import rate_milli
from pidgate.quota.users import GRACE_TIMES_RATE
from pidgate.units import moment

_MODES: Final = ("observe", "enforce")

Changes = list[JsonObject]


def set_by() -> str:
    """Return the operating system's user as cli:NAME."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:uid {os.getuid()}"


def alter(options: AlterOptions) -> int:
    """Set and remove settings; return the exit code."""
    user = options.entity()

    def changes(_current: JsonObject) -> Changes:
        found = [_set(options, user, name, value) for name, value in added(options.add or (), user)]
        found += [_removed(options, user, name) for name in deleted(options.delete or (), user)]
        if not found:
            raise BadUsage(
                "no change; write --add-config producer_ids_rate=100 or --delete-config producer_ids_rate"
            )
        return found

    return _change(options, "quotas alter", user, changes)


def raise_(options: RaiseOptions) -> int:
    """Set a higher rate than the one in force; return the exit code."""
    user = options.user

    def changes(current: JsonObject) -> Changes:
        in_force, wanted = current["entries"][0]["effective_rate"]["value"], _rate(options.rate)
        if in_force is None:
            raise BadUsage(f"{shown(user)} has no limit at {current['gateway']}: there is nothing to raise")
        if rate_milli(wanted) <= rate_milli(in_force):
            now = words.value(RATE, in_force, current["window_ms"])
            raise BadUsage(
                f"{shown(user)} has {now} at {current['gateway']} already; a lower rate is set with "
                "pidgate quotas alter"
            )
        return [_set(options, user, RATE, wanted)]

    return _change(options, "quotas raise", user, changes)


def block(options: BlockOptions) -> int:
    """Set a rate of 0, so that every new producer id is refused; return the exit code."""
    user = options.user
    return _change(options, "quotas block", user, lambda _current: [_set(options, user, RATE, 0)])


def reset(options: ResetOptions) -> int:
    """Apply the file's settings of an entity again; return the exit code."""
    user = options.entity()

    def changes(current: JsonObject) -> Changes:
        return [
            _reset(one)
            for one in current["changes"]
            if one["user"] == user and (user is not None or one["setting"] in (*RATES, *BYTE_RATES))
        ]

    return _change(options, "quotas reset", user, changes)


def mode(options: ModeOptions) -> int:
    """Set the mode of a user or of all, or apply the file's again; return the exit code."""
    to, user = options.to, options.user
    if to not in (*_MODES, "file"):
        complain("mode", f"{to!r} is no mode; write observe, enforce or file")
    if options.of_all == (user is not None):
        which = "no user; write --user alice, or --all for every user"
        complain("mode", "either --all or --user" if options.of_all else which)
    if to == "file" and options.lasts:
        complain("mode", "--for works with observe and enforce; afterwards the file applies again")

    def changes(current: JsonObject) -> Changes:
        if to != "file":
            return [_set(options, user, MODE, to)]
        return [_reset(one) for one in current["changes"] if one["setting"] == MODE and one["user"] == user]

    return _change(options, "mode", user, changes)


def grace(options: GraceOptions) -> int:
    """Give a user or all users a grace, or end it; return the exit code."""
    user = options.user
    if options.of_all == (user is not None):
        which = "no user; write --user alice, or --all for every user"
        complain("quotas grace", "either --all or --user" if options.of_all else which)
    if options.end == bool(options.lasts):
        complain("quotas grace", "either --for, its duration, or --end")

    def changes(current: JsonObject) -> Changes:
        if not options.end:
            return [_set(options, user, GRACE, GRACE_TIMES_RATE)]
        # A grace of this user is reset; one that it shares with others is ended by a grace of nothing until its end.
        graces = [one for one in current["changes"] if one["setting"] == GRACE]
        shared = [one["until_wall_ms"] for one in graces if one["user"] is None and user is not None]
        left_ms = max([*shared, current["grace_until_wall_ms"] or 0]) - current["wall_ms"]
        if left_ms <= 0:
            return [_reset(one) for one in graces if one["user"] == user]
        return [_set(options, user, GRACE, 0) | {"for": f"{left_ms}ms"}]

    return _change(options, "quotas grace", user, changes)


def release(options: ReleaseOptions) -> int:
    return _execute(options, "release", options.user, options.producer_id)


def refill(options: RefillOptions) -> int:
    return _execute(options, "refill", options.user, None)


def _execute(options: GatewayOptions, command: str, user: str, producer_id: int | None) -> int:
    content: JsonObject = {"deed": command, "user": user, "set_by": set_by()}
    if producer_id is not None:
        content["producer_id"] = producer_id

    def show(answer: JsonObject) -> None:
        what = (
            "its bucket is full"
            if producer_id is None
            else f"producer id {producer_id} is admitted, uncharged"
        )
        fleet = "sent to every gateway" if answer["kept"] == "topic" else "done by this gateway only"
        print(f"{shown(user)}: {what}\n{answer['gateway']}: done; {fleet}")
        if answer["kept"] != "topic":
            print("  for the others: repeat it with --admin HOST:PORT for each")

    return for_each(options, f"quotas {command}", lambda gateway: gateway.post("/v1/commands", content), show)


# ---- reading and posting -------------------------------------------------------------------------------


def _change(
    options: GatewayOptions, name: str, user: str | None, wanted: Callable[[JsonObject], Changes]
) -> int:
    def call(gateway: Gateway) -> JsonObject:
        current = gateway.get("/v1/quotas", user=user)
        head = {key: current[key] for key in ("address", "gateway", "topic", "window_ms")}
        changes = wanted(current)
        if not changes:
            return {**head, "kept": None, "changes": [], "ended": [], **effect(gateway)}
        ended = _ended_with(changes, current["changes"])
        body = {"changes": changes + [_reset(change) for change in ended], "set_by": set_by()}
        return {**head, **gateway.post("/v1/quotas/changes", body), "ended": ended, **effect(gateway)}

    def effect(gateway: Gateway) -> JsonObject:
        now = gateway.get("/v1/quotas", user=user)
        exempt = [entry["user"] for entry in now["entries"] if entry.get("is_exempt") and user is None]
        return {"effect": now["entries"][0], "exempt": exempt, "unseen": now.get("unseen")}

    return for_each(options, name, call, _show)


def _ended_with(changes: Changes, current: Iterable[JsonObject]) -> Changes:
    """Return the temporary changes that would override the new standing ones."""
    standing = {
        (change["setting"], change["user"])
        for change in changes
        if change["action"] != "reset" and "for" not in change
    }
    return [one for one in current if one["temporary"] and (one["setting"], one["user"]) in standing]


def _show(answer: JsonObject) -> None:
    if answer["kept"] is None:
        print(f"{answer['gateway']}: nothing was set at run time: the file applies")
        _show_effect(answer)
        return
    ended = {(one["setting"], one["user"]) for one in answer["ended"]}
    for change in answer["changes"]:
        target = (change["setting"], change["user"])
        if not (change["action"] == "reset" and target in ended):
            print(words.change_in_words(change, answer["window_ms"]))
    for one in answer["ended"]:
        value = words.value(one["setting"], one["value"], answer["window_ms"])
        until = moment(one["until_wall_ms"])
        print(f"  the temporary {value} (until {until}, {words.set_by(one)}) has ended with it")
    print(words.kept(answer, answer["topic"]))
    _show_effect(answer)


def _show_effect(answer: JsonObject) -> None:
    """Print from when on the user's new producer ids are refused."""
    settings = {change["setting"] for change in answer["changes"]}
    if not settings or not settings <= set(BYTE_RATES):
        print(f"  {words.when_refused(answer['effect'])}")
    if settings & set(BYTE_RATES):
        print(f"  {words.when_throttled(answer['effect'])}")
    if answer["exempt"]:
        print(f"  Exempt by the file, so never refused: {', '.join(map(shown, answer['exempt']))}.")
    if told := words.unseen(answer):
        print(f"  {told}")


# ---- options -------------------------------------------------------------------------------------------


def added(texts: Iterable[str], user: str | None) -> list[tuple[str, float | str]]:
    """Parse producer_ids_rate=100,mode=enforce as kafka-configs does. Raises BadUsage."""
    found: list[tuple[str, float | str]] = []
    for text in _split(texts):
        setting, equals, value = (part.strip() for part in text.partition("="))
        _check_setting(setting, user)
        if not equals:
            raise BadUsage(f"{text!r} sets nothing; write {setting}=VALUE, or --delete-config {setting}")
        if setting == MODE and value not in _MODES:
            raise BadUsage(f"{value!r} is no mode; write mode=observe or mode=enforce")
        if setting in BYTE_RATES:
            found.append((setting, _bytes(value)))
        else:
            found.append((setting, _rate(value) if setting in RATES else value))
    return found


def deleted(texts: Iterable[str], user: str | None) -> list[str]:
    """Parse names of settings, separated by commas. Raises BadUsage."""
    names = _split(texts)
    for setting in names:
        _check_setting(setting, user)
    return names


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _check_setting(setting: str, user: str | None) -> None:
    if setting not in (*RATES, *BYTE_RATES, MODE):
        raise BadUsage(
            f"{setting!r} cannot be set; write producer_ids_rate=100, transactional_ids_rate=50, "
            "producer_states_rate=2000, producer_byte_rate=5MB, consumer_byte_rate=5MB or mode=enforce"
        )
    if setting == MODE and user is None:
        raise BadUsage(
            "there is no mode of the default user; pidgate mode observe --all sets that of all users"
        )


def _rate(text: str) -> float:
    try:
        rate = units.rate(float(text))
    except ValueError as error:
        raise BadUsage(f"{text!r} is not a rate; write a number of ids per window: 100 or 0.5") from error
    return int(rate) if rate == int(rate) else rate


def _bytes(text: str) -> int:
    try:
        return units.size_bytes(text)
    except ValueError as error:
        raise BadUsage(f"{text!r} is no byte rate; write bytes per second: 5MB or 500KiB") from error


def _set(
    options: AlterOptions | BlockOptions | GraceOptions | ModeOptions,
    user: str | None,
    setting: str,
    value: float | str,
) -> JsonObject:
    change = {"setting": setting, "user": user, "action": "set", "value": value, "note": options.note}
    if options.lasts:
        try:
            units.duration_ms(options.lasts)
        except ValueError as error:
            raise BadUsage(f"--for: {error}") from error
        change["for"] = options.lasts
    return change


def _removed(options: AlterOptions, user: str | None, setting: str) -> JsonObject:
    if options.lasts:
        raise BadUsage("--for works with --add-config only; a removal has no end")
    return {"setting": setting, "user": user, "action": "remove", "note": options.note}


def _reset(change: Mapping[str, Any]) -> JsonObject:
    return {
        "setting": change["setting"],
        "user": change["user"],
        "action": "reset",
        "temporary": change["temporary"],
    }
