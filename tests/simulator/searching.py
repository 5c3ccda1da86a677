"""Play many seeds; of the first that fails, return the shortest schedule that fails as it does, with its story."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulator.playing import play
from tests.simulator.schedule import Schedule
from tests.simulator.shrink import shrunk
from tests.simulator.story import setting
from tests.simulator.themes import aimed


def failing(seeds: Iterable[int]) -> Schedule | None:
    """Return the first seed's schedule that fails."""
    for seed in seeds:
        schedule = aimed(seed)
        if play(schedule).violation:
            return schedule
    return None


def report(schedule: Schedule, *, shrinks: bool = True) -> str:
    """Return what is wrong with a schedule, and its story; of the shortest one that fails in the same way."""
    kind = _kind(play(schedule).violation)
    if kind and shrinks:
        schedule = shrunk(schedule, lambda one: _fails_so(one, kind))
    result = play(schedule, is_told=True)
    return "\n".join([setting(schedule), "", result.story, "", result.violation or "nothing was wrong"])


def _fails_so(schedule: Schedule, kind: str) -> bool:
    """Return whether it fails in this way. One that cannot be checked, since parts were left out, does not.

    `failing` plays whole schedules, and lets such an error through.
    """
    try:
        return _kind(play(schedule).violation) == kind
    except Exception:  # noqa: BLE001 - see above
        return False


def _kind(violation: str) -> str:
    """Return a violation's words without what differs from schedule to schedule: numbers, and names with numbers."""
    words = violation.partition("\n")[0].split()
    return " ".join(word for word in words if not any(letter.isdigit() for letter in word))
