"""What is said of whom, and where it comes from: the file, or a change at run time. PURE.

Which value holds is settled already (`InForce.quotas`); here it is told who said so, until when, and what the file
says instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidgate.gateway.quotas.administration import InForce
from pidgate.quota.changes import Change, Setting
from pidgate.quota.in_force import ALL_MODES, deciding, value_in_force
from pidgate.quota.settings import Mode

_PER_ID = 1_000


class Source(StrEnum):
    """Where a value comes from."""

    FILE = "file"
    RUN_TIME = "run_time"
    NOTHING = "nothing"
    """Nobody has said anything: no limit."""


class Of(StrEnum):
    """Whom it was said of."""

    USER = "user"
    DEFAULT = "default"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class QuotaOrigin:
    """One value, a rate in thousandths or a mode; None: nothing is said, or it was taken away at run time.

    `until_wall_ms`: of a temporary one. `in_file`: what the file says of the same, which holds once it is reset.
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
        """Rates as people write them: ids per window."""
        return {
            "value": rate_or_mode(self.value),
            "source": str(self.source),
            "of": str(self.of),
            "set_by": self.set_by,
            "set_wall_ms": self.set_wall_ms,
            "set_through": self.set_through,
            "until_wall_ms": self.until_wall_ms,
            "note": self.note,
            "in_file": rate_or_mode(self.in_file),
        }


def rate_or_mode(value: int | Mode | None) -> float | str | None:
    """Thousandths as ids per window (100, 0.5), a mode as its word."""
    if value is None or isinstance(value, Mode):
        return None if value is None else str(value)
    return value // _PER_ID if value % _PER_ID == 0 else value / _PER_ID


class QuotaOrigins:
    """The quotas in force, asked for who said what."""

    def __init__(self, in_force: InForce, wall_ms: int) -> None:
        self._in_force = in_force
        # Whether the file wins is settled in the values: a change that does not decide has another one.
        self._deciding = deciding(in_force.in_file, in_force.changes, file_wins=False, wall_ms=wall_ms)

    def own(self, setting: Setting, user: str | None) -> QuotaOrigin:
        """What is said of this user alone; `user` None: of the default user (rate), or of all (mode)."""
        value = value_in_force(self._in_force.quotas, setting, user)
        in_file = value_in_force(self._in_force.in_file, setting, user)
        change = self._deciding.get((setting, user))
        if user is not None and setting is Setting.MODE and ALL_MODES in self._deciding:
            # It waits below the mode of all, which the values do not show.
            value = in_file if change is None else change.value
        if change is not None and (change.value == value or value is None):
            return _from_change(change, in_file)
        of = _of(setting, user)
        if value is None:
            return QuotaOrigin(None, Source.NOTHING, of, in_file=in_file)
        provenance = self._in_force.provenance.get(user or "")
        return QuotaOrigin(
            value, Source.FILE, of, note=provenance.note if provenance else "", in_file=in_file
        )

    def effective_rate(self, user: str) -> QuotaOrigin:
        """An explicit rate over the default user's."""
        said = self.own(Setting.PRODUCER_IDS_RATE, user)
        return said if said.value is not None else self.own(Setting.PRODUCER_IDS_RATE, None)

    def effective_mode(self, user: str) -> QuotaOrigin:
        """What is set for all at run time, over what is said of the user, over what the file says of all."""
        everybody = self.own(*ALL_MODES)
        said = self.own(Setting.MODE, user)
        is_switch = everybody.source is Source.RUN_TIME and everybody.value is not None
        return everybody if is_switch or said.value is None else said

    def entities(self) -> list[str | None]:
        """Everybody of whom anything is said or was changed: the default user (None) first, then by name."""
        users = {*self._in_force.quotas.users, *self._in_force.in_file.users}
        users |= {change.target.user for change in self._in_force.changes if change.target.user is not None}
        return [None, *sorted(users)]


def _of(setting: Setting, user: str | None) -> Of:
    if user is not None:
        return Of.USER
    return Of.DEFAULT if setting is Setting.PRODUCER_IDS_RATE else Of.ALL


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
