"""What outlives a process: histories, exports, balances; sizes of restored filters."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.quota.decisions import Reason
from pidgate.quota.layered_filter import MOST_LAYERS, LayerState
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import BucketState, UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.bounds import THOROUGH
from tests.support.questions import is_refused, question
from tests.support.rules import rule
from tests.support.state_dirs import layer as a_layer
from tests.unit.quota.histories import check_copy, check_restart, copied
from tests.unit.quota.world import HOUR_MS, enforcing, seeds

DAY_MS = 24 * HOUR_MS
SLICE_MS = DAY_MS // 4
TOKEN = HOUR_MS * 1_000


def state(quotas: Quotas | None = None, now_ms: int = 0, first_seed: int = 1_000) -> ProducerIdQuota:
    return ProducerIdQuota(quotas or enforcing(100), seeds(first_seed), now_ms)


@rule("A restored state remembers its ids and balances.", "fleet")
@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_replay_remembers_all_ids_and_has_the_same_tokens(rng: Random) -> None:
    check_restart(rng, ProducerIdQuota)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_imported_state_gives_the_same_answers(rng: Random) -> None:
    check_copy(rng, ProducerIdQuota)


def test_a_restored_id_is_known_and_costs_nothing() -> None:
    restored = state()
    restored.restorer.restore_id("alice", 7, -HOUR_MS, 0)
    assert restored.table.remembers("alice", 7, 0)
    assert restored.status("alice", 0).tokens == 100
    answer = restored.decide(*question("alice", 7), 0)
    assert [decision.reason for decision in answer.decisions] == [Reason.REFRESH]
    assert not restored.table.remembers("alice", 8, 0)


def test_what_is_too_old_is_skipped_and_makes_no_user() -> None:
    """Told of once a slice, an id may have been used up to a slice later."""
    restored = state()
    oldest_ms = -DAY_MS - SLICE_MS - SLICE_MS // 64
    restored.restorer.restore_id("alice", 7, oldest_ms, 0)
    assert restored.users() == []
    restored.restorer.restore_id("alice", 7, oldest_ms + 1, 0)
    assert restored.table.remembers("alice", 7, 0)
    assert not restored.table.remembers("alice", 7, SLICE_MS)


@rule("A timestamp in the future counts as now.", "fleet")
@pytest.mark.parametrize("ahead_ms", [1, SLICE_MS, 1_000 * DAY_MS])
def test_a_use_in_the_future_counts_as_now(ahead_ms: int) -> None:
    """The broker's clock may be ahead of ours; an id must not stay for ever because of that."""
    restored = state()
    restored.restorer.restore_id("alice", 7, ahead_ms, 0)
    last_ms = DAY_MS + SLICE_MS + SLICE_MS // 64
    assert restored.table.remembers("alice", 7, last_ms - 1)
    assert not restored.table.remembers("alice", 7, last_ms)


@rule("A restored state remembers its ids and balances.", "fleet")
def test_a_balance_is_refilled_since_its_moment_and_the_newest_counts() -> None:
    restored = state()
    restored.restorer.restore_tokens("alice", 10 * TOKEN, TOKEN, -360_000)
    restored.restorer.restore_tokens("alice", 99 * TOKEN, TOKEN, -720_000)
    assert restored.status("alice", 0).tokens == 20
    restored.restorer.restore_tokens("alice", -TOKEN, TOKEN, -36_000)
    assert restored.status("alice", 0).tokens == 0
    restored.restorer.restore_tokens("alice", 5 * TOKEN, TOKEN, -36_000)  # of two at one moment the later one
    assert restored.status("alice", 0).tokens == 6


def test_a_balance_of_another_window_keeps_its_tokens() -> None:
    restored = state()
    restored.restorer.restore_tokens("alice", 30 * 60_000_000, 60_000_000, 0)
    assert restored.status("alice", 0).tokens == 30
    restored.restorer.restore_tokens("alice", -(60_000_000 // 2), 60_000_000, 0)
    assert restored.status("alice", 0).tokens == -0.5


@pytest.mark.parametrize(("units", "tokens"), [(10**20, 100), (-(10**20), -100)])
def test_an_impossible_balance_is_brought_into_bounds(units: int, tokens: int) -> None:
    restored = state()
    restored.restorer.restore_tokens("alice", units, TOKEN, 0)
    assert restored.status("alice", 0).tokens == tokens


def test_a_balance_needs_a_token_and_a_rate() -> None:
    restored = state(enforcing(None))
    restored.restorer.restore_tokens("alice", 5, TOKEN, 0)
    assert restored.status("alice", 0).tokens is None
    with pytest.raises(ValueError, match="token"):
        restored.restorer.restore_tokens("alice", 5, 0, 0)


def test_a_positive_balance_keeps_its_fraction_when_the_rate_has_changed_meanwhile() -> None:
    original = state(enforcing(100, cluster_rate_milli=1_000_000))
    for producer_id in range(50):
        original.decide(*question("alice", producer_id), 0)
    copy = copied(original, ProducerIdQuota, enforcing(200, cluster_rate_milli=2_000_000), 0, 0)
    assert copy.status("alice", 0).tokens == 100
    cluster = copy.restorer.export_cluster_bucket(0)
    assert cluster == BucketState(1_900 * TOKEN, TOKEN, 2_000_000, 1_900 * TOKEN)


def test_a_bucket_outlives_a_removed_rate_in_an_export_too() -> None:
    original = state()
    for producer_id in range(50):
        original.decide(*question("alice", producer_id), 0)
    without = copied(original, ProducerIdQuota, enforcing(None), 0, 0)
    assert without.status("alice", 0).tokens is None
    without.set_quotas(enforcing(100), 0)
    assert without.status("alice", 0).tokens == 50


def test_a_bound_for_the_cluster_that_came_or_went_while_away() -> None:
    assert state().restorer.export_cluster_bucket(0) is None
    gone = state()
    gone.restorer.import_cluster_bucket(BucketState(5, TOKEN, 1_000), 0)
    assert gone.restorer.export_cluster_bucket(0) is None
    came = state(enforcing(100, cluster_rate_milli=1_000))
    came.restorer.import_cluster_bucket(None, 0)
    assert came.restorer.export_cluster_bucket(0) == BucketState(TOKEN, TOKEN, 1_000, TOKEN)


def test_users_may_come_and_go_while_they_are_exported() -> None:
    original = state()
    for user in ("alice", "bob", "carol"):
        original.decide(*question(user, 1), 0)
    export = original.restorer.export_users(0)
    assert next(export).user == "alice"
    original.decide(*question("dave", 1), 0)
    original.sweep(10 * DAY_MS)  # all of them are over
    assert list(export) == []


def test_a_balance_that_is_exported_late_is_that_of_the_exports_moment() -> None:
    """An export of many users takes a while, in which decisions go on."""
    original = state()
    for producer_id in range(100):
        original.decide(*question("alice", producer_id), 0)
    assert original.status("alice", 360_000).tokens == 10
    copy = copied(original, ProducerIdQuota, enforcing(100), 0, 0)
    assert copy.status("alice", 360_000).tokens == 10


def test_importing_a_user_replaces_what_was_known_and_frees_its_room() -> None:
    original, copy = state(), state(first_seed=5)
    original.decide(*question("alice", 1), 0)
    copy.decide(*question("alice", 2), 0)
    [exported] = original.restorer.export_users(0)
    for _ in range(3):
        copy.restorer.import_user(exported, 0)
    assert copy.table.remembers("alice", 1, 0)
    assert not copy.table.remembers("alice", 2, 0)
    assert copy.table._budget.held == original.table._budget.held


@pytest.mark.parametrize(
    ("is_exact", "damage"),
    [
        (False, {"data": b""}),
        (False, {"bits": 8}),
        (False, {"hashes": 0}),
        (False, {"design_count": 0}),
        (False, {"count": -1}),
        (True, {"data": b""}),
        (True, {"data": b"1234567"}),
        (True, {"bits": 8}),
        (True, {"hashes": 1, "bits": 4}),
        (True, {"count": 2}),
    ],
)
def test_an_impossible_layer_is_refused_and_nothing_is_changed(
    is_exact: bool, damage: dict[str, Any]
) -> None:
    original, copy = state(), state(first_seed=5)
    original.decide(*question("alice", 1), 0)
    copy.decide(*question("alice", 2), 0)
    [exported] = original.restorer.export_users(0)
    layers = exported.layers if is_exact else (a_layer(1),)
    broken = replace(exported, layers=tuple(replace(layer, **damage) for layer in layers))
    with pytest.raises(ValueError):
        copy.restorer.import_user(broken, 0)
    assert copy.table.remembers("alice", 2, 0)


@pytest.mark.parametrize("bucket", [BucketState(0, 0, 1), BucketState(0, 1_001, 1), BucketState(0, 1_000, 0)])
def test_an_impossible_bucket_is_refused(bucket: BucketState) -> None:
    with pytest.raises(ValueError):
        state().restorer.import_user(UserState("alice", (77, 78), (), bucket), 0)
    with pytest.raises(ValueError):
        state(enforcing(1, cluster_rate_milli=1_000)).restorer.import_cluster_bucket(bucket, 0)


def test_ages_below_0_are_open_slices() -> None:
    original = state()
    original.decide(*question("alice", 1), 1_000)
    [exported] = original.restorer.export_users(1_000)
    [layer] = exported.layers
    assert isinstance(layer, LayerState)
    assert (layer.slice_age_ms, layer.used_age_ms) == (1_000 - SLICE_MS, 1_000 - SLICE_MS)
    assert (layer.count, layer.newest_of, len(layer.data)) == (1, 1, (layer.bits + 7) // 8)


def test_a_layer_from_longer_slices_is_not_the_current_one_for_hours() -> None:
    """remember was 24 h and is 1 h now: what was open goes on to be remembered, and is refreshed."""
    original = state()
    original.decide(*question("alice", 1), 0)
    shorter = enforcing(100, remember_ms=HOUR_MS)
    copy = copied(original, ProducerIdQuota, shorter, 0, 0)
    assert [decision.reason for decision in copy.decide(*question("alice", 1), 0).decisions] == [
        Reason.REFRESH
    ]
    quarter_ms = HOUR_MS // 4
    assert not copy.table.remembers("alice", 1, HOUR_MS + 2 * quarter_ms)


# Sizes


@pytest.mark.parametrize("ids", [1_000, 20_000 if THOROUGH else 5_000])
@pytest.mark.parametrize("rate", [1, 100, None])
def test_a_history_in_the_order_of_time_makes_few_layers(ids: int, rate: int | None) -> None:
    """Each id once, then all of them refreshed: as many layers as a running gateway would have."""
    restored = state(enforcing(rate, false_positive_rate=1e-9))
    for slice_no in range(-5, 0):
        for producer_id in range(ids):
            used_ms = slice_no * SLICE_MS + producer_id * SLICE_MS // ids
            restored.restorer.restore_id("alice", producer_id, used_ms, 0)
    assert restored.table.overfull_inserts == 0
    assert restored.status("alice", 0).live_ids == ids
    layers = next(restored.restorer.export_users(0)).layers
    assert len(layers) <= 13
    assert sum(layer.design_count for layer in layers) <= 8 * max(ids, 1_000)
    for producer_id in range(ids):  # the next slice is made for all of them
        restored.decide(*question("alice", producer_id), 0)
    assert restored.table.overfull_inserts == 0
    assert len(next(restored.restorer.export_users(0)).layers) <= len(layers) + 1


@pytest.mark.parametrize("drift", [0, 3, SLICE_MS])
def test_a_restart_every_few_minutes_for_three_days_fills_no_layer(drift: int) -> None:
    """Clocks read twice differ by milliseconds, those of another machine by anything."""
    rng = Random(drift)
    live, quotas = 300, enforcing(300)
    current, now_ms, shift_ms, restarts = state(quotas), 0, 0, 0
    while now_ms < 3 * DAY_MS:
        for producer_id in range(live):
            assert not is_refused(current.decide(*question("alice", producer_id), now_ms + shift_ms))
        now_ms += rng.randint(1, HOUR_MS)
        exported_ms = now_ms + shift_ms
        shift_ms += rng.randint(-drift, drift)
        current = copied(current, ProducerIdQuota, quotas, exported_ms, now_ms + shift_ms)
        restarts += 1
        [alice] = current.restorer.export_users(now_ms + shift_ms)
        assert len(alice.layers) <= MOST_LAYERS
    assert restarts > 100
    assert current.table.overfull_inserts == 0
    assert all(current.table.remembers("alice", known, now_ms + shift_ms) for known in range(live))


def test_a_short_first_slice_after_a_restart_does_not_make_the_next_one_too_small() -> None:
    quotas = enforcing(None)
    original = state(quotas)
    for producer_id in range(5_000):
        original.decide(*question("alice", producer_id), 0)
    # Ours ends five minutes from now, theirs has ended.
    restored_ms = SLICE_MS - 300_000
    copy = copied(original, ProducerIdQuota, quotas, SLICE_MS, restored_ms)
    for producer_id in range(200):
        copy.decide(*question("alice", producer_id), restored_ms)
    depth = len(next(copy.restorer.export_users(restored_ms)).layers)
    for producer_id in range(5_000):
        copy.decide(*question("alice", producer_id), SLICE_MS)
    assert len(next(copy.restorer.export_users(SLICE_MS)).layers) == depth + 1


def test_remembering_follows_the_settings_of_the_new_process() -> None:
    original = state()
    original.decide(*question("alice", 1), 0)
    longer = Quotas(
        mode=Mode.ENFORCE,
        producer_ids=ProducerIdSettings(remember_ms=2 * DAY_MS, burst=Fraction(2)),
        default=UserQuota.per_window(100),
    )
    copy = copied(original, ProducerIdQuota, longer, 0, 0)
    assert copy.table.remembers("alice", 1, SLICE_MS + 2 * DAY_MS - 1)
    assert not copy.table.remembers("alice", 1, 2 * SLICE_MS + 2 * DAY_MS)


def test_charges_of_the_cluster_count_only_under_its_rate() -> None:
    alone = state()
    alone.restorer.restore_cluster_charges([-1])
    assert alone.restorer.export_cluster_bucket(0) is None
    together = state(enforcing(100, cluster_rate_milli=10_000))
    together.restorer.restore_cluster_charges([-1, -2, -3])
    cluster = together.restorer.export_cluster_bucket(0)
    assert cluster is not None
    assert 7 * cluster.token_units <= cluster.units < 8 * cluster.token_units
    # A balance that is imported later includes what came before it.
    together.restorer.import_cluster_bucket(cluster, 0)
    together.restorer.restore_cluster_charges([-1])
    assert together.restorer.export_cluster_bucket(0) == cluster


def test_only_changed_users_are_exported_again() -> None:
    original = state()
    for user in ("alice", "bob"):
        original.decide(*question(user, 1), 0)
    assert [one and one.user for one in original.restorer.export_changed(0)] == ["alice", "bob"]
    original.decide(*question("bob", 2), 0)
    assert [one and one.user for one in original.restorer.export_changed(0)] == [None, "bob"]


def test_a_user_with_an_impossible_layer_is_not_taken_in_half() -> None:
    original, other = state(), state()
    original.decide(*question("alice", 1), 0)
    original.decide(*question("alice", 2, transactional=True), 0)
    (exported,) = original.restorer.export_users(0)
    broken = replace(
        exported,
        layers=tuple(replace(layer, count=0) if layer.transactional else layer for layer in exported.layers),
    )
    with pytest.raises(ValueError, match="no exact slice"):
        other.restorer.import_user(broken, 0)
    assert (other.users(), other.table._budget.held) == ([], 0)
    assert replace(exported, grace_admitted=3).without_grace() == exported
