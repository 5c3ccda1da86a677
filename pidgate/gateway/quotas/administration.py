"""The interface through which Kafka's admin API and the admin site read and change a gateway's quotas. PURE.

It also checks which changes are allowed at run time. It does not know the store behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.changes import (
    ALL_MODES,
    BYTE_RATES,
    Action,
    Change,
    Setting,
    Target,
    has_ended,
    is_set_in_file,
)
from pidgate.quota.settings import Mode, Quotas
from pidgate.units import show_duration

LONGEST_USER: Final = 4_096
LONGEST_NOTE: Final = 4_096
"""Keeps a record of the topic far below the brokers' size limit."""


class Kept(StrEnum):
    """Where a change in force is stored."""

    TOPIC = "topic"
    """In the topic: applies to the whole fleet and survives restarts."""
    STATE_DIR = "state_dir"
    """In the state directory: applies to this gateway and survives restarts. Written to the topic once
    possible."""
    MEMORY = "memory"
    """In memory: applies to this gateway until it stops. Written to the topic, if any, once possible."""


class NotAllowed(Exception):
    """A change that is not allowed. The text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The quotas in force, and their sources.

    `provenance` is keyed by user; the default quota has the key "". `in_file`: the quotas of the file alone.
    """

    quotas: Quotas
    provenance: dict[str, Provenance]
    in_file: Quotas
    changes: tuple[Change, ...]
    version: int


OnChanged = Callable[[list[str | None] | None, Kept | None], None]
"""Called with, per change, None or the reason for its rejection, and with the place where the others are
kept. None as the list: the outcome is unknown."""

Administer = Callable[[Sequence[Change], bool, OnChanged], None]
"""Make changes, or only check them. `OnChanged` is called once, never before this returns."""


def check(change: Change, in_file: Quotas, wall_ms: int, *, allow: bool, file_wins: bool) -> None:
    """Check a change. Raises NotAllowed if the configuration forbids it or it is invalid.

    `allow`, `file_wins`: quotas.runtime_changes.
    """
    _check_sense(change, in_file, wall_ms)
    if not allow and not _is_emergency_switch(change):
        raise NotAllowed(
            "quotas are not set at run time here (quotas.runtime_changes is refused): change the configuration "
            "file; only the mode of all users can be set to observe, and reset"
        )
    target = change.target
    if (
        file_wins
        and change.action is not Action.RESET
        and is_set_in_file(in_file, target.setting, target.user)
    ):
        raise NotAllowed(
            f"the configuration file says {_named(target)}, and quotas.runtime_changes is file_wins: "
            "change it in the file, or take it out there"
        )


def _check_sense(change: Change, in_file: Quotas, wall_ms: int) -> None:
    target = change.target
    if target.user == "":
        raise NotAllowed(
            "a user has a name; for all users that are not named change the default user's quota"
        )
    if target.user is not None and "\0" in target.user:
        raise NotAllowed(
            "a principal's name contains no NUL; the quota of unidentified users is set in the "
            "configuration file (quotas.unidentified)"
        )
    if target.user is not None and len(target.user) > LONGEST_USER:
        raise NotAllowed(f"a user's name of {len(target.user)} characters; at most {LONGEST_USER} are kept")
    is_of_brokers = target.setting in BYTE_RATES and not in_file.bytes.at_gateway
    if is_of_brokers and change.action is not Action.RESET:
        raise NotAllowed(
            "the brokers keep the byte rates that are set at run time (quotas.byte_rates: brokers): set it with "
            "kafka-configs, or write it into the configuration file"
        )
    if len(change.note) > LONGEST_NOTE:
        raise NotAllowed(f"a note of {len(change.note)} characters; at most {LONGEST_NOTE} are kept")
    if (target.setting, target.user) == ALL_MODES and change.action is Action.REMOVE:
        raise NotAllowed("the mode of all users cannot be removed: set it, or reset it to the file's")
    if target.temporary and change.action is not Action.RESET:
        if change.until_wall_ms is None:
            raise NotAllowed("a temporary change needs an end; say for how long, or make it a standing one")
        if has_ended(change, wall_ms):
            ago = show_duration(wall_ms - change.until_wall_ms)
            raise NotAllowed(f"it would have ended {ago} ago, by the gateway's clock; say a later end")


def _is_emergency_switch(change: Change) -> bool:
    """Return whether it is the emergency switch, which is always allowed."""
    target = change.target
    return (target.setting, target.user) == ALL_MODES and (
        change.action is Action.RESET or change.value is Mode.OBSERVE
    )


def _named(target: Target) -> str:
    if target.setting is Setting.MODE:
        return f"which mode user {target.user} has"
    return f"{target.setting} of {'the default user' if target.user is None else f'user {target.user}'}"
