"""An action as an operator sees it: the command that does the same, what it does and when, and what undoes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pidgate.gateway.present.words import (
    BYTE_RATES,
    GRACE,
    MODE,
    RATE,
    change_in_words,
    quoted,
    when_refused,
    when_throttled,
)
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.origins import QuotaOrigins, rate_or_mode
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting
from pidgate.quota.entities import shown
from pidgate.units import show_duration

JsonObject = dict[str, Any]


def change_as_json(change: Change) -> JsonObject:
    """Return a change in its posted form, with its author."""
    return {
        "setting": str(change.target.setting),
        "user": change.target.user,
        "temporary": change.target.temporary,
        "action": str(change.action),
        "value": rate_or_mode(change.value),
        "until_wall_ms": change.until_wall_ms,
        "set_by": change.set_by,
        "set_wall_ms": change.set_wall_ms,
        "set_through": change.set_through,
        "note": change.note,
    }


def says(changes: Sequence[Change], effect: Mapping[str, Any], window_ms: int) -> list[str]:
    """Return what the changes do, and from when on. `effect`: of the first one's user (explaining.effect)."""
    lines = [change_in_words(change_as_json(change), window_ms) for change in changes]
    settings = {str(change.target.setting) for change in changes}
    if not settings <= set(BYTE_RATES):
        lines.append(when_refused(effect))
    if settings & set(BYTE_RATES):
        lines.append(when_throttled(effect))
    return lines


def undo_of(changes: Sequence[Change], before: InForce, now_wall_ms: int) -> list[JsonObject]:
    """Return the changes, in their posted form, that put back what was set before."""
    known = {change.target: change for change in before.changes}
    undoing = []
    for change in changes:
        target, was = change.target, known.get(change.target)
        undo: JsonObject = {
            "setting": str(target.setting),
            "user": target.user,
            "action": "reset" if was is None else str(was.action),
            "temporary": target.temporary,
        }
        if was is not None and was.action is Action.SET:
            undo |= {"value": rate_or_mode(was.value), "note": was.note}
            if was.until_wall_ms is not None:
                undo["for"] = f"{max(1, was.until_wall_ms - now_wall_ms)}ms"
        undoing.append(undo)
    return undoing


def command_of(changes: Sequence[Change], before: InForce) -> str:
    """Return the `pidgate` command that does the same."""
    user = changes[0].target.user
    if all(change.action is Action.RESET for change in changes):
        if all(change.target.setting is Setting.MODE for change in changes):
            return f"pidgate mode file {_whose(user)}"
        return f"pidgate quotas reset {_entity(user)}"
    return "; ".join(_command(change, before) for change in changes if change.action is not Action.RESET)


def _command(change: Change, before: InForce) -> str:
    setting, user, value = str(change.target.setting), change.target.user, rate_or_mode(change.value)
    lasts = ""
    if change.until_wall_ms is not None:
        lasts = f" --for {show_duration(_round(change.until_wall_ms - change.set_wall_ms))}"
    if change.action is Action.REMOVE:
        return f"pidgate quotas alter {_entity(user)} --delete-config {setting}"
    if setting == MODE:
        return f"pidgate mode {value} {_whose(user)}{lasts}"
    if setting == GRACE:
        return f"pidgate quotas grace {_whose(user)}{lasts if value else ' --end'}"
    if setting == RATE and user is not None:
        now = QuotaOrigins(before, change.set_wall_ms).effective_rate(Setting.PRODUCER_IDS_RATE, user).value
        if value == 0:
            return f"pidgate quotas block {quoted(user)}{lasts}"
        if isinstance(now, int) and isinstance(change.value, int) and change.value > now:
            return f"pidgate quotas raise {quoted(user)} {value}{lasts}"
    return f"pidgate quotas alter {_entity(user)} --add-config {setting}={value}{lasts}"


def order_of(command: Command) -> tuple[str, str]:
    """Return the `pidgate` command that does the same, and what it does."""
    name, user = shown(command.user), quoted(command.user)
    if command.type is CommandType.REFILL:
        return f"pidgate quotas refill {user}", f"{name}: its bucket is full"
    text = f"{name}: producer id {command.producer_id} is admitted on its next attempt, uncharged"
    return f"pidgate quotas release --user {user} --producer-id {command.producer_id}", text


def _whose(user: str | None) -> str:
    return "--all" if user is None else f"--user {quoted(user)}"


def _entity(user: str | None) -> str:
    return "--entity-default" if user is None else f"--user {quoted(user)}"


def _round(milliseconds: int) -> int:
    return milliseconds // 1_000 * 1_000 if milliseconds >= 1_000 else milliseconds
