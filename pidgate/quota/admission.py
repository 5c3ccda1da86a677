"""Admission of Produce requests: joins refused batches, the caches of connections and the quota's state. PURE.

The order is essential. Refused batches are checked before any cache and before the quota, so no admission, raised rate,
observe mode, exemption or failing open lets a batch pass before a refused one. The connection's cache comes next, and
the state last. Must not know bytes or sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pidgate.quota.counters import ProducerIdOwners, UserCounters, UserCountersTable, UserSnapshot
from pidgate.quota.decisions import (
    FORWARD,
    SHORTEST_THROTTLE_MS,
    Answer,
    AskedId,
    Client,
    Close,
    Decision,
    Forward,
    GaveUp,
    ProducerBatch,
    Question,
    Reason,
    Refuse,
    Verdict,
    local_decision,
    local_refusal,
    lowest_of_each_partition,
    new_id_question,
    refusal_of,
)
from pidgate.quota.entities import User, enforces, is_asked_at_init, resolve
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Quotas
from pidgate.quota.sticky import HeldBeginnings, Look, StickyRefusals
from pidgate.quota.sticky_entries import RefusedId

_NOTHING_WATCHED: Final[Mapping[int, RefusedId]] = MappingProxyType({})

_Looked = list[tuple[ProducerBatch, Look]]


class Admission:
    """The quota as connections see it. All times are monotonic milliseconds.

    `fail_open.passed` counts requests let pass because the state raised an error. Alarm.
    """

    def __init__(
        self,
        quotas: Quotas,
        seed_source: Callable[[], int],
        now_ms: int,
        *,
        state: ProducerIdQuota | None = None,
        sticky: StickyRefusals | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.sticky = sticky or StickyRefusals(quotas.producer_ids.sticky_entries)
        self.owners = ProducerIdOwners()
        self.held_beginnings = HeldBeginnings(self.sticky.topics)
        self.state = state or ProducerIdQuota(quotas, seed_source, now_ms)
        self.fail_open = FailOpen()
        self._on_failure = on_failure
        self._in_force = self.state.in_force
        self._slice_ms = self.quotas.producer_ids.slice_ms
        self.counters = UserCountersTable()

    @property
    def quotas(self) -> Quotas:
        return self._in_force.value

    # Judging

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
            return not self.held_beginnings.is_any_held(client.user, producer_id, topics, partitions, now_ms)
        for at, topic in enumerate(topics):
            if not self.sticky.are_next(record, epoch, topic, partitions[at], client.connection_id):
                return False
        return True

    def judge(
        self,
        client: Client,
        batches: list[ProducerBatch],
        *,
        transactional: bool,
        now_ms: int,
    ) -> Verdict:
        """Judge the next Produce request of a channel that is not muted."""
        if self._known(client, batches, self._slice_key(now_ms, transactional), now_ms):
            return FORWARD
        first = lowest_of_each_partition(batches)
        if client.user in self.held_beginnings.users:
            held = {batch[0] for batch in first if self._is_held(client.user, batch, now_ms)}
            self.sticky.beginnings_noted(client.user, held, now_ms)
        looked = [(batch, self._look(client, batch, now_ms)) for batch in first]
        for producer_id in {batch[0] for batch in first}:
            self.owners.produced(producer_id)
        return self._refused_locally(client, looked, transactional, now_ms) or self._ask_state(
            client, looked, transactional, now_ms
        )

    def judge_new_id(
        self, client: Client, now_ms: int, transactional_id: int | None = None
    ) -> Forward | Refuse:
        """Judge InitProducerId, without or with a transactional id (64 bits of its hash).

        A refusal leaves no entry and no deadline: nothing was sent that could be lost, and the client is refused again,
        on any connection, while there are no tokens.
        """
        if not is_asked_at_init(
            self._in_force.value, client.user, transactional=transactional_id is not None
        ):
            return FORWARD
        question = new_id_question(client.user, client.address, client.client_id, transactional_id)
        answer = self.decide(question, now_ms)
        if not answer.decisions:
            return FORWARD
        counters = self.counters.of(client.user, now_ms)
        if answer.refused:
            counters.count_new_ids(answer.decisions, now_ms)
            return refusal_of(self._in_force.value, answer)
        for decision in answer.decisions:
            counters.count(decision, now_ms)
        return Forward(answer.decisions)

    def judge_while_muted(
        self, client: Client, batches: list[ProducerBatch], *, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Judge a request read ahead behind a mute: refuse it now if it would be refused anyway; None: hold it.

        Refused are batches above a refused one, and the first ones of another partition of an id still under its
        deadline; the mute is not re-armed. A retry of the refused batch itself is never answered here.
        """
        first = lowest_of_each_partition(batches)
        looked = [(batch, self._look(client, batch, now_ms)) for batch in first]
        if any(look in (Look.SAME, Look.BELOW) for _, look in looked):
            return None
        above = self._refused_as_sticky(client, looked, transactional, now_ms)
        if above is not None:
            return above
        if not enforces(self._in_force.value, client.user, transactional=transactional):
            return None
        for batch, look in looked:
            left_ms = self.sticky.left_ms(client.user, batch[0], now_ms)
            if look is Look.FIRST_SIGHT and left_ms > 0:
                return self._refuse_locally(
                    client, looked, batch, Reason.DEADLINE, left_ms, transactional, now_ms
                )
        return None

    def _slice_key(self, now_ms: int, transactional: bool) -> int:
        key = now_ms // self._slice_ms + self.state.generation
        return ~key if transactional else key  # what was admitted for one use is not known for the other

    def _look(self, client: Client, batch: ProducerBatch, now_ms: int) -> Look:
        look = self.sticky.look(client.user, batch, client.connection_id, now_ms)
        if look is Look.UNWATCHED and self._is_held(client.user, batch, now_ms):
            return Look.FIRST_SIGHT  # the watch had no room
        return look

    def _is_held(self, user: User, batch: ProducerBatch, now_ms: int) -> bool:
        held = self.held_beginnings
        return user in held.users and held.is_held(user, batch[0], batch[3], batch[4], now_ms)

    def _known(self, client: Client, batches: Collection[ProducerBatch], slice_key: int, now_ms: int) -> bool:
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
            elif not self.sticky.are_next(record, batch[1], batch[3], [batch[4]], client.connection_id):
                return False
        return True

    def _first_sight_above_0(self, batch: ProducerBatch, look: Look) -> bool:
        """A new producer starts every partition at 0: above it, an earlier batch may lie unread behind a mute."""
        return look in (Look.FIRST_SIGHT, Look.UNWATCHED) and batch[2] != 0

    def _refused_locally(
        self, client: Client, looked: _Looked, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        """Refuse batches whose refusal depends on no mode, exemption, rate or state."""
        above = self._refused_as_sticky(client, looked, transactional, now_ms)
        if above is not None:
            return above
        for batch, look in looked:
            if look is Look.FIRST_SIGHT and self._first_sight_above_0(batch, look):
                return self._refuse_locally(
                    client, looked, batch, Reason.ESTABLISHED, SHORTEST_THROTTLE_MS, transactional, now_ms
                )
        return None

    def _refused_as_sticky(
        self, client: Client, looked: _Looked, transactional: bool, now_ms: int
    ) -> Refuse | Close | None:
        above = [batch for batch, look in looked if look is Look.ABOVE]
        if not above:
            return None
        for batch in above:
            if self.sticky.too_many_further(client.user, batch):
                return self._close(client, "sticky_batch_missing", batch[0], now_ms)
        left_ms = self.sticky.left_ms(client.user, above[0][0], now_ms)
        return self._refuse_locally(client, looked, above[0], Reason.STICKY, left_ms, transactional, now_ms)

    def _refuse_locally(
        self,
        client: Client,
        looked: _Looked,
        cause: ProducerBatch,
        reason: Reason,
        throttle_ms: int,
        transactional: bool,
        now_ms: int,
    ) -> Refuse | Close:
        throttle_ms = max(SHORTEST_THROTTLE_MS, throttle_ms)
        decision = local_decision(client.user, cause, len(looked), transactional, reason, throttle_ms)
        refusal = local_refusal(self._in_force.value, decision)
        return self._record_refusal(client, looked, refusal, now_ms)

    # Asking

    def _ask_state(
        self,
        client: Client,
        looked: _Looked,
        transactional: bool,
        now_ms: int,
    ) -> Verdict:
        """Ask the state, and apply its answer. Skip the state if this connection's cache holds every id."""
        slice_key = self._slice_key(now_ms, transactional)
        if all(client.admitted.get(batch[0]) == slice_key for batch, _ in looked):
            self._forwarded(client, looked)
            return FORWARD
        answer = self.decide(self._question(client, looked, transactional, now_ms), now_ms)
        if answer.refused:
            return self._refused_by_state(client, looked, answer, now_ms)
        counters = self.counters.of(client.user, now_ms) if answer.decisions else None
        for decision in answer.decisions:
            self._watch_admitted(client.user, decision, transactional, now_ms)
            if counters is not None:
                counters.count(decision, now_ms)
        for batch, _ in looked:
            client.remember(batch[0], slice_key)
        self._forwarded(client, looked)
        return Forward(answer.decisions) if answer.decisions else FORWARD

    def decide(self, question: Question, now_ms: int) -> Answer:
        """Return the state's answer. If the state raises an error, let ids pass up to the user's ceiling."""
        try:
            return self.state.decide(question, now_ms)
        except Exception as problem:  # noqa: BLE001  (the gateway is never the reason that Kafka is down)
            if self._on_failure is not None:
                self._on_failure(problem)
            return self.fail_open.answer(self._in_force.value, self.state, question, now_ms)

    def _forwarded(self, client: Client, looked: _Looked) -> None:
        self.sticky.forwarded(client.user, [batch for batch, _ in looked], client.connection_id)

    def _watch_admitted(self, user: User, decision: Decision, transactional: bool, now_ms: int) -> None:
        """Watch a new id of a user under enforcement: another gateway may have refused it a moment ago."""
        new = decision.reason in (Reason.FIRST_SEEN, Reason.QUEUE)
        if new and enforces(self._in_force.value, user, transactional=transactional):
            self.sticky.admitted(user, decision.producer_id, now_ms)

    def _question(self, client: Client, looked: _Looked, transactional: bool, now_ms: int) -> Question:
        ids: dict[int, AskedId] = {}
        for batch, look in looked:
            asked = ids.get(batch[0])
            if asked is None:
                asked = ids[batch[0]] = AskedId(*batch)
                record = self.sticky.refused_id(client.user, batch[0], now_ms)
                if record is not None:
                    asked.deadline_ms = record.deadline_ms
                    asked.first_refused_ms = record.first_refused_ms
            asked.came_back |= look is Look.SAME
            asked.first_sight_above_0 |= self._first_sight_above_0(batch, look)
        return Question(
            client.user,
            client.address,
            client.client_id,
            transactional,
            len(looked),
            list(ids.values()),
        )

    def _refused_by_state(
        self, client: Client, looked: _Looked, answer: Answer, now_ms: int
    ) -> Refuse | Close:
        refusal = refusal_of(self._in_force.value, answer)
        verdict = self._record_refusal(client, looked, refusal, now_ms)
        for decision in answer.decisions if verdict is refusal else ():
            # Coming back too early keeps the deadline: with the shortest throttle added each time, two
            # connections of one id could put it off for each other without end.
            if decision.reason not in (Reason.ESTABLISHED, Reason.DEADLINE, Reason.FAIL_OPEN):
                until_ms = now_ms + decision.throttle_time_ms
                self.sticky.throttled(client.user, decision.producer_id, until_ms)
        return verdict

    def _record_refusal(
        self, client: Client, looked: _Looked, refusal: Refuse, now_ms: int
    ) -> Refuse | Close:
        """Enter every partition of a refused request; close the connection if there is no room for the entries."""
        batches = [batch for batch, _ in looked]
        if self.sticky.holds_too_many(client.user, client.connection_id, batches):
            return self._close(client, "sticky_table_full", refusal.producer_id, now_ms)
        for batch in batches:
            self.sticky.refused(client.user, batch, client.connection_id, now_ms)
        counters = self.counters.of(client.user, now_ms)
        counters.count_refusal(refusal.reason, refusal.throttle_time_ms, now_ms)
        return refusal

    def _close(self, client: Client, reason: str, producer_id: int, now_ms: int) -> Close:
        self.counters.of(client.user, now_ms).count_close(reason)
        return Close(reason, producer_id)

    # Other events

    def connection_closed(self, connection_id: int, now_ms: int) -> None:
        """End the connection's refusals (the client resends from the lowest), and count its unused ids."""
        self.sticky.connection_closed(connection_id)
        for user, unused in self.owners.connection_closed(connection_id).items():
            self.counters.of(user, now_ms).unused_ids += unused

    def inherits(self, user: User, old_id: int, new_id: int, now_ms: int) -> bool:
        """Admit an id given by EndTxn v5+ uncharged; return False when its predecessor is not remembered."""
        if old_id == new_id or not self.state.inherit(user, old_id, new_id, now_ms):
            return False
        admitted = self.counters.of(user, now_ms).admitted
        admitted[Reason.INHERITED] = admitted.get(Reason.INHERITED, 0) + 1
        return True

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Apply new quotas. Refused batches stay refused until they are sent in order: no entry is lifted."""
        self.state.set_quotas(quotas, now_ms)
        self.sticky.entries_per_user = quotas.producer_ids.sticky_entries
        self._slice_ms = quotas.producer_ids.slice_ms

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Forget what has expired, about once a second; return the ids that gave up waiting."""
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
                self.sticky.entries_of(user),
                now_ms,
            )
