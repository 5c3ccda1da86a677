"""Admission of Produce requests: refused batches first, then the connection's cache, then the quota. PURE.

The order is essential. Refused batches are checked before any cache and before the quota. So no admission, raised rate,
observe mode, exemption or failing open lets a batch pass before a refused one. Must not know bytes or sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pidgate.quota.counters import ProducerIdOwners, UserCounters, UserCountersTable, UserSnapshot
from pidgate.quota.decisions import (
    FORWARD,
    SHORTEST_THROTTLE_MS,
    Client,
    Close,
    Decision,
    Forward,
    GaveUp,
    ProducerBatch,
    Reason,
    Refuse,
    Verdict,
    batch_decision,
    given_decision,
    init_decision,
    lowest_of_each_partition,
    refusal_of,
)
from pidgate.quota.entities import User, enforces, id_terms_of, is_asked_at_init, resolve
from pidgate.quota.fail_open import THROTTLE_MS, FailOpen
from pidgate.quota.grants import Grant
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.sticky import HeldBeginnings, Position, StickyRefusals
from pidgate.quota.sticky_entries import WatchedId

_NOTHING_WATCHED: Final[Mapping[int, WatchedId]] = MappingProxyType({})


@dataclass(slots=True)
class _Request:
    """A Produce request that no cache answers for: the lowest batch of each partition, and the position of each."""

    client: Client
    transactional: bool
    now_ms: int
    batches: list[ProducerBatch]
    positions: list[Position]


class Admission:
    """The quota as connections see it. All times are monotonic milliseconds.

    `fail_open.passed` counts requests that passed because the quota raised an error. It should be 0.
    """

    def __init__(
        self,
        quotas: Quotas,
        secret_source: Callable[[], int],
        now_ms: int,
        *,
        state: ProducerIdQuota | None = None,
        sticky: StickyRefusals | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.sticky = sticky or StickyRefusals(quotas.producer_ids.sticky_entries)
        self.owners = ProducerIdOwners()
        self.state = state or ProducerIdQuota(quotas, secret_source, now_ms)
        self.grants = self.sticky.grants = self.state.grants
        self.held_beginnings = HeldBeginnings(self.sticky.topics, self.grants)
        self.fail_open = FailOpen()
        self._on_failure = on_failure
        self._in_force = self.state.in_force
        self._slice_ms = self.quotas.producer_ids.slice_ms
        self.counters = UserCountersTable()

    @property
    def quotas(self) -> Quotas:
        return self._in_force.value

    # Produce requests

    def knows(
        self,
        client: Client,
        producer_id: int,
        epoch: int,
        topics: list[bytes],
        partitions: list[list[int]],
        transactional: bool,
        now_ms: int,
    ) -> bool:
        """Return whether `judge` would forward these batches because every id is known. The hottest call."""
        if client.admitted.get(producer_id) != self._slice_key(now_ms, transactional):
            return False
        record = self.sticky.watched.get(client.user, _NOTHING_WATCHED).get(producer_id)
        if record is None:
            return not self.held_beginnings.is_any_beginning_held(
                client.user, producer_id, topics, partitions, now_ms
            )
        for at, topic in enumerate(topics):
            if not self.sticky.are_partitions_clear(
                record, epoch, topic, partitions[at], client.connection_id
            ):
                return False
        return True

    def grant(
        self,
        client: Client,
        producer_id: int,
        epoch: int,
        topics: Iterable[bytes],
        transactional: bool,
        now_ms: int,
    ) -> Grant | None:
        """Return a grant of what `knows` would answer, until one of its cells changes. None: `knows` is needed."""
        user = client.user
        if client.admitted.get(producer_id) != self._slice_key(now_ms, transactional):
            return None
        partitions: dict[bytes, int | None] = {}
        record = self.sticky.watched.get(user, _NOTHING_WATCHED).get(producer_id)
        if record is None:
            if self.held_beginnings.is_any_of_id_held(user, producer_id, now_ms):
                return None
            partitions = dict.fromkeys(topics)
        else:
            for topic in topics:
                partitions[topic] = self.sticky.clear_partitions(record, epoch, topic, client.connection_id)
        until_ms = (now_ms // self._slice_ms + 1) * self._slice_ms
        return Grant(user, producer_id, until_ms, partitions, self.grants.cell_of(user, producer_id))

    def judge(
        self,
        client: Client,
        batches: list[ProducerBatch],
        *,
        transactional: bool,
        now_ms: int,
    ) -> Verdict:
        """Judge the next Produce request of a channel that is not muted."""
        slice_key = self._slice_key(now_ms, transactional)
        if self._are_known(client, batches, slice_key, now_ms):
            return FORWARD
        request = self._locate_batches(client, batches, transactional, now_ms)
        producer_ids = {batch[0] for batch in request.batches}
        for producer_id in producer_ids:
            self.owners.note_produced(producer_id)
        verdict: Verdict | None = self._refuse_out_of_order(request)
        if verdict is not None:
            return verdict
        verdict = FORWARD
        if any(client.admitted.get(producer_id) != slice_key for producer_id in producer_ids):
            verdict = self._decide(request)
            if not isinstance(verdict, Forward):
                return verdict
            for producer_id in producer_ids:
                client.remember(producer_id, slice_key)
        if client.user in self.sticky.watched:
            self.sticky.record_forwarded(client.user, request.batches, client.connection_id)
        return verdict

    def refuse_while_restoring(
        self, client: Client, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close:
        """Refuse a request that has waited long enough for the end of restoring."""
        request = self._locate_batches(client, batches, transactional, now_ms)
        if Position.ABOVE in request.positions:
            return self._refuse_above(request)
        return self._refuse_locally(request, request.batches[0], Reason.FAIL_OPEN, THROTTLE_MS)

    def judge_while_muted(
        self, client: Client, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Judge a request read ahead behind a mute: refuse it now if it would be refused anyway; None: hold it.

        It refuses a batch above a refused one, the first batch of a partition if it is above 0, and the first batch of
        another partition of an id still under its deadline. It never answers a retry of the refused batch itself.
        """
        request = self._locate_batches(client, batches, transactional, now_ms)
        if Position.SAME in request.positions or Position.BELOW in request.positions:
            return None
        verdict = self._refuse_out_of_order(request)
        if verdict is not None or not enforces(
            self._in_force.value, self.state.account(client), transactional=transactional
        ):
            return verdict
        for batch, position in zip(request.batches, request.positions, strict=True):
            if position is Position.FIRST_SIGHT:
                left_ms = self.sticky.throttle_left_ms(client.user, batch[0], now_ms)
                if left_ms > 0:
                    return self._refuse_locally(request, batch, Reason.DEADLINE, left_ms)
        return None

    def hold_decisions(
        self, client: Client, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> tuple[Decision, ...]:
        """Return the decisions that tell other gateways which ids have a beginning in a request held by a mute.

        The length of the mute does not matter, because a mute may be prolonged.
        """
        untold = self.held_beginnings.find_unpublished(client.user, batches, now_ms)
        decisions = [batch_decision(client.user, batch, len(batches), transactional) for batch in untold]
        for decision in decisions:
            decision.refuse(Reason.HELD, 0)
        return tuple(decisions)

    def _slice_key(self, now_ms: int, transactional: bool) -> int:
        key = now_ms // self._slice_ms + self.state.generation
        return ~key if transactional else key  # an id admitted for one use is unknown for the other

    def _are_known(
        self, client: Client, batches: Collection[ProducerBatch], slice_key: int, now_ms: int
    ) -> bool:
        """Return whether every id was admitted in this slice and no batch of a watched id waits. Hot path."""
        watched = self.sticky.watched.get(client.user, _NOTHING_WATCHED)
        admitted = client.admitted
        for batch in batches:
            producer_id = batch[0]
            if admitted.get(producer_id) != slice_key:
                return False
            record = watched.get(producer_id)
            if record is None:
                if self._is_held(client.user, batch, now_ms):
                    return False
            elif not self.sticky.are_partitions_clear(
                record, batch[1], batch[3], [batch[4]], client.connection_id
            ):
                return False
        return True

    # Refused batches and held beginnings

    def _locate_batches(
        self, client: Client, batches: list[ProducerBatch], transactional: bool, now_ms: int
    ) -> _Request:
        """Find the position of the lowest batch of each partition, with the ids of held beginnings watched."""
        lowest = lowest_of_each_partition(batches)
        if client.user in self.held_beginnings.users:
            held = {batch[0] for batch in lowest if self._is_held(client.user, batch, now_ms)}
            self.sticky.watch_held_ids(client.user, held, now_ms)
        positions = [self._locate_batch(client, batch, now_ms) for batch in lowest]
        return _Request(client, transactional, now_ms, lowest, positions)

    def _locate_batch(self, client: Client, batch: ProducerBatch, now_ms: int) -> Position:
        position = Position.UNWATCHED
        if batch[0] in self.sticky.watched.get(client.user, _NOTHING_WATCHED):
            position = self.sticky.locate_batch(client.user, batch, client.connection_id, now_ms)
        if position is Position.UNWATCHED and self._is_held(client.user, batch, now_ms):
            return Position.FIRST_SIGHT  # the watch had no room
        return position

    def _is_held(self, user: User, batch: ProducerBatch, now_ms: int) -> bool:
        held = self.held_beginnings
        return user in held.users and held.is_beginning_held(user, batch[0], batch[3], batch[4], now_ms)

    def _refuse_out_of_order(self, request: _Request) -> Refuse | Close | None:
        """Refuse a request that could pass an earlier batch, whatever the mode, exemption, rate or state."""
        if Position.ABOVE in request.positions:
            return self._refuse_above(request)
        for batch, position in zip(request.batches, request.positions, strict=True):
            if position is Position.FIRST_SIGHT and self._is_above_0(batch, position):
                return self._refuse_locally(request, batch, Reason.ESTABLISHED, SHORTEST_THROTTLE_MS)
        return None

    def _refuse_above(self, request: _Request) -> Refuse | Close:
        """Refuse a request with a batch above a refused one, or close if the client has given that one up."""
        user = request.client.user
        above = [
            batch
            for batch, position in zip(request.batches, request.positions, strict=True)
            if position is Position.ABOVE
        ]
        for batch in above:
            if self.sticky.end_overdue_entry(user, batch, request.now_ms):
                return self._close(request, "sticky_batch_missing", batch[0])
        left_ms = self.sticky.throttle_left_ms(user, above[0][0], request.now_ms)
        return self._refuse_locally(request, above[0], Reason.STICKY, left_ms)

    def _is_above_0(self, batch: ProducerBatch, position: Position) -> bool:
        """Return whether an earlier batch may wait unread behind a mute: a new producer starts each partition at 0."""
        return batch[2] != 0 and position in (Position.FIRST_SIGHT, Position.UNWATCHED)

    def _refuse_locally(
        self, request: _Request, cause: ProducerBatch, reason: Reason, throttle_ms: int
    ) -> Refuse | Close:
        """Refuse the request for one of its batches, without the quota."""
        decision = batch_decision(request.client.user, cause, len(request.batches), request.transactional)
        decision.refuse(reason, max(SHORTEST_THROTTLE_MS, throttle_ms))
        rearms_mute = reason in (Reason.ESTABLISHED, Reason.FAIL_OPEN)
        account = self.state.account(request.client)
        refusal = refusal_of(self._in_force.value, (decision,), account, rearms_mute=rearms_mute)
        return self._record_refusal(request, refusal)

    def _record_refusal(self, request: _Request, refusal: Refuse) -> Refuse | Close:
        """Enter every partition of a refused request; close the connection if there is no room for the entries."""
        user, connection_id, now_ms = request.client.user, request.client.connection_id, request.now_ms
        if self.sticky.would_overflow(user, connection_id, request.batches):
            return self._close(request, "sticky_table_full", refusal.producer_id)
        for batch in request.batches:
            self.sticky.record_refusal(user, batch, connection_id, now_ms, refusal.throttle_time_ms)
        counters = self.counters.of(user, now_ms)
        counters.count_refusal(refusal.reason, refusal.throttle_time_ms, now_ms)
        return refusal

    def _close(self, request: _Request, reason: str, producer_id: int) -> Close:
        self.counters.of(request.client.user, request.now_ms).count_close(reason)
        return Close(reason, producer_id)

    # The quota

    def _decide(self, request: _Request) -> Verdict:
        """Return the quota's verdict on the ids of a request, in order."""
        client, now_ms = request.client, request.now_ms
        verdict = self._decide_or_fail_open(client, self._begin_decisions(request), now_ms)
        if isinstance(verdict, Refuse):
            return self._record_quota_refusal(request, verdict)
        if verdict.decisions:
            counters = self.counters.of(client.user, now_ms)
            for decision in verdict.decisions:
                counters.count_admission(decision, now_ms)
                # Another gateway may have refused the new id a moment ago.
                if decision.enforced and decision.reason in (Reason.FIRST_SEEN, Reason.QUEUE):
                    self.sticky.watch_new_id(client.user, decision.producer_id, now_ms)
        return verdict

    def _begin_decisions(self, request: _Request) -> list[Decision]:
        """Begin a decision about each id from its batches and from the table of refused batches."""
        user, now_ms = request.client.user, request.now_ms
        watched = self.sticky.watched.get(user, _NOTHING_WATCHED)
        decisions: dict[int, Decision] = {}
        for batch, position in zip(request.batches, request.positions, strict=True):
            producer_id = batch[0]
            decision = decisions.get(producer_id)
            if decision is None:
                decision = batch_decision(user, batch, len(request.batches), request.transactional)
                decisions[producer_id] = decision
                record = None
                if producer_id in watched:
                    record = self.sticky.find_watched_id(user, producer_id, now_ms)
                if record is not None:
                    decision.deadline_left_ms = record.deadline_ms - now_ms
                    if record.first_refused_ms is not None:
                        decision.waited_ms = now_ms - record.first_refused_ms
            decision.came_back |= position is Position.SAME
            decision.above_0 |= self._is_above_0(batch, position)
        return list(decisions.values())

    def _decide_or_fail_open(
        self, client: Client, decisions: list[Decision], now_ms: int, transactional_id: int | None = None
    ) -> Forward | Refuse:
        """Return the quota's verdict. If the quota raises an error, let ids pass up to the user's ceiling."""
        try:
            return self.state.decide(client, decisions, now_ms, transactional_id)
        except Exception as problem:  # noqa: BLE001  (the gateway is never the reason that Kafka is down)
            if self._on_failure is not None:
                self._on_failure(problem)
            return self.fail_open.decide(
                self._in_force.value, self.state, decisions, now_ms, transactional_id
            )

    def _record_quota_refusal(self, request: _Request, refusal: Refuse) -> Refuse | Close:
        verdict = self._record_refusal(request, refusal)
        for decision in refusal.decisions if verdict is refusal else ():
            # An early retry keeps the deadline. If each one added the shortest throttle, two connections of one id
            # could prolong it for each other without end.
            if decision.reason not in (Reason.ESTABLISHED, Reason.DEADLINE, Reason.FAIL_OPEN):
                until_ms = request.now_ms + decision.throttle_time_ms
                self.sticky.set_deadline(request.client.user, decision.producer_id, until_ms)
        return verdict

    def judge_new_id(
        self, client: Client, now_ms: int, transactional_id: int | None = None
    ) -> Forward | Refuse:
        """Judge InitProducerId, without or with a transactional id (64 bits of its hash).

        A refusal leaves no entry and no deadline: no batch was sent, and without tokens the client is refused again on
        any connection.
        """
        transactional = transactional_id is not None
        account = self.state.account(client)
        if not is_asked_at_init(self._in_force.value, account, transactional=transactional) and (
            transactional or not self.pays_at_init(client)
        ):
            return FORWARD
        decisions = [init_decision(client.user, transactional)]
        verdict = self._decide_or_fail_open(client, decisions, now_ms, transactional_id)
        if verdict.decisions:
            self.counters.of(client.user, now_ms).count_new_ids(verdict.decisions, now_ms)
        return verdict

    def pays_at_init(self, client: Client) -> bool:
        """Return whether this client is refused at InitProducerId, and pays for an id when it is given one."""
        return client.traits.is_refused_at_init and enforces(
            self._in_force.value, self.state.account(client), transactional=False
        )

    def admit_given_id(
        self, client: Client, producer_id: int, epoch: int, now_ms: int
    ) -> tuple[Decision, ...]:
        """Charge and insert an id that a broker has just given to a client that pays for it now.

        From here on it is known like any admitted id: on every connection, after a restart, and to other gateways.
        """
        decision = given_decision(client.user, producer_id, epoch)
        try:
            decisions = self.state.admit_given(client, decision, now_ms).decisions
        except Exception as problem:  # noqa: BLE001  (undecided, it is decided about at Produce)
            if self._on_failure is not None:
                self._on_failure(problem)
            return ()
        for admitted in decisions:
            self.counters.of(client.user, now_ms).count_admission(admitted, now_ms)
        return decisions

    def may_be_admitted_elsewhere(
        self, client: Client, producer_ids: Iterable[int], transactional: bool, now_ms: int
    ) -> bool:
        """Return whether another gateway may have admitted one of these ids a moment ago, with its event on the way."""
        return (
            not transactional
            and self.pays_at_init(client)
            and self.state.lacks_token(self.state.account(client), producer_ids, now_ms)
        )

    # Other events

    def connection_closed(self, connection_id: int, now_ms: int) -> None:
        """End the connection's refusals (the client resends from the lowest), and count its unused ids."""
        self.sticky.connection_closed(connection_id)
        for user, unused in self.owners.connection_closed(connection_id).items():
            self.counters.of(user, now_ms).unused_ids += unused

    def admit_inherited(self, user: User, old_id: int, new_id: int, now_ms: int) -> bool:
        """Admit an id given by EndTxn v5+ uncharged; return False when its predecessor is not remembered."""
        if old_id == new_id or not self.state.inherit(user, old_id, new_id, now_ms):
            return False
        admitted = self.counters.of(user, now_ms).admitted
        admitted[Reason.INHERITED] = admitted.get(Reason.INHERITED, 0) + 1
        return True

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Apply new quotas: the throttles of users with another quota end.

        No entry of a refused batch ends: such batches stay refused until they are sent in order.
        """
        before = self._in_force.value
        self.state.set_quotas(quotas, now_ms)
        for user in self.sticky.watched:
            if id_terms_of(before, user) != id_terms_of(quotas, user):
                self.sticky.end_deadlines(user, now_ms)
        self.sticky.entries_per_user = quotas.producer_ids.sticky_entries
        self._slice_ms = quotas.producer_ids.slice_ms

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forget expired state, about once a second; return the ids that gave up waiting."""
        self.sticky.sweep(now_ms)
        self.held_beginnings.sweep(now_ms)
        gave_up = self.state.sweep(now_ms)
        for gone in gave_up:
            self.counters.of(gone.user, now_ms).gave_up += 1
        self.counters.drop_idle({*self.state.users(), *self.sticky.watched}, now_ms)
        return gave_up

    def user_snapshots(self, now_ms: int, users: Iterable[User] | None = None) -> Iterator[UserSnapshot]:
        """Yield these users, or every known one, for metrics. Decisions may be made in between."""
        nothing = UserCounters()
        for user in dict.fromkeys([*self.state.users(), *self.counters.users()]) if users is None else users:
            counted = self.counters.find(user) or nothing
            yield counted.snapshot(
                user,
                resolve(self._in_force.value, user),
                self.state.status(user, now_ms),
                self.sticky.count_entries(user),
                now_ms,
            )
