"""Quotas that are changed while gateways run, and the quotas in force with them. PURE.

For each setting of each user the order is: a temporary change that has not ended, the standing change, the file. Must
not know how changes are ordered, stored and sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from pidgate.names import bounded
from pidgate.quota.settings import DEFAULT, NOT_SET, ByteEntity, ByteRates, Mode, Quotas, UserQuota


class Setting(StrEnum):
    """A setting that can be changed at run time."""

    PRODUCER_IDS_RATE = "producer_ids_rate"
    TRANSACTIONAL_IDS_RATE = "transactional_ids_rate"
    PRODUCER_STATES_RATE = "producer_states_rate"
    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    MODE = "mode"
    GRACE = "grace"


RATES: Final = (Setting.PRODUCER_IDS_RATE, Setting.TRANSACTIONAL_IDS_RATE, Setting.PRODUCER_STATES_RATE)
"""Settings whose value is a rate per window, for a user or the default user. Named as in a file, and as in Kafka's own
API.
"""


BYTE_RATES: Final = (Setting.PRODUCER_BYTE_RATE, Setting.CONSUMER_BYTE_RATE)
"""Settings whose value is a rate of bytes per second of all clients of a user, named as in Kafka."""


class Action(StrEnum):
    """The effect of a change on its setting."""

    SET = "set"
    REMOVE = "remove"
    """Nothing is in force, whatever the file sets."""
    RESET = "reset"
    """The change is removed: the file's value is in force again."""


@dataclass(frozen=True, slots=True)
class Target:
    """The subject of a change; a later change of the same target replaces an earlier one.

    `user` None: the default user (a rate or a grace), or every user, whatever is set for it elsewhere (a mode).
    `temporary`: in force instead of the standing value while it lasts.
    """

    setting: Setting
    user: str | None
    temporary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.

    value          a rate in thousandths of an id per window or of a byte per second, a mode, or a grace in thousandths
                   of windows of the rate; None unless it is SET
    until_wall_ms  end of a temporary one
    set_through    the gateway that took it
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
        if self.value == 0 and self.target.setting in BYTE_RATES:
            raise ValueError("a byte rate must be above 0")


class CommandType(StrEnum):
    """A kind of command that every gateway following the quotas topic executes once."""

    REFILL = "refill"
    """The user's bucket is full."""
    RELEASE = "release"
    """The producer id is admitted uncharged when it comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. `producer_id`: of a RELEASE."""

    type: CommandType
    user: str
    producer_id: int = -1
    set_by: str = ""
    set_wall_ms: int = 0
    set_through: str = ""


Deciding = dict[tuple[Setting, str | None], Change]
"""The deciding change by setting and user. The file decides a pair that is missing."""

ALL_MODES = (Setting.MODE, None)
"""The mode of every user. It overrides the file and the changes of single users."""

_FIELDS: Final = {
    Setting.PRODUCER_IDS_RATE: "producer_ids_rate_milli",
    Setting.TRANSACTIONAL_IDS_RATE: "transactional_ids_rate_milli",
    Setting.PRODUCER_STATES_RATE: "producer_states_rate_milli",
    Setting.MODE: "mode",
    Setting.GRACE: "grace_milli",
}
"""The field of a UserQuota that holds a setting."""

_MILLI: Final = 1_000
_RATE_FIELDS: Final = attrgetter(*(_FIELDS[setting] for setting in RATES))


def merged(in_file: Quotas, changes: Iterable[Change], *, file_wins: bool, wall_ms: int) -> Quotas:
    """Return the quotas in force at `wall_ms`. Of several changes of one target the last one counts."""
    return applied(in_file, deciding(in_file, changes, file_wins=file_wins, wall_ms=wall_ms))


def deciding(in_file: Quotas, changes: Iterable[Change], *, file_wins: bool, wall_ms: int) -> Deciding:
    """Return the change that decides each setting.

    With `file_wins` the file's value of an entity stands, but for the mode of all.
    """
    by_target: dict[Target, Change] = {change.target: change for change in changes}
    found: Deciding = {}
    # Standing ones first: a temporary one takes their place.
    for target, change in sorted(by_target.items(), key=lambda item: item[0].temporary):
        if change.action is Action.RESET or has_ended(change, wall_ms):
            continue
        if not (file_wins and is_set_in_file(in_file, target.setting, target.user)):
            found[target.setting, target.user] = change
    return found


def applied(in_file: Quotas, found: Mapping[tuple[Setting, str | None], Change]) -> Quotas:
    """Return the file's quotas with these changes in them."""
    users = dict(in_file.users)
    default = in_file.default
    bytes_of = dict(in_file.bytes.rates)
    for (setting, named), change in found.items():
        user = None if named is None else bounded(named)
        if setting in BYTE_RATES:
            _change_bytes(bytes_of, change)
            continue
        if user is None:
            if setting is not Setting.MODE:
                default = _with(default, change)
            continue
        changed = _with(users.get(user, NOT_SET), change)
        if user in users or changed != NOT_SET:
            users[user] = changed
    in_file = replace(in_file, bytes=replace(in_file.bytes, rates=bytes_of))
    of_all = found.get(ALL_MODES)
    if of_all is None or not isinstance(of_all.value, Mode):
        return replace(in_file, default=default, users=users)
    return replace(
        in_file,
        mode=of_all.value,
        default=replace(default, mode=None),
        users={name: replace(quota, mode=None) for name, quota in users.items()},
    )


def is_set_in_file(in_file: Quotas, setting: Setting, user: str | None) -> bool:
    """Return whether the file sets a value for just this entity.

    Never for the mode of all users: the emergency switch works whatever a file sets.
    """
    return (setting, user) != ALL_MODES and value_in_force(in_file, setting, user) is not None


def value_of(quota: UserQuota, setting: Setting) -> int | Mode | None:
    """Return a user quota's value of one setting."""
    value: int | Mode | None = getattr(quota, _FIELDS[setting])
    return value


def rates_of(quota: UserQuota) -> tuple[int | None, ...]:
    """Return a user quota's rates, in the order of RATES; there may be thousands of users."""
    rates: tuple[int | None, ...] = _RATE_FIELDS(quota)
    return rates


def value_in_force(quotas: Quotas, setting: Setting, user: str | None) -> int | Mode | None:
    """Return the value set for just this entity; of all users' mode, `quotas.mode`."""
    if setting in BYTE_RATES:
        rates = quotas.bytes.rates.get(_byte_entity(user))
        rate: int | None = getattr(rates, setting.value) if rates is not None else None
        return None if rate is None else rate * _MILLI
    if user is not None:
        return value_of(quotas.users.get(user, NOT_SET), setting)
    return quotas.mode if setting is Setting.MODE else value_of(quotas.default, setting)


def has_ended(change: Change, wall_ms: int) -> bool:
    return change.until_wall_ms is not None and change.until_wall_ms <= wall_ms


def next_end(changes: Iterable[Change], wall_ms: int) -> int | None:
    """Return when (wall clock) the next temporary change ends; None: none is in force."""
    ends = (change.until_wall_ms for change in changes if change.until_wall_ms is not None)
    return min((end for end in ends if end > wall_ms), default=None)


def _byte_entity(user: str | None) -> ByteEntity:
    return (DEFAULT if user is None else bounded(user)), None


def _change_bytes(rates: dict[ByteEntity, ByteRates], change: Change) -> None:
    """Set a byte rate of a user, or of the default user."""
    entity = _byte_entity(change.target.user)
    # Rounded up: a rate has to be above 0.
    rate = -(-change.value // _MILLI) if isinstance(change.value, int) else None
    rates[entity] = replace(rates.get(entity, ByteRates()), **{change.target.setting.value: rate})
    if rates[entity] == ByteRates():
        del rates[entity]


def _with(quota: UserQuota, change: Change) -> UserQuota:
    value: dict[str, Any] = {_FIELDS[change.target.setting]: change.value}  # of its type: see Change
    return replace(quota, **value)
