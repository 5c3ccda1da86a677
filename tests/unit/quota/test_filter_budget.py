"""No user takes the memory of another: the rule, and what happens without it."""

from __future__ import annotations

import pytest

from pidgate.quota.layered_filter import TIMES_FREE, FilterBudget
from pidgate.quota.settings import ProducerIdSettings
from tests.support.rules import rule
from tests.unit.quota.test_layered_filter import new_filter, remembers, use


class _OneBudgetForAll(FilterBudget):
    def room(self, own: int, exact: int) -> int:
        """Mutant: whoever comes first takes what there is."""
        return self.limit - self.held


class _NothingGuaranteed(FilterBudget):
    def room(self, own: int, exact: int) -> int:
        """Mutant: what others leave is all there is."""
        return (TIMES_FREE * (self.limit - self.held) - own) // (TIMES_FREE + 1)


def _taken_for_known(budget: FilterBudget, settings: ProducerIdSettings, hogs: int) -> int:
    """Count the fresh ids of a user that pass as known while others bring 2.5 times `max_live_ids` each."""
    for secret in range(100, 100 + hogs):
        hog = new_filter(settings, budget=budget, secret=secret)
        for producer_id in range(settings.max_live_ids * 5 // 2):
            use(hog, producer_id, 0)
    victim, taken = new_filter(settings, budget=budget), 0
    for producer_id in range(3_000):
        taken += remembers(victim, producer_id, 0)
        use(victim, producer_id, 0)
    return taken


@rule("A user holds at most as much memory for frames and filters as is left to others.", "memory")
@pytest.mark.parametrize(
    ("kind", "hogs", "held"),
    [
        (FilterBudget, 2, True),
        (FilterBudget, 6, True),
        (_OneBudgetForAll, 2, False),
        (_NothingGuaranteed, 6, False),
    ],
)
def test_no_user_takes_the_memory_of_another(kind: type[FilterBudget], hogs: int, held: bool) -> None:
    settings = ProducerIdSettings(max_live_ids=4_000)
    taken = _taken_for_known(kind(settings), settings, hogs)
    assert (taken <= 3 + 3 * 2) is held, taken
