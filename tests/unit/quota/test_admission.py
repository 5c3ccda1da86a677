"""The quota as a connection sees it: scripts of requests and verdicts, in the order of the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import FORWARD, Bound, Close, Forward, Reason, Refuse
from pidgate.quota.entities import unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.sticky import WATCH_MS, Position, StickyRefusals
from pidgate.quota.sticky_entries import COMES_BACK_WITHIN_MS, StickyEntry
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds, table_of

SLICE_MS = 6 * HOUR_MS


def exhausted(rate: int = 100) -> World:
    """A world in which alice has no tokens left."""
    world = World(enforcing(rate))
    world.spend(rate + 1)
    return world


# The bucket, seen from a connection


def test_vector_hundred_an_hour() -> None:
    world = World(enforcing(100))
    client = world.connect()
    admitted = [isinstance(world.judge(client, batch(number)), Forward) for number in range(102)]
    assert admitted == [True] * 101 + [False]
    world.now_ms = 36_000
    assert isinstance(world.judge(world.connect(), batch(5_000)), Forward)
    refused = world.refusal(world.connect(), batch(5_001))
    assert (refused.throttle_time_ms, refused.reason) == (10_000, Reason.FIRST_SEEN)
    assert refused.rearms_mute


@rule("A refused request spends no tokens, and a refused id is not remembered.", "cost")
def test_what_is_refused_costs_nothing_and_is_not_remembered() -> None:
    world = exhausted()
    before = table_of(world.admission).filter_bytes
    for number in range(500):
        world.refusal(world.connect(), batch(number))
    assert table_of(world.admission).filter_bytes == before
    (snapshot,) = world.admission.user_snapshots(0)
    assert snapshot.live_ids == 101
    assert snapshot.tokens == -1


def test_a_refusal_tells_what_its_message_needs() -> None:
    world = exhausted()
    refused = world.refusal(world.connect(), batch(4711, 0, topic=b"orders", partition=3))
    assert (refused.user, refused.producer_id) == ("alice", 4711)
    assert (refused.rate_milli, refused.window_ms, refused.bound) == (100_000, HOUR_MS, Bound.USER)
    (decision,) = refused.decisions
    assert (decision.admitted, decision.reason) == (False, Reason.FIRST_SEEN)
    assert (decision.topic, decision.partition, decision.base_sequence) == (b"orders", 3, 0)
    assert decision.tokens_before == decision.tokens_after == -HOUR_MS * 1_000
    assert (decision.throttle_time_ms, decision.request_partitions) == (10_000, 1)


def test_requests_without_producer_ids_pass() -> None:
    world = exhausted()
    assert world.judge(world.connect()) is FORWARD


@rule("A newer epoch of a known id costs nothing.", "cost")
def test_an_admitted_id_is_not_charged_again_on_any_connection() -> None:
    world = World(enforcing(100))
    first = world.judge(world.connect(), batch(1))
    assert isinstance(first, Forward)
    assert [decision.reason for decision in first.decisions] == [Reason.FIRST_SEEN]
    assert world.judge(world.connect(), batch(1, 0, partition=7, epoch=3)) is FORWARD
    assert next(world.admission.user_snapshots(0)).tokens == 99


@rule("A cached id is looked up again in each slice, so an id in use stays remembered.", "cost")
def test_an_id_is_looked_up_again_once_a_slice_and_refreshed_free_of_charge() -> None:
    world = World(enforcing(100))
    client = world.connect()
    world.judge(client, batch(1))
    for slice_no in range(1, 12):
        world.now_ms = slice_no * SLICE_MS
        verdict = world.judge(client, batch(1, slice_no))
        assert isinstance(verdict, Forward)
        assert [decision.reason for decision in verdict.decisions] == [Reason.REFRESH]
        assert world.judge(client, batch(1, slice_no)) is FORWARD
    assert next(world.admission.user_snapshots(world.now_ms)).admitted == {"first_seen": 1, "refresh": 11}


@rule("A refused request spends no tokens, and a refused id is not remembered.", "cost")
def test_a_request_that_mixes_ids_is_refused_whole_and_costs_nothing() -> None:
    world = World(enforcing(2))
    world.spend(2)  # one more would pass, two would not
    client = world.connect()
    refused = world.refusal(client, batch(1), batch(2))
    assert [decision.producer_id for decision in refused.decisions] == [2]
    assert next(world.admission.user_snapshots(0)).tokens == 0
    assert world.admission.sticky.count_entries("alice") == 2
    assert isinstance(world.judge(client, batch(1)), Forward)


@rule("A request is refused as a whole: each of its batches gets an entry.", "order")
def test_a_remembered_id_in_a_refused_request_gets_its_entry_too() -> None:
    world = World(enforcing(1))
    client = world.connect()
    world.judge(client, batch(1))
    world.spend(1)
    world.refusal(client, batch(1, 5), batch(2))
    assert world.refusal(client, batch(1, 6)).reason is Reason.STICKY
    assert isinstance(world.judge(client, batch(1, 5)), Forward)
    assert isinstance(world.judge(client, batch(1, 6)), Forward)


# Sticky, before everything


@rule(
    "Everything above a refused batch is refused while its entry stands, with any number in flight.", "order"
)
def test_higher_batches_are_refused_although_the_id_was_admitted_meanwhile() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1, 0, partition=0))
    world.refusal(client, batch(1, 0, partition=1))
    world.now_ms = 36_000
    assert isinstance(world.judge(client, batch(1, 0, partition=1)), Forward)
    world.now_ms = 39_000
    sticky = world.refusal(client, batch(1, 1, partition=0))
    assert (sticky.reason, sticky.rearms_mute, sticky.throttle_time_ms) == (Reason.STICKY, False, 100)
    assert isinstance(world.judge(client, batch(1, 0, partition=0)), Forward)
    assert world.judge(client, batch(1, 1, partition=0)) is FORWARD


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
def test_a_cached_id_is_not_served_from_the_cache_while_it_is_watched() -> None:
    world = exhausted()
    client, other = world.connect(), world.connect()
    world.refusal(other, batch(1))
    world.now_ms = 36_000
    assert isinstance(world.judge(client, batch(1)), Forward)
    assert 1 in client.admitted
    assert world.refusal(client, batch(1, 7, partition=1)).reason is Reason.ESTABLISHED


def test_refusals_above_are_answered_with_what_is_left() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 3_000
    ahead = world.read_ahead(client, batch(1, 1))
    assert isinstance(ahead, Refuse)
    assert (ahead.throttle_time_ms, ahead.rearms_mute, ahead.reason) == (7_000, False, Reason.STICKY)


@rule(
    "A refused batch that is overdue closes the connection at the next one above it, and its entry ends.",
    "order",
)
@pytest.mark.parametrize("where", ["behind a mute", "next in line"])
def test_higher_batches_without_the_refused_one_close_when_it_is_overdue(where: str) -> None:
    world = exhausted()
    client = world.connect()
    refused = world.refusal(client, batch(1))
    ask = world.read_ahead if where == "behind a mute" else world.judge
    for base_sequence in range(1, 40):
        assert isinstance(ask(client, batch(1, base_sequence)), Refuse)
    world.now_ms += refused.throttle_time_ms + COMES_BACK_WITHIN_MS - 1
    assert isinstance(ask(client, batch(1, 40)), Refuse)
    world.now_ms += 1
    assert ask(client, batch(1, 41)) == Close("sticky_batch_missing", 1)


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
@pytest.mark.parametrize(
    "changed",
    [
        enforcing(100, mode=Mode.OBSERVE),
        enforcing(1_000_000),
        enforcing(None),
        enforcing(100, users={"alice": UserQuota(exempt=True)}),
    ],
    ids=["observe", "raised", "removed", "exempt"],
)
def test_no_change_of_quotas_lifts_what_was_refused(changed: Quotas) -> None:
    world = exhausted()
    client, elsewhere = world.connect(), world.connect()
    world.refusal(client, batch(1))
    world.admission.set_quotas(changed, 0)
    assert world.refusal(client, batch(1, 1)).reason is Reason.STICKY
    # What lies unread behind the mute comes first on another partition as well: the client's retry sends it.
    assert world.refusal(elsewhere, batch(1, 4, partition=1)).reason is Reason.ESTABLISHED
    world.now_ms = 10_000  # a raised rate is felt when the throttle that was announced is over
    assert isinstance(world.judge(client, batch(1)), Forward)
    assert world.judge(client, batch(1, 1)) is FORWARD


@pytest.mark.parametrize(
    "changed", [enforcing(100, mode=Mode.OBSERVE), enforcing(None)], ids=["observe", "removed"]
)
def test_an_end_of_enforcement_is_felt_at_once(changed: Quotas) -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.admission.set_quotas(changed, 0)
    assert isinstance(world.judge(client, batch(1)), Forward)


def test_a_closed_connection_frees_its_partitions_and_nothing_else() -> None:
    world = exhausted()
    first, second = world.connect(), world.connect()
    world.refusal(first, batch(1, 0, partition=0))
    world.refusal(second, batch(1, 0, partition=1))
    world.close(first)
    world.now_ms = 36_000
    again = world.connect()
    assert isinstance(world.judge(again, batch(1, 0, partition=0)), Forward)
    assert world.judge(again, batch(1, 1, partition=0)) is FORWARD
    assert world.refusal(again, batch(1, 1, partition=1)).reason is Reason.STICKY


def test_a_newer_epoch_starts_its_partition_anew() -> None:
    world = exhausted()
    client = world.connect()
    for world.now_ms in (0, 6_000):
        world.refusal(client, batch(1, 10, epoch=0), batch(1, 10, epoch=0, partition=1))
    world.now_ms = 36_000
    assert isinstance(world.judge(client, batch(1, 0, epoch=1)), Forward)
    assert world.judge(client, batch(1, 1, epoch=1)) is FORWARD
    assert world.refusal(client, batch(1, 11, partition=1)).reason is Reason.STICKY


def test_several_batches_of_one_partition_pass_together() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1, 0), batch(1, 5))
    world.now_ms = 36_000
    assert isinstance(world.judge(client, batch(1, 0), batch(1, 5)), Forward)


@rule("A full table of entries closes the connection and drops no other user's entry.", "order")
def test_a_full_table_closes_instead_of_answering_and_spares_other_users() -> None:
    world = World(enforcing(1, sticky_entries=2))
    world.spend(2)
    world.spend(2, user="bob")
    client = world.connect()
    world.refusal(client, batch(1))
    assert world.judge(client, batch(2), batch(2, partition=1)) == Close("sticky_table_full", 2)
    world.refusal(client, batch(2))
    assert world.judge(client, batch(3)) == Close("sticky_table_full", 3)
    world.refusal(world.connect("bob"), batch(3))
    assert next(world.admission.user_snapshots(0)).closed == {"sticky_table_full": 2}
    world.close(client)
    world.refusal(world.connect(), batch(3))


# First sight above 0


@rule("The first batch of an unknown id above sequence 0 is refused once, for 100 ms.", "order")
def test_an_unknown_id_above_0_is_refused_once_for_100_ms() -> None:
    world = World(enforcing(100))
    client = world.connect()
    refused = world.refusal(client, batch(1, 50))
    assert (refused.reason, refused.throttle_time_ms) == (Reason.ESTABLISHED, 100)
    assert refused.rearms_mute
    assert world.refusal(client, batch(1, 55)).reason is Reason.STICKY
    world.now_ms = 100
    assert isinstance(world.judge(client, batch(1, 50)), Forward)
    assert world.judge(client, batch(1, 55)) is FORWARD
    assert next(world.admission.user_snapshots(100)).tokens == pytest.approx(99, abs=0.01)


def test_after_first_sight_the_ordinary_decision_may_refuse() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1, 50))
    world.now_ms = 100
    refused = world.refusal(client, batch(1, 50))
    assert (refused.reason, refused.throttle_time_ms) == (Reason.QUEUE, 10_000)


def test_a_lower_batch_may_come_first_after_all() -> None:
    world = World(enforcing(100))
    client, elsewhere = world.connect(), world.connect()
    world.refusal(client, batch(1, 50))
    assert isinstance(world.judge(elsewhere, batch(1, 0)), Forward)
    assert world.judge(elsewhere, batch(1, 50)) is FORWARD


@rule("A batch has passed only on the connection it was forwarded on.", "order")
def test_what_went_over_another_connection_may_have_found_no_leader() -> None:
    world = World(enforcing(100))
    old_leader, new_leader = world.connect(), world.connect()
    world.refusal(old_leader, batch(1, 50))
    assert isinstance(world.judge(old_leader, batch(1, 0)), Forward)
    assert world.refusal(new_leader, batch(1, 51)).reason is Reason.ESTABLISHED
    world.now_ms += 100
    assert world.judge(new_leader, batch(1, 51)) is FORWARD


def test_every_partition_of_a_refused_id_is_looked_at_once() -> None:
    world = exhausted()
    client, elsewhere = world.connect(), world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 36_000
    world.judge(client, batch(1))
    assert world.refusal(elsewhere, batch(1, 9, partition=1)).reason is Reason.ESTABLISHED
    assert world.judge(elsewhere, batch(1, 9, partition=1)) is FORWARD
    assert world.judge(elsewhere, batch(1, 12, partition=1)) is FORWARD
    assert world.judge(elsewhere, batch(1, 0, partition=2)) is FORWARD
    assert world.judge(elsewhere, batch(1, 3, partition=2)) is FORWARD


def test_after_five_minutes_an_admitted_id_is_an_id_like_any_other() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 36_000
    world.judge(client, batch(1))
    world.now_ms += WATCH_MS
    world.admission.sweep(world.now_ms)
    assert world.judge(client, batch(1, 9, partition=1)) is FORWARD


def test_known_ids_start_new_partitions_wherever_they_like() -> None:
    world = World(enforcing(100))
    client = world.connect()
    world.judge(client, batch(1))
    world.now_ms = WATCH_MS
    assert world.judge(world.connect(), batch(1, 99, partition=1)) is FORWARD


@rule("A gateway watches new ids and the ids that other gateways refused.", "order")
def test_a_young_id_above_0_on_an_unknown_partition_may_have_been_refused_elsewhere() -> None:
    world = World(enforcing(100))
    client, elsewhere = world.connect(), world.connect()
    world.judge(client, batch(1))
    assert world.judge(client, batch(1, 1)) is FORWARD
    refused = world.refusal(elsewhere, batch(1, 3, partition=1))
    assert (refused.reason, refused.throttle_time_ms) == (Reason.ESTABLISHED, 100)
    world.now_ms = 100
    assert world.judge(elsewhere, batch(1, 3, partition=1)) is FORWARD


@pytest.mark.parametrize(
    ("user", "quotas"),
    [
        ("alice", enforcing(0, mode=Mode.OBSERVE)),
        ("alice", enforcing(0, users={"alice": UserQuota(exempt=True)})),
        ("alice", enforcing(None)),
        (
            unidentified("OAUTHBEARER"),
            enforcing(0, users={unidentified("OAUTHBEARER"): UserQuota(exempt=True)}),
        ),
    ],
    ids=["observed", "exempt", "unlimited", "unidentified and exempt"],
)
def test_who_is_not_bounded_is_never_refused(user: str, quotas: Quotas) -> None:
    world = World(quotas)
    for number in range(300):
        assert isinstance(world.judge(world.connect(user), batch(number, number)), Forward)


def test_who_cannot_be_identified_has_a_quota() -> None:
    world = World(enforcing(0))
    assert world.refusal(world.connect(unidentified("OAUTHBEARER")), batch(1)).reason is Reason.BLOCKED


# Deadlines and coming back


@rule("A new connection does not shed the throttle.", "mutes")
def test_a_new_connection_does_not_shed_the_throttle() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.close(client)
    world.now_ms = 4_000
    refused = world.refusal(world.connect(), batch(1))
    assert (refused.reason, refused.throttle_time_ms) == (Reason.DEADLINE, 6_000)
    assert refused.rearms_mute
    world.now_ms = 9_950
    assert world.refusal(world.connect(), batch(1)).throttle_time_ms == 100
    assert next(world.admission.user_snapshots(world.now_ms)).waiting == 1


@rule("A throttle ends in time: never above max_throttle, and not extended by an early return.", "mutes")
def test_what_is_left_does_not_move_the_deadline() -> None:
    world = exhausted()
    world.refusal(world.connect(), batch(1))
    for now_ms in (2_000, 5_000, 8_000):
        world.now_ms = now_ms
        assert world.refusal(world.connect(), batch(1)).throttle_time_ms == 10_000 - now_ms


def test_an_id_that_is_watched_because_it_is_new_has_not_waited() -> None:
    world = World(enforcing(100, remember_ms=4 * 60_000, window_ms=60_000))
    client = world.connect()
    world.judge(client, batch(1))
    world.now_ms = WATCH_MS - 1
    verdict = world.judge(client, batch(1, 1))
    assert isinstance(verdict, Forward)
    assert [(one.reason, one.waited_ms) for one in verdict.decisions] == [(Reason.REFRESH, None)]
    (snapshot,) = world.admission.user_snapshots(world.now_ms)
    assert snapshot.outcomes["admitted_after_waiting"] == 0


@rule("Returning ids are served before new ones, in turns by address.", "cost")
def test_an_id_that_came_back_goes_before_those_seen_first() -> None:
    world = exhausted()
    faithful, new = world.connect(), world.connect(address="10.0.0.2")
    world.refusal(faithful, batch(1))
    world.now_ms = 10_000
    queued = world.refusal(faithful, batch(1))
    assert (queued.reason, queued.decisions[0].queue_position) == (Reason.QUEUE, 0)
    world.now_ms = 36_000
    assert world.refusal(new, batch(2)).reason is Reason.FIRST_SEEN
    verdict = world.judge(faithful, batch(1))
    assert isinstance(verdict, Forward)
    assert (verdict.decisions[0].reason, verdict.decisions[0].waited_ms) == (Reason.QUEUE, 36_000)
    (snapshot,) = world.admission.user_snapshots(world.now_ms)
    assert snapshot.outcomes == {"admitted_after_waiting": 1, "gave_up": 0}
    assert snapshot.waited_ms_buckets == {60_000: 1}
    assert snapshot.waiting == 0


def test_coming_back_is_recognised_on_a_new_connection_after_the_throttle() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1, 0))
    world.close(client)
    world.now_ms = 12_000
    assert world.refusal(world.connect(), batch(1, 0)).reason is Reason.QUEUE


def test_another_partitions_first_batch_is_no_coming_back() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 10_000
    assert world.refusal(client, batch(1, partition=1)).reason is Reason.FIRST_SEEN
    assert next(world.admission.user_snapshots(world.now_ms)).waiting == 0


def test_who_does_not_return_gave_up() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 10_000
    world.refusal(client, batch(1))
    world.now_ms = 50_000
    assert world.admission.sweep(world.now_ms) == []
    assert next(world.admission.user_snapshots(world.now_ms)).oldest_waiting_ms == 50_000
    world.now_ms = 50_001
    (gone,) = world.admission.sweep(world.now_ms)
    assert (gone.user, gone.producer_id, gone.waited_ms, gone.attempts) == ("alice", 1, 10_000, 2)
    (snapshot,) = world.admission.user_snapshots(world.now_ms)
    assert (snapshot.outcomes["gave_up"], snapshot.waiting) == (1, 0)


# Behind a mute


def test_behind_a_mute_the_refused_batch_itself_is_held() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1, 10), batch(1, 10, partition=1))
    assert world.read_ahead(client, batch(1, 10)) is None
    assert world.read_ahead(client, batch(1, 3)) is None
    # In a request with the very batch, a higher one of another partition waits as well.
    assert world.read_ahead(client, batch(1, 11, partition=1), batch(1, 10)) is None
    assert isinstance(world.read_ahead(client, batch(1, 11, partition=1)), Refuse)


def test_behind_a_mute_another_partition_of_the_id_is_refused_until_its_deadline() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 4_000
    refused = world.read_ahead(client, batch(1, 0, partition=1))
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.throttle_time_ms) == (Reason.DEADLINE, 6_000)
    assert not refused.rearms_mute
    assert isinstance(world.read_ahead(client, batch(1, 1, partition=1)), Refuse)
    world.now_ms = 10_000
    assert world.read_ahead(client, batch(1, 0, partition=2)) is None


def test_behind_a_mute_other_producers_wait() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    assert world.read_ahead(client, batch(2)) is None
    assert world.read_ahead(client, batch(1_000_000)) is None


@rule("Behind a mute the first batch of a partition above sequence 0 is refused, not held.", "order")
def test_behind_a_mute_a_first_batch_above_0_is_refused() -> None:
    """Held without a note, it would be overtaken where its leader moves back to a node where the partition passed."""
    world = exhausted()
    first = world.connect()
    assert world.judge(first, batch(1_000_000)) is FORWARD
    client = world.connect()
    world.refusal(client, batch(1))
    refused = world.read_ahead(client, batch(1_000_000, 3))
    assert refused is not None
    assert refused.reason is Reason.ESTABLISHED
    assert world.refusal(first, batch(1_000_000, 5)).reason is Reason.STICKY
    world.admission.set_quotas(enforcing(None), 0)
    assert world.read_ahead(client, batch(1, 0, partition=1)) is None


# Modes, users, bounds


@rule("Observe mode leaves no debt and spends no token of the cluster.", "cost")
def test_observing_remembers_everything_and_leaves_no_debt() -> None:
    world = World(enforcing(10, mode=Mode.OBSERVE))
    client = world.connect()
    for number in range(50):
        verdict = world.judge(client, batch(number))
        assert isinstance(verdict, Forward)
        assert verdict.decisions[0].reason is Reason.OBSERVE
    (snapshot,) = world.admission.user_snapshots(0)
    assert (snapshot.tokens, snapshot.would_refuse, snapshot.live_ids) == (-1, 39, 50)
    world.admission.set_quotas(enforcing(10), 0)
    for number in range(50):
        assert world.judge(world.connect(), batch(number, 9)) is FORWARD
    assert world.refusal(world.connect(), batch(999)).throttle_time_ms == 10_000


def test_rate_0_blocks_new_ids_and_spares_known_ones() -> None:
    world = World(enforcing(10))
    world.judge(world.connect(), batch(1))
    world.admission.set_quotas(enforcing(0), 0)
    assert world.admission.quotas == enforcing(0)
    refused = world.refusal(world.connect(), batch(2))
    assert (refused.reason, refused.throttle_time_ms) == (Reason.BLOCKED, 10_000)
    assert world.judge(world.connect(), batch(1)) is FORWARD
    assert next(world.admission.user_snapshots(0)).tokens is None


def test_a_changed_rate_keeps_the_fraction_and_a_removed_one_is_not_forgotten() -> None:
    world = World(enforcing(100))
    world.spend(75)
    world.admission.set_quotas(enforcing(1_000), 0)
    assert next(world.admission.user_snapshots(0)).tokens == 250
    world.admission.set_quotas(enforcing(None), 0)
    assert next(world.admission.user_snapshots(0)).tokens is None
    world.admission.set_quotas(enforcing(100), 0)
    assert next(world.admission.user_snapshots(0)).tokens == 25


def test_exempt_users_are_counted_and_not_charged() -> None:
    world = World(enforcing(100, users={"mirror": UserQuota(exempt=True)}, cluster_rate_milli=100_000))
    verdict = world.judge(world.connect("mirror"), batch(1))
    assert isinstance(verdict, Forward)
    assert verdict.decisions[0].reason is Reason.EXEMPT
    (snapshot,) = world.admission.user_snapshots(0)
    assert (snapshot.tokens, snapshot.live_ids, snapshot.exempt) == (100, 1, True)
    for number in range(101):  # none of the cluster's tokens is gone
        assert isinstance(world.judge(world.connect("alice"), batch(number)), Forward)


def test_transactional_requests_are_observed_unless_switched_on() -> None:
    world = exhausted()
    verdict = world.judge(world.connect(), batch(1, 7), transactional=True)
    assert isinstance(verdict, Forward)
    assert verdict.decisions[0].reason is Reason.OBSERVE
    switched = World(enforcing(0, transactional=Mode.ENFORCE))
    assert switched.refusal(switched.connect(), batch(1), transactional=True).reason is Reason.BLOCKED


def test_observed_transactions_do_not_pass_what_was_refused() -> None:
    world = exhausted()
    client = world.connect()
    world.refusal(client, batch(1))
    assert world.refusal(client, batch(1, 1), transactional=True).reason is Reason.STICKY


def test_the_clusters_bucket_stands_above_all_users() -> None:
    world = World(enforcing(100, cluster_rate_milli=3_000, users={"free": UserQuota()}))
    for number, user in enumerate(("alice", "bob", "carol", "dave")):
        assert isinstance(world.judge(world.connect(user), batch(number)), Forward)
    refused = world.refusal(world.connect("erin"), batch(9))
    assert (refused.bound, refused.rate_milli) == (Bound.CLUSTER, 3_000)
    world.now_ms = 1_200_000
    assert isinstance(world.judge(world.connect("erin"), batch(9)), Forward)
    assert list(world.admission.user_snapshots(world.now_ms))[-1].tokens == 99


def test_a_cluster_rate_of_0_blocks_users_without_a_limit_too() -> None:
    world = World(enforcing(None, cluster_rate_milli=0))
    refused = world.refusal(world.connect(), batch(9))
    assert (refused.reason, refused.bound) == (Reason.BLOCKED, Bound.CLUSTER)


def test_users_do_not_share_anything() -> None:
    world = exhausted()
    assert isinstance(world.judge(world.connect("bob"), batch(1)), Forward)
    world.refusal(world.connect("alice"), batch(1))


def test_new_slices_make_every_cache_look_again() -> None:
    world = World(enforcing(100))
    client = world.connect()
    world.judge(client, batch(1))
    world.admission.set_quotas(enforcing(100, remember_ms=4_000), 0)
    world.now_ms = 900
    verdict = world.judge(client, batch(1, 1))
    assert isinstance(verdict, Forward)
    assert [decision.reason for decision in verdict.decisions] == [Reason.REFRESH]


def test_idle_users_are_dropped() -> None:
    world = World(enforcing(100))
    world.judge(world.connect(), batch(1))
    world.now_ms = 5 * SLICE_MS - 1
    world.admission.sweep(world.now_ms)
    assert len(list(world.admission.user_snapshots(world.now_ms))) == 1
    world.now_ms += 1
    world.admission.sweep(world.now_ms)
    assert list(world.admission.user_snapshots(world.now_ms)) == []
    assert table_of(world.admission).filter_bytes == 0


def test_who_only_allocates_ids_stays_visible_for_an_hour() -> None:
    world = World(enforcing(100))
    client = world.connect()
    world.admission.owners.learnt("alice", 1, 0, client.connection_id)
    world.close(client)
    world.now_ms = HOUR_MS - 1
    world.admission.sweep(world.now_ms)
    assert [one.unused_ids for one in world.admission.user_snapshots(world.now_ms)] == [1]
    world.now_ms = HOUR_MS
    world.admission.sweep(world.now_ms)
    assert list(world.admission.user_snapshots(world.now_ms)) == []


# Owners, inheritance, topics


@rule("The id handed out at the end of a transaction inherits its predecessor's admission.", "cost")
def test_an_id_handed_out_at_the_end_of_a_transaction_is_not_charged() -> None:
    world = World(enforcing(100))
    world.judge(world.connect(), batch(1), transactional=True)
    world.admission.admit_inherited("alice", 1, 1, 0)
    world.admission.admit_inherited("alice", 1, 2, 0)
    world.admission.admit_inherited(
        "alice", 50, 51, 0
    )  # its predecessor is not remembered: nothing to inherit
    assert world.judge(world.connect(), batch(2), transactional=True) is FORWARD
    (snapshot,) = world.admission.user_snapshots(0)
    assert (snapshot.tokens, snapshot.admitted) == (100, {"observe": 1, "inherited": 1})
    verdict = world.judge(world.connect(), batch(51))
    assert isinstance(verdict, Forward)
    assert verdict.decisions[0].reason is Reason.FIRST_SEEN


def test_ids_that_were_never_produced_with_are_counted_for_their_user() -> None:
    world = World(enforcing(100))
    client = world.connect()
    for producer_id in (1, 2, 3):
        world.admission.owners.learnt("alice", producer_id, 0, client.connection_id)
    world.judge(world.connect(), batch(2))
    world.close(client)
    assert next(world.admission.user_snapshots(0)).unused_ids == 2


def test_a_topic_by_name_or_by_id() -> None:
    world = exhausted()
    client = world.connect()
    world.admission.sticky.topics.learn(b"t", bytes(16))
    world.refusal(client, batch(1, 0))
    by_id = batch(1, 1, topic=b"\x00" + bytes(16))
    assert world.refusal(client, by_id).reason is Reason.STICKY


# Failing


class _Broken(ProducerIdQuota):
    """A state whose decisions, and optionally insertions, fail."""

    def __init__(self, *, inserts: bool) -> None:
        super().__init__(enforcing(1), seeds(), 0)
        self.inserts = inserts

    def decide(self, *_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("broken")

    def insert_uncharged(
        self, user: str, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        if not self.inserts:
            raise ZeroDivisionError("broken")
        super().insert_uncharged(user, producer_id, now_ms, transactional=transactional)


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
@rule("An error inside the quota code forwards traffic and is counted.", "failures")
@pytest.mark.parametrize("inserts", [True, False])
def test_when_the_state_fails_requests_pass_and_what_was_refused_stays_first(inserts: bool) -> None:
    quotas, problems = enforcing(1), list[Exception]()
    sticky = StickyRefusals(100)
    admission = Admission(
        quotas,
        seeds(),
        0,
        state=_Broken(inserts=inserts),
        sticky=sticky,
        on_failure=problems.append,
    )
    world = World(quotas, admission)
    client = world.connect()
    sticky.record_refusal("alice", batch(1, 5), client.connection_id, 0)
    assert world.refusal(client, batch(1, 6)).reason is Reason.STICKY
    verdict = world.judge(client, batch(2))
    assert isinstance(verdict, Forward)
    assert verdict.decisions[0].reason is Reason.FAIL_OPEN
    assert world.refusal(client, batch(1, 6)).reason is Reason.STICKY
    assert isinstance(world.judge(client, batch(1, 5)), Forward)
    assert isinstance(world.judge(client, batch(1, 6)), Forward)
    assert [type(problem) for problem in problems] == [ZeroDivisionError] * len(problems)
    assert admission.fail_open.passed >= 2
    assert table_of(admission).overfull_inserts == 0


# What none may get in front of. That each rule is needed for it, tests/support/mutants.py shows


class _IgnoresEpochs(StickyRefusals):
    def entry_ends_at_epoch(self, entry: StickyEntry, epoch: int) -> bool:
        return False


def later_batch_of_another_partition(world: World) -> bool:
    """The id is admitted by one partition, while on another a batch before this one is still to come."""
    client = world.connect()
    world.refusal(client, batch(1), batch(1, partition=1))
    world.now_ms = 36_000
    world.judge(client, batch(1))
    return isinstance(world.judge(client, batch(1, 1, partition=1)), Forward)


def later_batch_after_a_change_of_mode(world: World) -> bool:
    client = world.connect()
    world.refusal(client, batch(1))
    world.admission.set_quotas(enforcing(100, mode=Mode.OBSERVE), 0)
    return isinstance(world.judge(client, batch(1, 1)), Forward)


def first_sight_elsewhere(world: World) -> bool:
    client = world.connect()
    world.refusal(client, batch(1))
    world.now_ms = 36_000
    world.judge(client, batch(1))
    return isinstance(world.judge(world.connect(), batch(1, 4, partition=1)), Forward)


def first_batch_of_a_newer_epoch(world: World) -> bool:
    client = world.connect()
    world.refusal(client, batch(1, 5))
    world.now_ms = 36_000
    return isinstance(world.judge(client, batch(1, 0, epoch=1)), Refuse | Close)


@rule(
    "No error in the quota, cache, release or change of quotas lets a batch pass before a refused one.",
    "order",
)
@pytest.mark.parametrize(
    "script",
    [later_batch_of_another_partition, first_sight_elsewhere, later_batch_after_a_change_of_mode],
)
def test_no_later_batch_passes_first(script: Callable[[World], bool]) -> None:
    assert not script(exhausted())


def test_epochs_are_what_lets_a_bumped_producer_start_anew() -> None:
    sticky = _IgnoresEpochs(100)
    sticky.record_refusal("alice", batch(1, 0), 1, 0)
    assert sticky.locate_batch("alice", batch(1, 1, epoch=1), 1, 0) is Position.ABOVE
    assert not first_batch_of_a_newer_epoch(exhausted())


def test_while_restoring_a_batch_above_a_refused_one_is_refused_for_it() -> None:
    world = exhausted()
    client = world.connect()
    lowest, above = [batch(1, 0)], [batch(1, 1)]
    refuse = world.admission.refuse_while_restoring
    first = refuse(client, lowest, transactional=False, now_ms=world.now_ms)
    second = refuse(client, above, transactional=False, now_ms=world.now_ms)
    assert isinstance(first, Refuse)
    assert isinstance(second, Refuse)
    assert (first.reason, second.reason) == (Reason.FAIL_OPEN, Reason.STICKY)
