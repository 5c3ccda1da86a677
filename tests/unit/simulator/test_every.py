"""Every schedule of a small world, and what it finds where a rule is broken."""

import pytest

from tests.simulator.every import AT_ONCE, BESIDE_EACH, Act, SmallWorld, search
from tests.simulator.playing import play
from tests.simulator.searching import report
from tests.support.bounds import THOROUGH
from tests.support.mutants import BY_SCHEDULE

AT_ONE = SmallWorld("java", changes_mode=True)
WORLDS = {
    "one gateway, java": (SmallWorld("java"), 3, 5),
    "one gateway, librdkafka": (SmallWorld("librdkafka"), 3, 5),
    "changes of mode": (AT_ONE, 3, 5),
    "a gateway before each broker": (BESIDE_EACH, 3, 4),
    "a gateway before each broker, at once": (AT_ONCE, 3, 4),
}
"""With the number of acts by day, and by night."""


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.timeout(3_600)
def test_nothing_is_lost_in_any_schedule(name: str) -> None:
    small, by_day, by_night = WORLDS[name]
    found = search(small, by_night if THOROUGH else by_day)
    assert found.violation is None, report(found.violation[0])
    assert found.schedules > 100


SENT: Act = ("send", "java-1", 0, 1)
OBSERVED: Act = ("mode", None, False)

FOUND: dict[str, tuple[SmallWorld, tuple[Act, ...]]] = {
    "lifted by observing": (AT_ONE, (SENT, OBSERVED, SENT)),
    "lifted by a batch above": (AT_ONE, (SENT, OBSERVED, SENT)),
    "inserted before charged": (AT_ONE, (SENT,)),
    "refusals elsewhere are not heard": (BESIDE_EACH, BY_SCHEDULE["refusals elsewhere are not heard"].acts),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By night the search finds it without being told where."""
    small, acts = FOUND[name]
    assert play(small.schedule(acts)).violation == ""
    BY_SCHEDULE[name].breaks(monkeypatch)
    assert BY_SCHEDULE[name].breach in play(small.schedule(acts)).violation
    if THOROUGH:
        found = search(small, len(acts)).violation
        assert found is not None
        assert BY_SCHEDULE[name].breach in found[1]
