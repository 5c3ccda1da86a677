"""What events do to the quota's state: a history restores it, other gateways' events keep it in step."""

from typing import Any

import pytest

from pidgate.events.definitions import ConfigEvent, LifecycleEvent, TransactionalIdEvent
from pidgate.events.redaction import TRANSACTIONAL_ID, UserNames, hash64, pseudonym
from pidgate.events.writing import to_json
from pidgate.gateway.state.event_applier import EventApplier
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.entities import User, account_of
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import BucketState, UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.sticky import WATCH_MS
from tests.support.questions import decide_name
from tests.support.rules import rule
from tests.unit.gateway.state.test_decision_scan import decision

HOUR_MS = 3_600_000
TOKEN = HOUR_MS * 1_000
NOW_MS = 50 * HOUR_MS
WALL_MS = 1_763_000_000_000


def quota(rate: int = 100) -> ProducerIdQuota:
    quotas = Quotas(mode=Mode.ENFORCE, producer_ids=ProducerIdSettings(), default=UserQuota.per_window(rate))
    return ProducerIdQuota(quotas, lambda: 1_234_567, 0)


def record(age_ms: int, offset: int = 0, **changes: Any) -> EventRecord:
    return EventRecord(0, offset, WALL_MS - age_ms, to_json(decision(**changes)))


class Watched:
    def __init__(self) -> None:
        self.ids: list[tuple[User, int]] = []

    def __call__(self, user: User, producer_id: int, now_ms: int) -> None:
        assert NOW_MS <= now_ms <= NOW_MS + 7
        self.ids.append((user, producer_id))


def restored(*records: EventRecord, run: str = "me") -> tuple[EventApplier, ProducerIdQuota]:
    state, applier = quota(), EventApplier(run)
    applier.restore(records, state.restorer, NOW_MS, WALL_MS)
    applier.finish_restore(state.restorer)
    return applier, state


def test_ids_and_balances_go_to_the_account_of_their_client_id() -> None:
    own = UserQuota(200_000, client_rates_milli={"billing": 50_000})
    quotas = Quotas(mode=Mode.ENFORCE, users={"alice": own})
    state, applier, watched = ProducerIdQuota(quotas, lambda: 1_234_567, 0), EventApplier("me"), Watched()
    billing = account_of(quotas, "alice", "billing")
    balances = (
        record(2, seq=1, producer_id=1, client_id="billing", tokens_after=9 * TOKEN, token_units=TOKEN),
        record(0, seq=2, producer_id=2, client_id="other", tokens_after=90 * TOKEN, token_units=TOKEN),
    )
    applier.restore(balances, state.restorer, NOW_MS, WALL_MS)
    applier.finish_restore(state.restorer)
    applier.follow([record(0, producer_id=3, client_id="billing")], state, watched, NOW_MS)
    refused = record(0, producer_id=4, client_id="billing", decision="refuse")
    applier.follow([refused], state, watched, NOW_MS)
    tokens = [state.status(account, NOW_MS).tokens for account in (billing, "alice")]
    assert tokens == [pytest.approx(8, abs=0.001), 90]
    assert all(state.table.remembers("alice", number, NOW_MS) for number in (1, 2, 3))
    assert watched.ids == [("alice", 4)]


class TestHistory:
    def test_admitted_ids_are_remembered_by_the_age_that_the_broker_tells(self) -> None:
        _, state = restored(
            record(HOUR_MS, producer_id=1),
            record(23 * HOUR_MS, producer_id=2, reason="refresh", tokens_after=None),
            record(40 * HOUR_MS, producer_id=3),
            # A broker whose clock is ahead of ours: not after now.
            record(-HOUR_MS, producer_id=4),
        )
        assert [state.table.remembers("alice", number, NOW_MS) for number in (1, 2, 3, 4)] == [
            True,
            True,
            False,
            True,
        ]

    def test_an_id_is_forgotten_when_its_own_time_is_over(self) -> None:
        _, state = restored(record(20 * HOUR_MS, producer_id=1), record(0, producer_id=2))
        later = NOW_MS + 12 * HOUR_MS
        assert not state.table.remembers("alice", 1, later)
        assert state.table.remembers("alice", 2, later)

    def test_refused_ids_are_not_remembered(self) -> None:
        applier, state = restored(record(1_000, decision="refuse", producer_id=1))
        assert not state.table.remembers("alice", 1, NOW_MS)
        assert applier.decisions == 1

    def test_the_newest_balance_counts_with_what_was_refilled_since(self) -> None:
        _, state = restored(
            record(2 * HOUR_MS, seq=1, tokens_after=90 * TOKEN, token_units=TOKEN),
            # 100 an hour: 36 s for one.
            record(36_000, seq=2, tokens_after=20 * TOKEN, token_units=TOKEN),
        )
        assert state.status("alice", NOW_MS).tokens == 21

    def test_a_refusal_tells_the_balance_too(self) -> None:
        _, state = restored(
            record(10_000, seq=1, tokens_after=50 * TOKEN, token_units=TOKEN),
            record(0, seq=2, decision="refuse", tokens_after=-TOKEN, token_units=TOKEN),
        )
        assert state.status("alice", NOW_MS).tokens == -1

    def test_an_event_that_was_written_twice_tells_its_balance_once(self) -> None:
        _, state = restored(
            record(30_000, seq=1, tokens_after=70 * TOKEN, token_units=TOKEN),
            record(20_000, seq=2, tokens_after=10 * TOKEN, token_units=TOKEN),
            # The first batch again: its acknowledgement was lost.
            record(0, seq=1, tokens_after=70 * TOKEN, token_units=TOKEN),
        )
        assert state.status("alice", NOW_MS).tokens == pytest.approx(10 + 20 / 36, abs=0.001)

    @pytest.mark.parametrize(("seq", "tokens"), [(2, 10), (3, 70)], ids=["contained", "later"])
    def test_a_balance_that_the_snapshot_contains_counts_no_more(self, seq: int, tokens: int) -> None:
        """However late the topic took it: it was cut, and what was on its way arrived after the gateway's death."""
        state, applier = quota(), EventApplier("me")
        bucket = BucketState(10 * TOKEN, TOKEN, 100_000)
        state.restorer.import_user(UserState("alice", (1, 2), bucket=bucket), NOW_MS)
        applier.saved_until = b"earlier", 2
        late = record(0, seq=seq, incarnation="earlier", tokens_after=70 * TOKEN, token_units=TOKEN)
        applier.restore([late], state.restorer, NOW_MS, WALL_MS)
        applier.finish_restore(state.restorer)
        assert state.status("alice", NOW_MS).tokens == tokens

    def test_another_gateways_balance_counts_when_it_is_newer(self) -> None:
        _, state = restored(
            record(30_000, seq=900, incarnation="earlier", tokens_after=70 * TOKEN, token_units=TOKEN),
            record(0, seq=1, incarnation="other", tokens_after=10 * TOKEN, token_units=TOKEN),
        )
        assert state.status("alice", NOW_MS).tokens == 10

    def test_a_balance_of_another_window_is_scaled(self) -> None:
        _, state = restored(record(0, tokens_after=30 * TOKEN * 2, token_units=TOKEN * 2))
        assert state.status("alice", NOW_MS).tokens == 30

    def test_what_was_let_in_as_grace_counts_against_its_bound_again(self) -> None:
        state, applier = quota(rate=1), EventApplier("me")
        records = [record(1_000, producer_id=number, seq=number, reason="grace") for number in range(1, 11)]
        applier.restore(records, state.restorer, NOW_MS, WALL_MS)
        applier.finish_restore(state.restorer)
        (exported,) = state.restorer.export_users(NOW_MS)
        assert exported.grace_admitted == 10
        assert state.table.remembers("alice", 10, NOW_MS)

    @pytest.mark.parametrize(
        ("reason", "incarnation", "is_history"),
        [
            ("first_seen", "other", True),
            ("refresh", "other", True),
            # Of somebody who starts at the same moment and knows nothing either.
            ("restoring", "other", False),
            ("grace", "other", False),
        ],
    )
    def test_only_who_had_a_state_makes_history(
        self, reason: str, incarnation: str, is_history: bool
    ) -> None:
        applier, _ = restored(record(0, reason=reason, incarnation=incarnation))
        assert applier.history.is_known is is_history
        assert applier.history.ends_cold_starts(0, WALL_MS) is is_history

    @pytest.mark.parametrize(("age_ms", "is_history"), [(23 * HOUR_MS, True), (25 * HOUR_MS, False)])
    def test_what_is_older_than_what_is_remembered_makes_none(self, age_ms: int, *, is_history: bool) -> None:
        """A snapshot's offsets may lie that far back."""
        caught_up = EventRecord(0, 0, WALL_MS - age_ms, to_json(lifecycle(phase="caught_up")))
        for past in (caught_up, record(age_ms, incarnation="other")):
            applier = EventApplier("me", remember_ms=24 * HOUR_MS)
            applier.restore([past], quota().restorer, NOW_MS, WALL_MS)
            assert applier.history.is_known is is_history

    def test_only_ids_that_were_refused_a_short_while_ago_are_watched(self) -> None:
        state, applier, watched = quota(), EventApplier("me"), Watched()
        records = [
            record(WATCH_MS, decision="refuse", producer_id=1),
            record(WATCH_MS - 1, decision="refuse", producer_id=2),
            record(0, producer_id=3),
            record(0, decision="hold", reason="held", producer_id=4),
        ]
        applier.restore(records, state.restorer, NOW_MS, WALL_MS, watched)
        assert watched.ids == [("alice", 2), ("alice", 4)]

    def test_a_machine_that_booted_a_minute_ago_remembers_what_was_before(self) -> None:
        state, applier = quota(), EventApplier("me")
        applier.restore([record(5 * HOUR_MS, tokens_after=-TOKEN)], state.restorer, 60_000, WALL_MS)
        applier.finish_restore(state.restorer)
        assert state.table.remembers("alice", 4711, 60_000)
        assert state.status("alice", 60_000).tokens == 100

    def test_what_is_no_event_is_counted_and_passed_over(self) -> None:
        applier, state = restored(EventRecord(0, 0, WALL_MS, b"{"), record(0, producer_id=1))
        assert (applier.unreadable, applier.decisions) == (1, 1)
        assert "JSON" in applier.last_unreadable
        assert state.table.remembers("alice", 1, NOW_MS)


class TestOthers:
    def followed(self, *records: EventRecord, **options: Any) -> tuple[Watched, ProducerIdQuota]:
        state, watched = quota(), Watched()
        EventApplier("me", **options).follow(records, state, watched, NOW_MS)
        return watched, state

    def test_a_remote_admission_is_remembered_and_charged_once(self) -> None:
        twice = [record(0, producer_id=1, seq=seq, incarnation=f"other-{seq}") for seq in (1, 2)]
        _, state = self.followed(*twice)
        assert state.table.remembers("alice", 1, NOW_MS)
        assert state.status("alice", NOW_MS).tokens == 99

    @pytest.mark.parametrize(
        ("reason", "tokens"), [("first_seen", 99), ("queue", 99), ("refresh", 100), ("grace", 100)]
    )
    def test_what_was_free_there_is_free_here(self, reason: str, tokens: int) -> None:
        _, state = self.followed(record(0, reason=reason))
        assert state.status("alice", NOW_MS).tokens == tokens

    @pytest.mark.parametrize(("incarnation", "is_own"), [("me", True), ("mex", False)])
    def test_own_events_are_passed_over(self, incarnation: str, is_own: bool) -> None:
        _, state = self.followed(record(0, incarnation=incarnation))
        assert state.table.remembers("alice", 4711, NOW_MS) is not is_own

    @pytest.mark.parametrize(("decision", "reason"), [("refuse", "first_seen"), ("hold", "held")])
    def test_a_remote_refusal_is_watched_and_neither_remembered_nor_charged(
        self, decision: str, reason: str
    ) -> None:
        watched, state = self.followed(record(0, decision=decision, reason=reason, producer_id=5))
        assert watched.ids == [("alice", 5)]
        assert not state.table.remembers("alice", 5, NOW_MS)
        assert state.status("alice", NOW_MS).tokens in (None, 100)

    def test_users_are_told_by_their_pseudonyms(self) -> None:
        names = UserNames(["user"], ["alice"])
        _, state = self.followed(record(0, user=names.in_events("alice")), user_of=names.user_of)
        assert state.table.remembers("alice", 4711, NOW_MS)


def lifecycle(**changes: Any) -> LifecycleEvent:
    given: dict[str, Any] = dict(
        cluster="", gateway_id="gw-2", incarnation="other", seq=1, wall_time_ms=WALL_MS, decision_time_ms=1,
        phase="alive", mode="enforce", window_ms=HOUR_MS, remember_ms=24 * HOUR_MS,
    )  # fmt: skip
    return LifecycleEvent(**(given | changes))


class TestGateways:
    def test_what_gateways_tell_of_themselves_is_handed_on_with_its_time(self) -> None:
        heard: list[tuple[str, int]] = []

        def note(event: LifecycleEvent | ConfigEvent, at_ms: int) -> None:
            heard.append((event.incarnation, at_ms))

        applier, state = EventApplier("me", on_gateway=note), quota()
        records = [
            EventRecord(0, 0, WALL_MS - 5_000, to_json(lifecycle())),
            EventRecord(0, 1, WALL_MS, to_json(lifecycle(incarnation="me"))),
            record(0),
        ]
        applier.restore(records, state.restorer, NOW_MS, WALL_MS)
        applier.follow(records, state, Watched(), NOW_MS + 7)
        assert heard == [("other", NOW_MS - 5_000), ("other", NOW_MS + 7)]

    def test_what_is_cut_short_is_counted(self) -> None:
        applier = EventApplier("me", on_gateway=lambda _event, _at_ms: None)
        value = to_json(lifecycle())[:-5]
        applier.follow([EventRecord(0, 0, 0, value)], quota(), Watched(), NOW_MS)
        assert applier.unreadable == 1


class TestClusterBucket:
    """No event tells its balance: it is reckoned from the charges of all users."""

    def cluster(self) -> ProducerIdQuota:
        settings = ProducerIdSettings()
        quotas = Quotas(mode=Mode.ENFORCE, producer_ids=settings, cluster_rate_milli=10_000)
        return ProducerIdQuota(quotas, lambda: 1, 0)

    def units(self, state: ProducerIdQuota) -> float:
        exported = state.restorer.export_cluster_bucket(NOW_MS)
        assert exported is not None
        return exported.units / exported.token_units

    def test_charges_of_all_users_count_in_the_order_of_time_whatever_the_order_of_partitions(self) -> None:
        state, applier = self.cluster(), EventApplier("me", counts_charges=True)
        told = [
            record(0, user="bob", producer_id=10, tokens_after=None),
            *(record(HOUR_MS, producer_id=number, tokens_after=None) for number in range(4)),
            record(HOUR_MS, producer_id=1, reason="refresh", tokens_after=None),
            record(HOUR_MS, producer_id=20, decision="refuse", tokens_after=None),
            record(5 * HOUR_MS, user="bob", producer_id=11, tokens_after=None),
        ]
        applier.restore(told, state.restorer, NOW_MS, WALL_MS)
        applier.finish_restore(state.restorer)
        assert self.units(state) == 9  # full again after the hour; then one for bob's

    def told_twice_is_charged_once(self) -> bool:
        """The rule: two gateways let it in at the same time, or the topic has an event twice."""
        state, applier = self.cluster(), EventApplier("me", counts_charges=True)
        told = [
            record(5_000, producer_id=1, tokens_after=None),
            record(4_000, producer_id=1, incarnation="third", tokens_after=None),
        ]
        applier.restore([*told, told[0]], state.restorer, NOW_MS, WALL_MS)
        applier.finish_restore(state.restorer)
        return self.units(state) == pytest.approx(9, abs=0.02)

    @rule("An id admitted by another gateway is charged here once; a refresh there is free.", "fleet")
    def test_an_id_that_is_told_twice_is_charged_once(self) -> None:
        assert self.told_twice_is_charged_once()

    def test_what_an_imported_balance_holds_already_is_not_charged_again(self) -> None:
        before = self.cluster()
        before.restorer.restore_cluster_charges([NOW_MS - 600_000] * 6)
        state, applier = self.cluster(), EventApplier("me", counts_charges=True)
        state.restorer.import_cluster_bucket(
            before.restorer.export_cluster_bucket(NOW_MS - 300_000), NOW_MS - 300_000
        )
        told = [record(age_ms, producer_id=age_ms, tokens_after=None) for age_ms in (600_000, 1_000)]
        applier.restore(told, state.restorer, NOW_MS, WALL_MS)
        applier.finish_restore(state.restorer)
        assert self.units(state) == pytest.approx(10 - 6 - 1 + 10 / 6, abs=0.01)


class TestTransactionalIds:
    @staticmethod
    def _record(name: str, age_ms: int, **changes: Any) -> EventRecord:
        event = TransactionalIdEvent(
            cluster="c",
            gateway_id="gw-2",
            incarnation="other",
            seq=1,
            wall_time_ms=WALL_MS - age_ms,
            decision_time_ms=1,
            user="alice",
            transactional_id_hash=pseudonym(TRANSACTIONAL_ID, name),
            reason="first_seen",
            quota_version=1,
        )
        for field, value in changes.items():
            setattr(event, field, value)
        return EventRecord(0, 0, WALL_MS - age_ms, to_json(event))

    @staticmethod
    def _state() -> ProducerIdQuota:
        users = {"alice": UserQuota(transactional_ids_rate_milli=2_000)}
        return ProducerIdQuota(Quotas(Mode.ENFORCE, ProducerIdSettings(), users=users), lambda: 7, 0)

    @staticmethod
    def _known(state: ProducerIdQuota, name: str) -> bool:
        decisions = decide_name(state, "alice", hash64(TRANSACTIONAL_ID, name), NOW_MS).decisions
        return not decisions or decisions[0].reason.value == "refresh"

    def test_those_of_the_past_are_known_and_cost_what_they_cost(self) -> None:
        state, applier = self._state(), EventApplier("me")
        past = [
            self._record("old", 9 * 24 * HOUR_MS),
            self._record("kept", 6 * 24 * HOUR_MS),
            self._record("earlier", 60_000, incarnation="mine, an hour ago"),
            self._record("broken", 1, transactional_id_hash="h:not a number"),
        ]
        applier.restore(past, state.restorer, NOW_MS, WALL_MS)
        assert [self._known(state, name) for name in ("old", "kept", "earlier", "broken")] == [
            False,
            True,
            True,
            False,
        ]
        assert applier.unreadable == 0

    def test_those_of_others_are_followed(self) -> None:
        state, applier = self._state(), EventApplier("me")
        theirs, mine = self._record("theirs", 0), self._record("mine", 0, incarnation="me")
        applier.follow([theirs, theirs, mine], state, Watched(), NOW_MS)
        assert [self._known(state, name) for name in ("theirs", "mine")] == [True, False]
