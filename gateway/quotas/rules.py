"""Which changes may be made at run time, by the configuration; each refusal with its remedy. PURE."""

from __future__ import annotations

from typing import Final

from pidgate.gateway.config.settings import RuntimeChangesSettings
from pidgate.gateway.quotas.administration import NotAllowed
from pidgate.quota.changes import Action, Change, Setting, Target
from pidgate.quota.in_force import ALL_MODES, has_ended, is_said
from pidgate.quota.settings import Mode, Quotas
from pidgate.units import show_duration

LONGEST_USER: Final = 4_096
LONGEST_NOTE: Final = 4_096
"""A record of the topic has to stay far below what brokers take."""


def check(change: Change, rules: RuntimeChangesSettings, in_file: Quotas, wall_ms: int) -> None:
    """Raises NotAllowed."""
    _check_sense(change, wall_ms)
    if not rules.allow and not _calms(change):
        raise NotAllowed(
            "quotas are not set at run time here (quotas.runtime_changes.allow is false): change the configuration "
            "file, or set allow to true; only the mode of all users can be set to observe, and reset"
        )
    target = change.target
    if (
        rules.on_conflict == "file_wins"
        and change.action is not Action.RESET
        and is_said(in_file, target.setting, target.user)
    ):
        raise NotAllowed(
            f"the configuration file says {_named(target)}, and quotas.runtime_changes.on_conflict is file_wins: "
            "change it in the file, or take it out there"
        )


def _check_sense(change: Change, wall_ms: int) -> None:
    target = change.target
    if target.user == "":
        raise NotAllowed(
            "a user has a name; for all users that are not named change the default user's quota"
        )
    if target.user is not None and len(target.user) > LONGEST_USER:
        raise NotAllowed(f"a user's name of {len(target.user)} characters; at most {LONGEST_USER} are kept")
    if len(change.note) > LONGEST_NOTE:
        raise NotAllowed(f"a note of {len(change.note)} characters; at most {LONGEST_NOTE} are kept")
    if (target.setting, target.user) == ALL_MODES and change.action is Action.REMOVE:
        raise NotAllowed("there is always a mode of all users: set it, or reset it to what the file says")
    if target.temporary and change.action is not Action.RESET:
        if change.until_wall_ms is None:
            raise NotAllowed("a temporary change needs an end; say for how long, or make it a standing one")
        if has_ended(change, wall_ms):
            ago = show_duration(wall_ms - change.until_wall_ms)
            raise NotAllowed(f"it would have ended {ago} ago, by the gateway's clock; say a later end")


def _calms(change: Change) -> bool:
    """The emergency switch, which works always."""
    target = change.target
    return (target.setting, target.user) == ALL_MODES and (
        change.action is Action.RESET or change.value is Mode.OBSERVE
    )


def _named(target: Target) -> str:
    if target.setting is Setting.MODE:
        return f"which mode user {target.user} has"
    return "the default user's rate" if target.user is None else f"the rate of user {target.user}"
