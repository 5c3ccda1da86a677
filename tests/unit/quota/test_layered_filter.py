"""Remembered or not: no false negative, false positives within the target, bounded layers and memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.layered_filter import (
    LARGEST_FIRST_LAYER,
    MOST_LAYERS,
    SMALLEST_LAYER,
    FilterBudget,
    LayeredFilter,
    Sighting,
)
from pidgate.quota.settings import ProducerIdSettings
from tests.support.rules import rule

DAY_MS = 86_400_000
SLICE_MS = DAY_MS // 4


def depth(ids: LayeredFilter) -> int:
    """Return the number of layers."""
    return len(ids._layers)


def new_filter(
    settings: ProducerIdSettings | None = None,
    *,
    budget: FilterBudget | None = None,
    secret: int = 77,
    exact_ids: int = 0,
) -> LayeredFilter:
    settings = settings or ProducerIdSettings()
    return LayeredFilter(settings, budget or FilterBudget(settings), secret, exact_ids)


def use(ids: LayeredFilter, producer_id: int, now_ms: int, floor: int = 25) -> Sighting:
    """What a look-up does: what is not in the current slice is put there."""
    sighting = ids.find(producer_id, now_ms)
    ids.insert(producer_id, now_ms, floor=floor)
    return sighting


def remembers(ids: LayeredFilter, producer_id: int, now_ms: int) -> bool:
    return ids.find(producer_id, now_ms) is not Sighting.UNSEEN


def test_an_id_is_unseen_then_current_then_remembered() -> None:
    ids = new_filter()
    assert use(ids, 4711, 0) is Sighting.UNSEEN
    assert use(ids, 4711, SLICE_MS - 1) is Sighting.CURRENT
    assert use(ids, 4711, SLICE_MS) is Sighting.REMEMBERED
    assert use(ids, 4711, SLICE_MS) is Sighting.CURRENT


def test_expiry_counts_from_the_end_of_the_slice_and_is_applied_on_looking() -> None:
    ids = new_filter()
    use(ids, 4711, 0)
    assert remembers(ids, 4711, SLICE_MS + DAY_MS - 1)
    assert not remembers(ids, 4711, SLICE_MS + DAY_MS)
    assert ids.is_empty(SLICE_MS + DAY_MS)
    assert ids.size_bytes == 0


@rule("An id used within `remember` is never new.", "cost")
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 400), st.booleans()), min_size=1, max_size=80),
    st.integers(1, 6),
    st.integers(0, 2**128 - 1),
    st.integers(0, 8),
)
def test_no_false_negative_within_the_time_to_remember(
    steps: list[tuple[int, int, bool]], layers: int, secret: int, exact_ids: int
) -> None:
    """With a connection's cache in front, that says "known" until the slice ends without telling the
    filter.
    """
    settings = ProducerIdSettings(remember_ms=1_000, layers=layers)
    ids = new_filter(settings, secret=secret, exact_ids=exact_ids)
    cached: dict[int, int] = {}
    last_use_ms: dict[int, int] = {}
    now_ms = 0
    for producer_id, elapsed_ms, has_cache in steps:
        now_ms += elapsed_ms
        for known, used_ms in last_use_ms.items():
            if now_ms - used_ms <= settings.remember_ms:
                assert remembers(ids, known, now_ms), (known, used_ms, now_ms)
        slice_no = now_ms // settings.slice_ms
        if not has_cache or cached.get(producer_id) != slice_no:
            use(ids, producer_id, now_ms, floor=1)
            cached[producer_id] = slice_no
        last_use_ms[producer_id] = now_ms


@given(
    st.sets(st.integers(0, 10**9), max_size=400),
    st.sets(st.integers(0, 10**9), max_size=200),
    st.sampled_from([0, 100, 600]),
)
def test_live_ids_are_counted_once_however_often_they_are_refreshed(
    first: set[int], second: set[int], exact_ids: int
) -> None:
    ids = new_filter(ProducerIdSettings(false_positive_rate=1e-9), exact_ids=exact_ids)
    for now_ms in (0, SLICE_MS, 3 * SLICE_MS):
        for producer_id in first:
            use(ids, producer_id, now_ms)
    for producer_id in second:
        use(ids, producer_id, 3 * SLICE_MS)
    assert ids.live_ids(3 * SLICE_MS) == len(first | second)


def test_a_full_target_is_followed_by_one_of_twice_the_size() -> None:
    ids = new_filter()
    for producer_id in range(SMALLEST_LAYER):
        use(ids, producer_id, 0)
    assert depth(ids) == 1
    for producer_id in range(SMALLEST_LAYER, 3 * SMALLEST_LAYER):
        use(ids, producer_id, 0)
    assert depth(ids) == 2
    use(ids, 10**6, 0)
    assert depth(ids) == 3


def test_the_next_slice_is_made_for_what_lives() -> None:
    ids = new_filter()
    for producer_id in range(5_000):
        use(ids, producer_id, 0)
    grown = depth(ids)
    for producer_id in range(5_000):
        use(ids, producer_id, SLICE_MS)
    assert depth(ids) == grown + 1


def test_at_most_sixteen_layers_then_the_last_fills_up_and_it_is_counted() -> None:
    settings = ProducerIdSettings(layers=12)
    budget = FilterBudget(settings)
    ids = new_filter(settings, budget=budget)
    producer_id = 0
    for slice_no in range(12):
        # After a quiet slice a burst makes four layers: 100, 200, 400, one more.
        for _ in range(701 if slice_no % 2 else 1):
            use(ids, producer_id := producer_id + 1, slice_no * settings.slice_ms)
    assert depth(ids) == MOST_LAYERS
    assert budget.overfull > 0
    now_ms = 11 * settings.slice_ms
    assert all(remembers(ids, known, now_ms) for known in range(1, producer_id + 1))


def test_a_filter_beyond_its_share_fills_up_instead_of_growing() -> None:
    settings = ProducerIdSettings(max_live_ids=25_000, layers=1)
    budget = FilterBudget(settings)
    first, second = (new_filter(settings, budget=budget, secret=secret) for secret in (1, 2))
    for producer_id in range(41_000):
        use(first, producer_id, 0)
    assert budget.held == budget.limit * 4 // 5 == 40_000
    assert budget.overfull == pytest.approx(1_000, abs=20)  # less the false positives
    for producer_id in range(2_000):
        use(second, producer_id, 0)
    assert budget.held <= budget.limit
    for ids in (first, second):
        ids.expire(10 * DAY_MS)
    assert budget.held == 0


def test_a_quota_that_promises_billions_holds_memory_for_what_is_used() -> None:
    budget = FilterBudget(ProducerIdSettings())
    ids = new_filter(budget=budget)
    use(ids, 1, 0, floor=2**31 - 1)
    assert budget.held == LARGEST_FIRST_LAYER
    for producer_id in range(2, 10_002):
        use(ids, producer_id, 0, floor=2**31 - 1)
    assert budget.held == 3 * LARGEST_FIRST_LAYER
    assert depth(ids) == 2


def test_new_settings_hold_for_layers_that_exist() -> None:
    ids = new_filter()
    use(ids, 1, 0)
    ids.reshape(ProducerIdSettings(remember_ms=3_600_000), 0)
    assert remembers(ids, 1, SLICE_MS + 3_600_000 - 1)
    assert not remembers(ids, 1, SLICE_MS + 3_600_000)
    longer = new_filter()
    use(longer, 1, 0)
    longer.reshape(ProducerIdSettings(remember_ms=2 * DAY_MS), 0)
    assert remembers(longer, 1, SLICE_MS + 2 * DAY_MS - 1)


@rule("False positives of the filter stay within the target.", "cost")
@pytest.mark.parametrize("live_per_quota", [1, 50])
def test_false_positives_stay_within_the_target(live_per_quota: int) -> None:
    """Sequential ids in blocks of 1,000, all refreshed in every slice, over three times the time to
    remember.
    """
    settings = ProducerIdSettings()
    live, floor, probes, positives = 100 * live_per_quota, 25, 0, 0
    ids = new_filter(settings)
    blocks = [number // 1_000 * 7_000 + number % 1_000 for number in range(live)]
    for slice_no in range(3 * settings.layers):
        now_ms = slice_no * settings.slice_ms
        for producer_id in blocks:
            use(ids, producer_id, now_ms, floor)
        if slice_no >= settings.layers:
            block = 10**9 + slice_no * 100_000
            for producer_id in range(block, block + 4_000):
                probes += 1
                positives += remembers(ids, producer_id, now_ms)
    assert depth(ids) <= MOST_LAYERS
    assert probes == 32_000
    # Binomial with p = 0.001: mean 32, standard deviation 5.7; the layers' shares leave room besides.
    assert positives <= 32 + 3 * 6


def test_memory_is_as_stated() -> None:
    """2.6 bytes an id and slice of use: 10 million ids in use throughout come to 150 MB."""
    settings = ProducerIdSettings()
    live = 8_000
    ids = new_filter(settings)
    for slice_no in range(7):
        for producer_id in range(live):
            use(ids, producer_id, slice_no * settings.slice_ms)
    assert depth(ids) == settings.layers + 1
    assert ids.size_bytes / live <= 15.0
    seen_once = new_filter(settings)
    for producer_id in range(7 * live):
        use(seen_once, producer_id, producer_id // live * settings.slice_ms)
    assert seen_once.size_bytes / (5 * live) <= 3.0
