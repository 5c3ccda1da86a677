"""The exact set of a filter, its secret, and what a client gains by probing the layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.quota.decisions import Forward
from pidgate.quota.layered_filter import EXACT_COST, EXACT_IDS, FilterBudget, LayeredFilter, Sighting
from pidgate.quota.settings import ProducerIdSettings
from tests.support.rules import rule
from tests.unit.quota.test_layered_filter import DAY_MS, SLICE_MS, depth, new_filter, remembers, use
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing

COARSE = ProducerIdSettings(false_positive_rate=0.9)
FIRST_PROBE = 10**9


def test_the_first_ids_of_a_user_have_no_false_positives() -> None:
    ids = new_filter(COARSE, exact_ids=EXACT_IDS)
    for producer_id in range(EXACT_IDS):
        use(ids, producer_id, 0)
    assert depth(ids) == 0
    assert not any(remembers(ids, probe, 0) for probe in range(FIRST_PROBE, FIRST_PROBE + 1_000))
    use(ids, EXACT_IDS, 0)
    assert depth(ids) == 1
    assert all(remembers(ids, producer_id, 0) for producer_id in range(EXACT_IDS + 1))


def test_exact_ids_move_from_slice_to_slice_and_end_with_it() -> None:
    budget = FilterBudget(COARSE)
    ids = new_filter(COARSE, budget=budget, exact_ids=3)
    for producer_id in (1, 2, 3):
        use(ids, producer_id, 0)
    assert use(ids, 2, SLICE_MS) is Sighting.REMEMBERED
    assert use(ids, 2, SLICE_MS) is Sighting.CURRENT
    assert (budget.held, ids.size_bytes, ids.live_ids(SLICE_MS)) == (3 * EXACT_COST, 24, 3)
    assert [remembers(ids, known, DAY_MS + SLICE_MS) for known in (1, 2, 3)] == [False, True, False]
    assert (budget.held, ids.live_ids(DAY_MS + SLICE_MS)) == (EXACT_COST, 1)
    use(ids, 4, DAY_MS + SLICE_MS)
    use(ids, 5, DAY_MS + SLICE_MS)
    assert depth(ids) == 0
    assert ids.is_empty(3 * DAY_MS)
    assert budget.held == 0


def test_exact_ids_count_in_the_budget_of_all() -> None:
    """Where others hold it all, ids go into the layers that a filter is guaranteed."""
    settings = ProducerIdSettings(max_live_ids=1_000)
    budget = FilterBudget(settings)
    budget.held = budget.limit
    ids = new_filter(settings, budget=budget, exact_ids=EXACT_IDS)
    for producer_id in range(2_000):
        use(ids, producer_id, 0)
    assert budget.held <= budget.limit + 4_000
    assert budget.overfull == 0


@pytest.mark.parametrize("bit", [0, 31, 32, 127])
def test_every_bit_of_the_secret_counts(bit: int) -> None:
    bits = []
    for secret in (5, 5 ^ 1 << bit):
        ids = new_filter(secret=secret)
        use(ids, 4711, 0)
        [layer] = ids.export_layers(0)
        bits.append(bytes(layer.data))
    assert bits[0] != bits[1]


def test_each_filter_of_a_user_has_a_secret_of_its_own() -> None:
    world = World(enforcing(100))
    world.spend(1)
    [state] = world.admission.state.restorer.export_users(0)
    assert len(set(state.secrets)) == 2


def test_an_exact_set_is_restored_and_one_out_of_order_is_not() -> None:
    ids = new_filter(exact_ids=2)
    for producer_id in (9, 2**63 - 1, 5):
        use(ids, producer_id, 0)
    layers = ids.export_layers(0)
    copy = new_filter(exact_ids=2)
    copy.restore_layers(layers, 0)
    assert [remembers(copy, known, 0) for known in (9, 2**63 - 1, 5, 6)] == [True, True, True, False]
    assert copy.export_layers(0) == layers
    exact, *others = layers
    data = bytes(exact.data)
    with pytest.raises(ValueError, match="no exact slice"):
        copy.restore_layers([replace(exact, data=data[8:] + data[:8]), *others], 0)


def _without_pace(self: LayeredFilter, rate_milli: int, now_ms: int) -> None:
    """Mutant: refused ids are not counted."""


@rule("A client gains no free ids by probing a filter for false positives.", "cost")
@pytest.mark.parametrize("counts", [True, False])
def test_probing_gains_one_percent_of_the_rate(counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with 5,000 known ids makes up 10,000 more within an hour; one in thirty is a false positive."""
    if not counts:
        monkeypatch.setattr(LayeredFilter, "note_refused", _without_pace)
    rate, known = 100, 5_000
    world = World(enforcing(rate, false_positive_rate=0.2))
    for producer_id in range(known):
        world.admission.state.insert_uncharged("alice", producer_id, 0)
    world.spend(rate + 1)
    free = 0
    for probe in range(FIRST_PROBE, FIRST_PROBE + 10_000):
        client = world.connect()
        free += isinstance(world.judge(client, batch(probe)), Forward)
        world.close(client)
    if not counts:
        assert free > 2 * rate, "the attack did not reach the layers"
        return
    assert free < 10 * rate / 20
    client = world.connect()
    assert isinstance(world.judge(client, batch(1)), Forward), "an id of the exact set is known as before"
    assert not isinstance(world.judge(client, batch(known - 1)), Forward), "one of the layers needs a token"
    world.now_ms += HOUR_MS
    assert isinstance(world.judge(world.connect(), batch(known - 2)), Forward)
