"""Quotas of new producer ids (KIP-936) and new transactional ids: decisions from filters, buckets and queues. PURE.

A client that makes up a transactional id at each start takes a producer id with each, and leaves both to the brokers
for days. It is refused at InitProducerId, before it has anything to send. Without a rate of transactional ids none of
them is remembered.

Must not know connections or sticky refusals: Admission checks those first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Final

from pidgate.quota.changes import Command, CommandType
from pidgate.quota.counters import Refusal, UserStatus
from pidgate.quota.decisions import (
    FORWARD,
    NO_PRODUCER_ID,
    SHORTEST_THROTTLE_MS,
    Bound,
    Client,
    Decision,
    Forward,
    GaveUp,
    Reason,
    Refuse,
    refusal_of,
)
from pidgate.quota.entities import (
    EffectiveQuota,
    NotRefused,
    User,
    account_of,
    bound_milli,
    client_accounts,
    is_bounded,
    owner_of,
    resolve,
    why_not_refused,
)
from pidgate.quota.grants import Grants
from pidgate.quota.layered_filter import LayeredFilter, Sighting
from pidgate.quota.producer_states import ProducerStates, pair_hash
from pidgate.quota.restoring import MOST_NOTED_IDS, NotedIds, Restorer
from pidgate.quota.settings import Quotas, QuotasHolder
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import GRACE_TIMES_RATE, LiveUser, RatedKeys, UserTable

GENERATION_STEP: Final = 1 << 48
"""Beyond the number of any slice, so that a connection's cache entry of an earlier generation never matches."""


def place_in_line(client: Client) -> int:
    """Return the queue key of a client that waits for a new id. It is not a producer id.

    All connections of one address and client id have one place: a client may ask each broker in turn.
    """
    name = blake2b(f"{client.client_id}\0{client.address}".encode(), digest_size=7)
    return NO_PRODUCER_ID - 1 - int.from_bytes(name.digest(), "big")


class ProducerIdQuota:
    """Decisions about new producer ids. `table` holds the users, and `restorer` fills it.

    While the state is being restored (`is_restored` False), ids pass and are noted in `noted`, up to a ceiling for each
    user (`awaits_restore`): charging them would need the history that is still being read. `hand_over` charges the
    noted ids against the restored users, and `end_restoring` begins to decide.

    in_force     the quotas in force, for all their readers
    in_fleet     other gateways follow this one's decisions. Layers then live for a slice longer, since other gateways
                 use an id without a further event until their slice ends
    generation   changes when the caches of connections become invalid: after a change of quotas, and once restored
    former_name  returns the name under which a user's state was stored before the user was seen, if there is one. With
                 redacted users this is the hash in events
    """

    def __init__(
        self,
        quotas: Quotas,
        secret_source: Callable[[], int],
        now_ms: int,
        *,
        is_restored: bool = True,
        former_name: Callable[[User], User | None] | None = None,
    ) -> None:
        self.in_force = QuotasHolder(quotas)
        self.table = UserTable(quotas, secret_source, now_ms)
        self.restorer = Restorer(self.table)
        self.is_restored = is_restored
        self.noted = NotedIds()
        self.states = ProducerStates(quotas.producer_ids)
        self.pairs_free_until_ms = 0
        """Pairs are not kept over a restart: until then all look new, and none is charged."""
        self.in_fleet = False
        self.generation = 0
        self.grants = Grants()
        self._former_name = former_name

    def begin_grace(self, until_ms: int) -> None:
        """Admit unseen ids uncharged until then, of each user at most 10 times its rate.

        Restored ids that a grace admitted count: this one before a restart, or those of other gateways that begin at
        this moment.
        """
        self.table.grace.until_ms = until_ms

    def set_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Put the quotas in force, and apply them to every user: a balance keeps its fraction as of this moment."""
        self.in_force.replace(quotas)
        self.table.set_quotas(quotas, now_ms)
        self._end_caches()
        for user in quotas.users if self._former_name is not None else ():
            self._move_former_state(user, now_ms)

    def _move_former_state(self, user: User, now_ms: int) -> None:
        """Give the user the state that is stored under its former name."""
        name = None if self._former_name is None else self._former_name(user)
        if name is not None:
            self.table.rename(name, user, now_ms)

    def sweep(self, now_ms: int) -> list[GaveUp]:
        """Drop users without any state; return the ids that gave up since the last sweep."""
        self.states.sweep(now_ms)
        return self.table.sweep(now_ms) if self.is_restored else []

    def users(self) -> list[User]:
        """Return the known users; while the state is being restored, those of the noted ids."""
        return self.table.users() if self.is_restored else self.noted.users()

    def status(self, user: User, now_ms: int) -> UserStatus:
        """Return the user's tokens, queue and remembered ids; while being restored, only the number of noted ids."""
        return (
            self.table.status(user, now_ms)
            if self.is_restored
            else UserStatus(live_ids=self.noted.count_ids(user))
        )

    # Restoring

    def account(self, client: Client) -> User:
        """Return the account that pays for new producer ids of this client."""
        return account_of(self.in_force.value, client.user, client.client_id)

    def _pass_and_note(
        self, account: User, decisions: Sequence[Decision], transactional_id: int | None
    ) -> Forward:
        """Admit all ids. An id without a note yet gets a decision."""
        first, noted = decisions[0], self.noted
        for decision in decisions:
            decision.reason = Reason.RESTORING
        if transactional_id is not None:
            is_new = noted.note_transactional_id(first.user, transactional_id, Reason.RESTORING)
            return Forward((first,)) if is_new else FORWARD
        if first.producer_id == NO_PRODUCER_ID:
            return FORWARD
        return Forward(
            tuple(
                decision
                for decision in decisions
                if noted.note_id(
                    account,
                    decision.producer_id,
                    Reason.RESTORING,
                    transactional=decision.transactional,
                )
            )
        )

    def awaits_restore(self, user: User, producer_ids: Collection[int], *, transactional: bool) -> bool:
        """Return whether a request with these ids has to wait until the state is restored, which it is not yet.

        Until then ids pass and are noted, ten windows' worth of a user at most, as under grace. Further ones may be
        known, so a refusal could be wrong.
        """
        rate_milli = bound_milli(self.in_force.value, user, transactional=transactional)
        if rate_milli is None or self.noted.count_ids(user) * 1_000 < GRACE_TIMES_RATE * rate_milli:
            return False
        return not all(
            self.noted.has_id(user, producer_id, transactional=transactional) for producer_id in producer_ids
        )

    def hand_over(self, now_ms: int, at_most: int = MOST_NOTED_IDS) -> int:
        """Take up to so many noted ids over into the users; return how many are left.

        An unseen id is charged as observed: without a debt beyond one token. In portions, since an id takes some
        microseconds; other requests may be decided in between.
        """
        before = self.noted.left
        for user, key, reason in self.noted.take_out_ids(at_most):
            self._hand_over_id(user, key, reason, now_ms)
        for user, hashed, reason in self.noted.take_out_transactional_ids(
            at_most - (before - self.noted.left)
        ):
            self._move_former_state(user, now_ms)
            self._hand_over_transactional_id(user, hashed, now_ms, reason)
        return self.noted.left

    def _hand_over_id(self, user: User, key: int, reason: Reason, now_ms: int) -> None:
        self._move_former_state(user, now_ms)
        transactional = key < 0
        producer_id = ~key if transactional else key
        predecessor = self.noted.take_out_predecessor(user, producer_id) if transactional else None
        if predecessor is not None and self._inherit(user, predecessor, producer_id, now_ms):
            return
        if reason is Reason.INHERITED:
            reason = Reason.RESTORING
        self.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def _hand_over_transactional_id(self, user: User, hashed: int, now_ms: int, reason: Reason) -> None:
        live = self.table.live(user, now_ms)
        known, rate_milli = live.transactional_ids, live.quota.transactional_ids_rate_milli
        if (
            reason is Reason.RESTORING
            and known is not None
            and rate_milli
            and live.quota.enforces
            and self.table.grace.ids_left(live.quota, rate_milli, known.grace_admitted, now_ms)
        ):
            reason = Reason.GRACE
        self.restorer.restore_transactional_id(user, hashed, now_ms, now_ms, reason)

    def end_restoring(self) -> None:
        """Decide from now on. Ids in the caches of connections are looked up again."""
        self.is_restored = True
        self._end_caches()

    def _end_caches(self) -> None:
        """Invalidate the caches of connections and lanes for every id."""
        self.generation += GENERATION_STEP
        self.grants.all_changed()

    # Deciding

    def decide(
        self, client: Client, decisions: Sequence[Decision], now_ms: int, transactional_id: int | None = None
    ) -> Forward | Refuse:
        """Complete the decisions about the ids of one request. It passes as a whole or not at all.

        For an InitProducerId there is one decision, about NO_PRODUCER_ID. `transactional_id`: 64 bits of its hash.
        """
        if self._former_name is not None:
            self._move_former_state(client.user, now_ms)
        account = client.user if transactional_id is not None else self.account(client)
        if not self.is_restored:
            return self._pass_and_note(account, decisions, transactional_id)
        live = self.table.live(account, now_ms, client.address)
        if transactional_id is not None:
            return self._decide_transactional_id(live, decisions[0], transactional_id, now_ms)
        if live.queue.waiting:
            self.table.drop_given_up(account, live, now_ms)
        if decisions[0].producer_id == NO_PRODUCER_ID:
            return self._decide_new_id(client, live, decisions[0], now_ms)
        return self._decide_ids(client, live, decisions, now_ms)

    # Producer ids in use

    def _decide_ids(
        self, client: Client, live: LiveUser, decisions: Sequence[Decision], now_ms: int
    ) -> Forward | Refuse:
        """Check every id of a Produce before charging any."""
        transactional = decisions[0].transactional
        enforced = live.refuses_transactional if transactional else live.refuses_plain
        ids, released_ids = live.ids(transactional=transactional), self.table.refusals.released
        found: list[tuple[Decision, Sighting]] = []
        refused: list[Decision] = []
        unseen = graced = 0
        for decision in decisions:
            sighting = ids.find(decision.producer_id, now_ms)
            decision.enforced = enforced
            released = sighting is Sighting.UNSEEN and (client.user, decision.producer_id) in released_ids
            if released:
                sighting = Sighting.REMEMBERED
            found.append((decision, sighting))
            if released and enforced and decision.above_0:
                # Not even a release lets a batch pass before one that may wait unread elsewhere.
                decision.refuse(Reason.ESTABLISHED, SHORTEST_THROTTLE_MS)
            elif sighting is Sighting.UNSEEN and enforced and self._grants_grace(live, graced, now_ms):
                decision.reason = Reason.GRACE
                graced += 1
            elif sighting is Sighting.UNSEEN and enforced:
                self._refuse_without_token(client, live, decision, unseen, now_ms)
                unseen += 1
            if not decision.admitted:
                if decision.waited_ms is None:
                    ids.note_refused(self._bounding_rate_milli(live), now_ms)
                self._note_refusal(live, decision, now_ms)
                refused.append(decision)
        if refused:
            return refusal_of(self.table.quotas, refused, self.account(client))
        admitted = [
            decision for decision, sighting in found if self._admit(live, ids, decision, sighting, now_ms)
        ]
        return Forward(tuple(admitted)) if admitted else FORWARD

    def _refuse_without_token(
        self, client: Client, live: LiveUser, decision: Decision, ahead: int, now_ms: int
    ) -> None:
        """Refuse an unseen id that cannot be admitted now. `ahead`: unseen ids before it in its request."""
        producer_id, queue = decision.producer_id, live.queue
        if live.blocked_by is not None:
            self._refuse_blocked(decision, live.blocked_by)
            return
        left_ms = decision.deadline_left_ms
        in_line = producer_id in queue.waiting
        if in_line or decision.came_back or left_ms > 0:
            # An id that came back gets a place, and keeps it.
            in_line = queue.enqueue(
                producer_id,
                client.address,
                client.client_id,
                first_refused_ms=now_ms - (decision.waited_ms or 0),
                now_ms=now_ms,
                patience_ms=client.traits.patience_ms,
            )
        queue.pass_over_late(now_ms)
        place = queue.place_of(producer_id) if in_line else None
        if left_ms > 0:
            decision.refuse(Reason.DEADLINE, max(SHORTEST_THROTTLE_MS, left_ms), queue_position=place)
            return
        if decision.above_0:
            decision.refuse(Reason.ESTABLISHED, SHORTEST_THROTTLE_MS)
            return
        ids_before = len(queue.waiting) if place is None else place
        wait_ms, bound = self._wait_ms(live, ids_before + ahead, now_ms, enforced=True)
        if wait_ms:
            reason = Reason.QUEUE if in_line else Reason.FIRST_SEEN
            decision.refuse(reason, self._throttle_ms(wait_ms), queue_position=place, bound=bound)

    def _bounding_rate_milli(self, live: LiveUser) -> int:
        """Return the user's rate, or the cluster's if the user has none."""
        own = live.quota.rate_milli if live.quota.rate_milli is not None else live.quota.states_rate_milli
        return (self.table.quotas.cluster_rate_milli or 0) if own is None else own

    def _refuse_blocked(self, decision: Decision, bound: Bound) -> None:
        decision.refuse(Reason.BLOCKED, self.table.quotas.producer_ids.max_throttle_ms, bound=bound)

    def _note_refusal(self, live: LiveUser, decision: Decision, now_ms: int) -> None:
        """Complete a refusal, and record its reason for operators."""
        if decision.producer_id in live.queue.waiting:
            live.queue.note_throttle(decision.producer_id, now_ms + decision.throttle_time_ms)
        decision.tokens_before = decision.tokens_after = live.units(now_ms)
        rates_milli = {
            Bound.USER: live.quota.rate_milli,
            Bound.STATES: live.quota.states_rate_milli,
            Bound.CLUSTER: self.table.quotas.cluster_rate_milli,
        }
        self.table.refusals.note_refusal(
            decision.user,
            Refusal(
                decision.producer_id,
                decision.reason,
                decision.bound,
                rates_milli[decision.bound],
                now_ms,
                now_ms + decision.throttle_time_ms,
                decision.queue_position,
            ),
        )

    def _admit(
        self,
        live: LiveUser,
        ids: LayeredFilter,
        decision: Decision,
        sighting: Sighting,
        now_ms: int,
    ) -> bool:
        """Insert and charge an id that is forwarded. Return whether it was not in the current slice."""
        is_new_here = sighting is not Sighting.CURRENT
        if sighting is Sighting.REMEMBERED:
            decision.reason = Reason.REFRESH
        elif is_new_here:
            self._charge(live, decision, now_ms)
        if is_new_here:
            ids.insert(decision.producer_id, now_ms, floor=live.floor, others_hear=self.in_fleet)
        self._end_wait(live, decision.user, decision.producer_id)
        return is_new_here

    def _end_wait(self, live: LiveUser, user: User, producer_id: int) -> None:
        """Take an admitted id out of its user's queue, and end its release."""
        if producer_id in live.queue.waiting:
            live.queue.remove(producer_id)
        self.table.refusals.released.pop((owner_of(user)[0], producer_id), None)

    def _charge(self, live: LiveUser, decision: Decision, now_ms: int) -> None:
        """Charge an unseen id that is admitted, and set the reason."""
        in_line, bucket = decision.producer_id in live.queue.waiting, live.active_bucket
        if bucket is not None:
            decision.tokens_before = bucket.units(now_ms)
        if decision.reason is Reason.GRACE:
            live.grace_admitted += 1
        elif decision.enforced:
            decision.reason = Reason.QUEUE if in_line else Reason.FIRST_SEEN
            self.table.charge(live, TokenBucket.charge, now_ms)
        elif live.quota.exempt:
            decision.reason = Reason.EXEMPT
        else:
            if live.quota.enforces and not is_bounded(self.table.quotas, live.quota):
                # A user under enforcement without any rate is admitted, not merely observed.
                decision.reason = Reason.QUEUE if in_line else Reason.FIRST_SEEN
            decision.would_refuse = (
                live.blocked_by is not None or self._wait_ms(live, 0, now_ms, enforced=False)[0] > 0
            )
            self.table.charge_observed(live, now_ms)
        if bucket is not None:
            decision.tokens_after = bucket.units(now_ms)

    def _grants_grace(self, live: LiveUser, ahead: int, now_ms: int) -> bool:
        """Return whether an unseen id under enforcement is admitted as grace; `ahead`: ids graced before it in its
        request.
        """
        return self._grace_ids_left(live.quota, live.grace_admitted + ahead, now_ms) > 0

    def _grace_ids_left(self, quota: EffectiveQuota, admitted: int, now_ms: int) -> int:
        if self.table.quotas.cluster_rate_milli == 0:
            return 0
        return self.table.grace.ids_left(quota, quota.rate_milli, admitted, now_ms)

    def not_refused(self, quotas: Quotas, user: User, now_ms: int) -> tuple[NotRefused | None, int]:
        """Return why these quotas refuse no new producer id of this user now (None: they may), and how many grace
        admits.
        """
        live = self.table.find(user) if self.is_restored else None
        quota = resolve(quotas, user)
        why = why_not_refused(quotas, quota)
        if why is not None:
            return why, 0
        if not self.is_restored:
            return NotRefused.RESTORING, 0
        left = self._grace_ids_left(quota, live.grace_admitted if live else 0, now_ms)
        return (NotRefused.GRACE if left else None), left

    def _throttle_ms(self, wait_ms: int) -> int:
        return min(max(SHORTEST_THROTTLE_MS, wait_ms), self.table.quotas.producer_ids.max_throttle_ms)

    def _wait_ms(self, live: LiveUser, place: int, now_ms: int, *, enforced: bool) -> tuple[int, Bound]:
        """Return the wait (ms) until all buckets have a token for that place, and the bucket with the longest wait."""
        table = self.table
        own, cluster = table.spent_buckets(live) if enforced else table.observed_buckets(live, now_ms)
        own_ms, bound = own.wait_ms(place, now_ms) if own else 0, Bound.USER
        states = live.pairs_bucket
        if states is not None and (states_ms := states.wait_ms(place, now_ms)) > own_ms:
            own_ms, bound = states_ms, Bound.STATES
        cluster_ms = cluster.wait_ms(place, now_ms) if cluster else 0
        return (cluster_ms, Bound.CLUSTER) if cluster_ms > own_ms else (own_ms, bound)

    def note_pair(
        self,
        client: Client,
        producer_id: int,
        topic: bytes,
        partition: int,
        node_ids: Sequence[int],
        now_ms: int,
    ) -> None:
        """Record a forwarded batch of the id to the partition, which has replicas on these brokers."""
        hashed = pair_hash(producer_id, topic, partition)
        self.states.note(client.user, hashed, node_ids, now_ms)
        if self.table.counts_pairs and self.is_restored:
            self._charge_pair(client, hashed, now_ms)

    def _charge_pair(self, client: Client, hashed: int, now_ms: int) -> None:
        """Charge a new pair. It has passed: a known id may use any partition."""
        live = self.table.live(client.user, now_ms, client.address)
        if not live.quota.states_rate_milli:
            return
        pairs = self.table.pairs(client.user, live, now_ms)
        sighting = pairs.filter.find(hashed, now_ms)
        if sighting is Sighting.CURRENT:
            return
        is_free = live.quota.exempt or now_ms < self.pairs_free_until_ms or live.quota.grace_milli
        if sighting is Sighting.UNSEEN and not is_free:
            # The debt is a full bucket at most if enforced, one token if observed.
            pairs.spend(Reason.FIRST_SEEN if live.quota.enforces else Reason.OBSERVE, now_ms)
        pairs.filter.insert(hashed, now_ms, floor=live.pairs_floor)

    # InitProducerId

    def _decide_new_id(
        self, client: Client, live: LiveUser, decision: Decision, now_ms: int
    ) -> Forward | Refuse:
        """Decide whether a broker may give the user one more id. Nothing is charged before the id is given or used."""
        enforced = live.refuses_plain
        if not live.quota.exempt:
            self._refuse_new_id(client, live, decision, now_ms, enforced=enforced)
        if decision.admitted:
            return FORWARD
        if enforced:
            self._note_refusal(live, decision, now_ms)
            return refusal_of(self.table.quotas, (decision,), self.account(client))
        decision.tokens_before = decision.tokens_after = live.units(now_ms)
        decision.admitted = decision.would_refuse = True
        decision.throttle_time_ms = 0
        return Forward((decision,))

    def _refuse_new_id(
        self, client: Client, live: LiveUser, decision: Decision, now_ms: int, *, enforced: bool
    ) -> None:
        """Refuse a new id, or record that one is given.

        An id is given if the balance, less the ids given a moment ago, is not negative. Otherwise all clients that
        wait for one token would get an id when it is back. An id in the queue has data to lose and is served first, so
        the throttle is that of a place behind the queue. A client that asks for an id does not queue, unless it pays
        at InitProducerId: then it is in line like an id.
        """
        if live.blocked_by is not None:
            self._refuse_blocked(decision, live.blocked_by)
            return
        if self._grants_grace(live, 0, now_ms):
            return
        given, queue = live.given_lately(now_ms), live.queue
        place, last = 0, len(queue.waiting)
        key = place_in_line(client) if enforced and client.traits.is_refused_at_init else None
        if key is not None:
            if key in queue.waiting:
                self._stand_in_line(client, live, key, now_ms)
                last = queue.place_of(key)
            place = last
        if self._wait_ms(live, given + place, now_ms, enforced=enforced)[0] == 0:
            live.given.append(now_ms)
            return
        wait_ms, bound = self._wait_ms(live, given + last, now_ms, enforced=enforced)
        decision.refuse(Reason.FIRST_SEEN, self._throttle_ms(wait_ms), bound=bound)
        if key is not None and self._stand_in_line(client, live, key, now_ms):
            queue.note_throttle(key, now_ms + decision.throttle_time_ms)

    def _stand_in_line(self, client: Client, live: LiveUser, key: int, now_ms: int) -> bool:
        """Put a client that waits for a new id in line, or keep it there. Return whether it is in line."""
        queue = live.queue
        in_line = queue.enqueue(
            key,
            client.address,
            client.client_id,
            first_refused_ms=now_ms,
            now_ms=now_ms,
            patience_ms=client.traits.patience_ms,
        )
        queue.pass_over_late(now_ms)
        return in_line

    def admit_given(self, client: Client, decision: Decision, now_ms: int) -> Forward:
        """Charge and insert the id that a client in line was given: its token is spent before its first batch."""
        user = self.account(client)
        if not self.is_restored:
            return self._pass_and_note(user, [decision], None)
        live = self.table.live(user, now_ms, client.address)
        key = place_in_line(client)
        waiting = live.queue.waiting.get(key)
        if waiting is not None:
            decision.waited_ms = now_ms - waiting.first_refused_ms
            self._end_wait(live, user, key)
        ids = live.filter
        sighting = ids.find(decision.producer_id, now_ms)
        decision.enforced = live.refuses_plain
        if sighting is Sighting.UNSEEN and self._grants_grace(live, 0, now_ms):
            decision.reason = Reason.GRACE
        return Forward((decision,)) if self._admit(live, ids, decision, sighting, now_ms) else FORWARD

    def lacks_token(self, user: User, producer_ids: Iterable[int], now_ms: int) -> bool:
        """Return whether one of these ids is unseen and would be refused without a token."""
        live = self.table.find(user)
        if live is None or not self.is_restored:
            return False
        unseen = any(live.sight(producer_id, now_ms) is Sighting.UNSEEN for producer_id in producer_ids)
        return unseen and self._wait_ms(live, len(live.queue.waiting), now_ms, enforced=True)[0] > 0

    def _decide_transactional_id(
        self, live: LiveUser, decision: Decision, hashed: int, now_ms: int
    ) -> Forward | Refuse:
        """Decide whether the user may begin to use this transactional id. An unknown one costs a token."""
        if live.quota.transactional_ids_rate_milli is None:
            return FORWARD
        known = self.table.transactional_ids(live, now_ms)
        sighting = known.filter.find(hashed, now_ms)
        if sighting is Sighting.CURRENT:
            return FORWARD
        decision.tokens_before = known.units(now_ms)
        if sighting is Sighting.REMEMBERED:
            decision.reason = Reason.REFRESH
        else:
            self._charge_transactional_id(live, known, decision, now_ms)
        decision.tokens_after = known.units(now_ms)
        if not decision.admitted:
            known.filter.note_refused(live.quota.transactional_ids_rate_milli, now_ms)
            return refusal_of(self.table.quotas, (decision,), decision.user)
        known.filter.insert(hashed, now_ms, floor=live.transactional_floor, others_hear=self.in_fleet)
        return Forward((decision,))

    def _charge_transactional_id(
        self, live: LiveUser, known: RatedKeys, decision: Decision, now_ms: int
    ) -> None:
        """Charge an unseen transactional id, or refuse it without a token."""
        quota, rate_milli = live.quota, live.quota.transactional_ids_rate_milli
        longest_ms = self.table.quotas.producer_ids.max_throttle_ms
        wait_ms = known.bucket.wait_ms(0, now_ms) if rate_milli and known.bucket else longest_ms
        if quota.exempt:
            decision.reason = Reason.EXEMPT
        elif not quota.enforces:
            decision.would_refuse = wait_ms > 0
            known.spend(Reason.OBSERVE, now_ms)
        elif rate_milli and self.table.grace.ids_left(quota, rate_milli, known.grace_admitted, now_ms):
            decision.reason = Reason.GRACE
            known.grace_admitted += 1
        elif wait_ms:
            reason = Reason.FIRST_SEEN if rate_milli else Reason.BLOCKED
            decision.refuse(reason, self._throttle_ms(wait_ms))
        else:
            decision.reason = Reason.FIRST_SEEN
            known.spend(Reason.FIRST_SEEN, now_ms)

    # Commands, and ids without a decision here

    def apply(self, command: Command, now_ms: int) -> None:
        """Apply an operator's command, also while the state is being restored.

        A released id is admitted when it comes back like a remembered one: uncharged, and published as a refresh.
        Refilling an unknown user does nothing, because it has all of its tokens.
        """
        self._move_former_state(command.user, now_ms)
        if command.type is CommandType.RELEASE:
            self.table.refusals.release(command.user, command.producer_id)
            return
        for account in (command.user, *client_accounts(self.table.quotas, command.user).values()):
            live = self.table.find(account)
            if live is not None and live.bucket is not None:
                live.bucket.fill(now_ms)
                live.is_changed = True
            if live is not None and live.pairs is not None and live.pairs.bucket is not None:
                live.pairs.bucket.fill(now_ms)

    def insert_uncharged(
        self, user: User, producer_id: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Admit the id for that use without spending a token."""
        self._move_former_state(user, now_ms)
        if self.is_restored:
            self._insert(user, producer_id, now_ms, transactional)
        else:
            self.noted.note_id(user, producer_id, Reason.FAIL_OPEN, transactional=transactional)

    def _insert(self, user: User, producer_id: int, now_ms: int, transactional: bool) -> None:
        live = self.table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        ids.insert(producer_id, now_ms, floor=live.floor, others_hear=self.in_fleet)
        self._end_wait(live, user, producer_id)

    def insert_transactional_id(self, user: User, hashed: int, now_ms: int) -> None:
        """Remember a transactional id, by 64 bits of its hash, without spending a token."""
        self._move_former_state(user, now_ms)
        if self.is_restored:
            self.restorer.restore_transactional_id(user, hashed, now_ms, now_ms, Reason.FAIL_OPEN)
        else:
            self.noted.note_transactional_id(user, hashed, Reason.FAIL_OPEN)

    def admitted_elsewhere(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        """Insert an id admitted or refreshed by another gateway for `reason`; return whether it was unseen here.

        Only an unseen id is charged. A producer that writes to three brokers, each behind its own gateway, costs one
        token in each gateway's account.
        """
        self.in_fleet = True
        return self.admitted_meanwhile(user, producer_id, now_ms, reason, transactional=transactional)

    def admitted_meanwhile(
        self, user: User, producer_id: int, now_ms: int, reason: Reason, *, transactional: bool = False
    ) -> bool:
        """Insert an id that passed in this process before the state was restored; return whether it was unseen."""
        live = self.table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        unseen = ids.insert_elsewhere(producer_id, now_ms, now_ms, floor=live.floor)
        if unseen:
            self._count_elsewhere(live, reason, now_ms, transactional=transactional)
        self._end_wait(live, user, producer_id)
        return unseen

    def _count_elsewhere(
        self, live: LiveUser, reason: Reason, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Charge an id that another gateway charged. One that it admitted as grace counts as grace here."""
        # An id that passed while a state was being restored counts as observed, or under grace as grace.
        enforced = live.refuses_transactional if transactional else live.refuses_plain
        graced = reason is Reason.RESTORING and enforced and self._grants_grace(live, 0, now_ms)
        if graced or reason is Reason.GRACE:
            live.grace_admitted += 1
        elif live.quota.exempt:
            return
        elif reason in (Reason.FIRST_SEEN, Reason.QUEUE):
            self.table.charge(live, TokenBucket.charge_elsewhere, now_ms)
        elif reason in (Reason.OBSERVE, Reason.RESTORING):
            self._charge_unrefused(live, now_ms, enforced=enforced)

    def _charge_unrefused(self, live: LiveUser, now_ms: int, *, enforced: bool) -> None:
        """Charge an id that was admitted perhaps without a token; `enforced`: such an id may be refused here."""
        if enforced:
            self.table.charge(live, TokenBucket.charge_floored, now_ms)
        else:
            self.table.charge_observed(live, now_ms)

    def inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        """Admit the new id of a transaction uncharged; return False when the old one is not remembered as such.

        While the state is being restored, return True: the predecessor is looked up when the id is handed over.
        """
        self._move_former_state(user, now_ms)
        if self.is_restored:
            return self._inherit(user, old_producer_id, new_producer_id, now_ms)
        self.noted.note_inherited(user, old_producer_id, new_producer_id)
        return True

    def _inherit(self, user: User, old_producer_id: int, new_producer_id: int, now_ms: int) -> bool:
        if not self.table.remembers(user, old_producer_id, now_ms, transactional=True):
            return False
        self._insert(user, new_producer_id, now_ms, transactional=True)
        return True
