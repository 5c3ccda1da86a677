"""When a user may have been without a quota: observed, or exempt, as the setup and the steps of a schedule say.

A change holds at once at the gateway that is told, and a moment later everywhere. Where it was not confirmed, or
something was broken meanwhile that may have kept it from somebody, or lost it, nothing is stated from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidgate.quota.changes import Setting
from pidgate.quota.settings import Mode

if TYPE_CHECKING:
    from tests.simulator.fleet import Asked
    from tests.simulator.world import World

Span = tuple[float, float]

ANONYMOUS: Final = "ANONYMOUS"
EVERYWHERE_S: Final = 0.5
"""From the confirmation of a change to its effect in all processes of a fleet, and on what is on its way."""
RELOADED_S: Final = 0.5
"""Until a file has been read again, with its effect everywhere."""
NEVER: Final = float("inf")
_FILE: Final = ""
"""Stands for the mode that the file says, where that is to observe."""


def spans(world: World, user: str) -> list[Span]:
    """Return the times in which the user may have been without a quota."""
    return [*_observed(world, user), *_exempt(world, user)]


def _observed(world: World, user: str) -> list[Span]:
    """Return when it may have been observed: from whatever lets it be so, until that is taken back."""
    found: list[Span] = []
    is_enforced = world.setup.quotas.is_enforced
    observing: set[str | None] = set() if is_enforced else {_FILE}
    since_s = 0.0
    changes = [one for one in world.fleet.asked if one.change.target.setting is Setting.MODE]
    for change in changes:
        whom = change.change.target.user
        if whom not in (None, user):
            continue
        if change.change.value is Mode.OBSERVE:
            since_s = since_s if observing else change.at_s
            observing.add(whom)
        elif observing and (holds_s := _holds_s(world, change, since_s)) < NEVER:
            observing -= {whom, _FILE}
            if not observing:
                found.append((since_s, holds_s))
    if observing:
        found.append((since_s, NEVER))
    if not is_enforced and changes:
        # Whoever has lost what was set observes again.
        began_s = changes[0].at_s
        found += [(at_s, NEVER) for at_s, *_ in world.fleet.history if at_s >= began_s]
    return found


def _holds_s(world: World, change: Asked, since_s: float) -> float:
    """Return from when on a change to enforce holds everywhere; NEVER where that cannot be said."""
    if change.done_s is None or _is_troubled(world, since_s):
        return NEVER
    return change.done_s + EVERYWHERE_S


def _exempt(world: World, user: str) -> list[Span]:
    found: list[Span] = []
    since_s: float | None = None
    for at_s, whom, is_exempt in world.fleet.exemptions:
        if whom != user:
            continue
        if is_exempt:
            since_s = at_s if since_s is None else since_s
        elif since_s is not None and not _is_troubled(world, since_s):
            found.append((since_s, at_s + RELOADED_S))
            since_s = None
    if since_s is not None:
        found.append((since_s, NEVER))
    return found


def _is_troubled(world: World, since_s: float) -> bool:
    """Return whether something was wrong with a gateway at that time or later, or began or ended to be."""
    return any(at_s + for_s >= since_s for at_s, _, _, for_s in world.fleet.history)
