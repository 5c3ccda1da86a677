"""The fuse: it enforces users above their own quota while the brokers are near their capacity of producer states. PURE.

Once the fullest broker is above TRIPS_ABOVE of its capacity, the largest contributor among the users that are observed
and above their own quota is enforced, then the next one, until the forecast is below the line. The change of mode is
temporary. It is renewed while the forecast is above HOLDS_ABOVE, and ends by itself otherwise, even if every gateway is
gone. A user below its quota is not refused under enforcement either.

The fuse changes neither a mode that an operator has set at run time, nor the mode of all users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pidgate.quota.changes import Action, Change, Setting, Target
from pidgate.quota.entities import User, is_unidentified, owner_of, resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import NOT_SET, Mode
from pidgate.units import number

AUTHOR: Final = "fuse"
TRIPS_ABOVE: Final = 0.8
HOLDS_ABOVE: Final = 0.7
HOLDS_MS: Final = 600_000
NEXT_AFTER_MS: Final = 10_000
"""Time for the effect of one user's enforcement to show, before the next user's."""


def is_by_fuse(change: Change) -> bool:
    return change.set_by == AUTHOR


@dataclass(frozen=True, slots=True)
class Look:
    """What the fuse has to do.

    renewed  changes of its own that would end soon, with a later end
    note     why one more user is to be enforced; empty: none is
    taken    users whose mode was changed at run time, by the fuse or an operator
    """

    renewed: list[Change]
    note: str = ""
    taken: frozenset[str | None] = frozenset()


NOTHING_TO_DO: Final = Look([])


class Fuse:
    """Decisions of the fuse. `look` once a second."""

    def __init__(self, state: ProducerIdQuota) -> None:
        self._state = state

    def look(self, changes: Iterable[Change], now_ms: int, wall_ms: int) -> Look:
        """Compare the forecast with the capacity. `changes`: all run-time changes in force."""
        capacity = self._state.in_force.value.fuse
        if capacity is None or not self._state.is_restored:
            return NOTHING_TO_DO
        modes = [change for change in changes if change.target.setting is Setting.MODE]
        fullest = self._state.states.fullest(now_ms)
        is_switched = any(change.target.user is None for change in modes)
        if fullest is None or is_switched or fullest.count < HOLDS_ABOVE * capacity:
            return NOTHING_TO_DO
        held = [change for change in modes if is_by_fuse(change)]
        due = [change for change in held if (change.until_wall_ms or 0) - wall_ms < HOLDS_MS // 2]
        renewed = [replace(change, until_wall_ms=wall_ms + HOLDS_MS, set_through="") for change in due]
        if fullest.count < TRIPS_ABOVE * capacity or any(
            wall_ms - change.set_wall_ms < NEXT_AFTER_MS for change in held
        ):
            return Look(renewed)
        has = f"{number(fullest.count)} of {number(capacity)} producer states"
        taken = frozenset(change.target.user for change in modes)
        return Look(renewed, f"broker {fullest.node_id} has about {has}", taken)

    def contributions(self, now_ms: int, *, file_wins: bool) -> Iterator[tuple[User, int] | None]:
        """Yield the users that are observed and above their own quota at this moment, with their producer states.

        One look at a user takes some 2 us, and 100 us if it is one of them; None: it is not. `file_wins`: a mode in the
        file cannot be changed.
        """
        table, quotas = self._state.table, self._state.in_force.value
        for account in self._state.users():
            user = owner_of(account)[0]
            quota, live = resolve(quotas, account), table.kept_under(account)
            is_fixed = file_wins and quotas.users.get(user, NOT_SET).mode is not None
            if live is None or is_fixed or is_unidentified(user) or quota.exempt or quota.enforces:
                yield None
                continue
            units = live.units(now_ms)
            states = live.pairs_bucket
            is_above = quota.rate_milli == 0 or (units is not None and units < 0)
            is_above |= states is not None and states.units(now_ms) < 0
            yield (user, self._states_of(user, now_ms)) if is_above else None

    def _states_of(self, user: User, now_ms: int) -> int:
        """Return the user's states at this gateway, or its ids in the whole fleet if they are more."""
        return max(self._state.states.of_user(user, now_ms), self._state.status(user, now_ms).live_ids)


def enforcement(user: User, note: str, wall_ms: int) -> Change:
    """Return the change that enforces a user for a while."""
    return Change(
        target=Target(Setting.MODE, user, temporary=True),
        action=Action.SET,
        value=Mode.ENFORCE,
        until_wall_ms=wall_ms + HOLDS_MS,
        set_by=AUTHOR,
        set_wall_ms=wall_ms,
        note=note,
    )
