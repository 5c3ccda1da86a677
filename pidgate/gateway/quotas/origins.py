"""The origin of quotas: which value is in force for a user, who set it, when and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.changes import ALL_MODES, Change, Setting, deciding, value_in_force
from pidgate.quota.settings import Mode

RUN_TIME: Final = "run_time"
_PER_ID = 1_000


class Source(StrEnum):
    """Origin of a value."""

    FILE = "file"
    RUN_TIME = "run_time"
    NOTHING = "nothing"
    """Not set: no limit."""


class Of(StrEnum):
    """The entity for which a value is set."""

    USER = "user"
    DEFAULT = "default"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class QuotaOrigin:
    """One value, a rate in thousandths or a mode, and its source. None: not set, or removed at run time.

    `until_wall_ms`: end of a temporary value. `in_file`: the file's value, in force again after a reset.
    """

    value: int | Mode | None
    source: Source
    of: Of
    set_by: str = ""
    set_wall_ms: int | None = None
    set_through: str = ""
    until_wall_ms: int | None = None
    note: str = ""
    in_file: int | Mode | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON for the admin API, with rates in ids per window."""
        return {**asdict(self), "value": rate_or_mode(self.value), "in_file": rate_or_mode(self.in_file)}


def rate_or_mode(value: int | Mode | None) -> float | str | None:
    """Return thousandths as ids per window (100, 0.5), and a mode as its name."""
    if value is None or isinstance(value, Mode):
        return None if value is None else str(value)
    return value // _PER_ID if value % _PER_ID == 0 else value / _PER_ID


class QuotaOrigins:
    """The origin of each value of the quotas in force."""

    def __init__(self, in_force: InForce, wall_ms: int) -> None:
        self._in_force = in_force
        # The values show whether the file takes precedence: an overruled change has a different value.
        self._deciding = deciding(in_force.in_file, in_force.changes, file_wins=False, wall_ms=wall_ms)

    def own(self, setting: Setting, user: str | None) -> QuotaOrigin:
        """Return the value set for this user alone.

        `user` None: for the default user (rate), or for all (mode).
        """
        value = value_in_force(self._in_force.quotas, setting, user)
        in_file = value_in_force(self._in_force.in_file, setting, user)
        change = self._deciding.get((setting, user))
        if user is not None and setting is Setting.MODE and ALL_MODES in self._deciding:
            # It is overridden by the mode of all users, which the values do not show.
            value = in_file if change is None else change.value
        if change is not None and (change.value == value or value is None):
            return _from_change(change, in_file)
        of = _of(setting, user)
        if value is None:
            return QuotaOrigin(None, Source.NOTHING, of, in_file=in_file)
        return QuotaOrigin(value, Source.FILE, of, in_file=in_file)

    def effective_rate(self, setting: Setting, user: str) -> QuotaOrigin:
        """Return the user's own rate, else the default user's."""
        own = self.own(setting, user)
        return own if own.value is not None else self.own(setting, None)

    def effective_mode(self, user: str | None) -> QuotaOrigin:
        """Return the mode set for all at run time, else the user's own, else the file's for all."""
        everybody = self.own(*ALL_MODES)
        own = everybody if user is None else self.own(Setting.MODE, user)
        is_switch = everybody.source is Source.RUN_TIME and everybody.value is not None
        return everybody if is_switch or own.value is None else own

    def effective_grace(self, user: str | None) -> QuotaOrigin:
        """Return the grace that an operator gave the user, else that of all users."""
        own = self.own(Setting.GRACE, user)
        return self.own(Setting.GRACE, None) if own.value is None else own

    def entities(self) -> list[str | None]:
        """Return every user with a setting or a change: the default user (None) first, then by name."""
        users = {*self._in_force.quotas.users, *self._in_force.in_file.users}
        users |= {change.target.user for change in self._in_force.changes if change.target.user is not None}
        return [None, *sorted(users)]


def _of(setting: Setting, user: str | None) -> Of:
    if user is not None:
        return Of.USER
    return Of.ALL if setting is Setting.MODE else Of.DEFAULT


def _from_change(change: Change, in_file: int | Mode | None) -> QuotaOrigin:
    return QuotaOrigin(
        change.value,
        Source.RUN_TIME,
        _of(change.target.setting, change.target.user),
        change.set_by,
        change.set_wall_ms,
        change.set_through,
        change.until_wall_ms,
        change.note,
        in_file,
    )


def provenance_in_force(settings: Settings, changes: Iterable[Change]) -> dict[str, Provenance]:
    """Return the source of each user's quota; the default quota has the key "".

    `changes`: only effective ones. The owner always comes from the file. The mode of all users is left out.
    """
    users = settings.quotas.named().items()
    found = {name: Provenance(owner=user.owner) for name, user in users}
    for change in sorted(changes, key=lambda change: change.set_wall_ms):
        if (change.target.setting, change.target.user) == ALL_MODES:
            continue
        user = change.target.user or ""
        found[user] = replace(
            found.get(user, Provenance()),
            source=RUN_TIME,
            set_by=change.set_by,
            set_wall_ms=change.set_wall_ms,
            until_wall_ms=change.until_wall_ms,
            note=change.note,
        )
    return found
