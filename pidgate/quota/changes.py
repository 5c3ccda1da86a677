"""Quotas that are set while gateways run: what was changed, for whom, by whom, until when.

Plain values. How changes travel and where they are kept is not known here; what holds when a file says something
else is `in_force.py`'s to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pidgate.quota.settings import Mode


class Setting(StrEnum):
    """A setting that can be changed at run time."""

    PRODUCER_IDS_RATE = "producer_ids_rate"
    TRANSACTIONAL_IDS_RATE = "transactional_ids_rate"
    MODE = "mode"


RATES: Final = (Setting.PRODUCER_IDS_RATE, Setting.TRANSACTIONAL_IDS_RATE)
"""Settings whose value is a rate of ids per window, for a user or the default user. Named as in a file, and as in
Kafka's own API.
"""


class Action(StrEnum):
    """The effect of a change on its setting."""

    SET = "set"
    REMOVE = "remove"
    """Nothing is set any more, whatever the file sets."""
    RESET = "reset"
    """The change is forgotten: what the file says holds again."""


@dataclass(frozen=True, slots=True)
class Target:
    """The subject of a change; a later change of the same target replaces an earlier one.

    `user` None: the default user (a rate), or every user, whatever is set for it elsewhere (a mode). `temporary`: in
    force instead of the standing value while it lasts.
    """

    setting: Setting
    user: str | None
    temporary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. `value`: a rate in thousandths of an id per window, or a mode; None unless it is SET.

    `until_wall_ms`: end of a temporary one. `set_through`: the gateway that took it.
    """

    target: Target
    action: Action
    value: int | Mode | None = None
    until_wall_ms: int | None = None
    set_by: str = ""
    set_wall_ms: int = 0
    set_through: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        fits = Mode if self.target.setting is Setting.MODE else int
        if (self.action is Action.SET) != isinstance(self.value, fits):
            raise ValueError(
                f"{self.action} of {self.target.setting} does not go with the value {self.value!r}"
            )
        if self.target.temporary != (self.until_wall_ms is not None) and self.action is Action.SET:
            raise ValueError("a temporary change, and no other, has an end")
        if isinstance(self.value, int) and self.value < 0:
            raise ValueError(f"a rate must not be negative: {self.value}")


class CommandType(StrEnum):
    """A kind of command that every gateway following the quotas topic executes once."""

    REFILL = "refill"
    """The user's bucket is full."""
    RELEASE = "release"
    """The producer id is admitted, uncharged: it does not wait any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. `producer_id`: of a RELEASE."""

    type: CommandType
    user: str
    producer_id: int = -1
    set_by: str = ""
    set_wall_ms: int = 0
    set_through: str = ""
