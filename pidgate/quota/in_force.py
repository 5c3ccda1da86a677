"""Quotas in force: the file's, and the changes made while gateways run. PURE.

For each setting of each user: a temporary change that has not ended, else the standing change, else the file. Must not
know how changes are ordered, kept and sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from pidgate.names import bounded
from pidgate.quota.changes import RATES, Action, Change, Setting, Target
from pidgate.quota.settings import Mode, Quotas, UserQuota

Deciding = dict[tuple[Setting, str | None], Change]
"""The deciding change by setting and user. The file decides a pair that is missing."""

ALL_MODES = (Setting.MODE, None)
"""The mode of every user: above what the file and other changes say of single users."""

_FIELDS: Final = {
    Setting.PRODUCER_IDS_RATE: "producer_ids_rate_milli",
    Setting.TRANSACTIONAL_IDS_RATE: "transactional_ids_rate_milli",
    Setting.MODE: "mode",
}
"""The field of a UserQuota that holds a setting."""

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
        if not (file_wins and is_said(in_file, target.setting, target.user)):
            found[target.setting, target.user] = change
    return found


def applied(in_file: Quotas, found: Mapping[tuple[Setting, str | None], Change]) -> Quotas:
    """Return the file's quotas with these changes in them."""
    users = dict(in_file.users)
    default = in_file.default
    for (setting, named), change in found.items():
        user = None if named is None else bounded(named)
        if user is None:
            if setting in RATES:
                default = _with(default, change)
            continue
        changed = _with(users.get(user, UserQuota()), change)
        if user in users or changed != UserQuota():
            users[user] = changed
    of_all = found.get(ALL_MODES)
    if of_all is None or not isinstance(of_all.value, Mode):
        return replace(in_file, default=default, users=users)
    return replace(
        in_file,
        mode=of_all.value,
        default=replace(default, mode=None),
        users={name: replace(quota, mode=None) for name, quota in users.items()},
    )


def is_said(in_file: Quotas, setting: Setting, user: str | None) -> bool:
    """Return whether the file sets a value for just this entity.

    Never for the mode of all users: the emergency switch works whatever a file sets.
    """
    if user is None:
        return setting in RATES and value_of(in_file.default, setting) is not None
    quota = in_file.users.get(user)
    return quota is not None and value_of(quota, setting) is not None


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
    if user is not None:
        return value_of(quotas.users.get(user, UserQuota()), setting)
    return value_of(quotas.default, setting) if setting in RATES else quotas.mode


def has_ended(change: Change, wall_ms: int) -> bool:
    return change.until_wall_ms is not None and change.until_wall_ms <= wall_ms


def next_end(changes: Iterable[Change], wall_ms: int) -> int | None:
    """Return when (wall clock) the next temporary change ends; None: none is in force."""
    ends = (change.until_wall_ms for change in changes if change.until_wall_ms is not None)
    return min((end for end in ends if end > wall_ms), default=None)


def _with(quota: UserQuota, change: Change) -> UserQuota:
    value: dict[str, Any] = {_FIELDS[change.target.setting]: change.value}  # of its type: see Change
    return replace(quota, **value)
