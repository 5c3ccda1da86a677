"""Histories of questions for one or several states: drawn from a `Random`, so that hypothesis can shrink them and
a mutant can be tried with many.

Each `check_*` plays one history and asserts what must hold of it, whatever class of state it is given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from random import Random

from pidgate.quota.decisions import Decision, Reason
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.restoring import UserState
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.questions import Question, is_refused, question
from tests.unit.quota.world import seeds

StateClass = Callable[[Quotas, Callable[[], int], int], ProducerIdQuota]

USERS = ("enforced", "observed", "exempt", "blocked")


def small_quotas(rng: Random, *, cluster: bool = False) -> Quotas:
    """Short times, so that a history of some dozen questions lives through all of them.

    A false positive would be no mistake; at a billionth there is none.
    """
    settings = ProducerIdSettings(
        window_ms=10_000,
        remember_ms=rng.choice((4_000, 12_000)),
        layers=rng.randint(1, 4),
        false_positive_rate=1e-9,
        max_throttle_ms=1_000,
    )
    return Quotas(
        mode=Mode.ENFORCE,
        producer_ids=settings,
        default=UserQuota.per_window(rng.choice((3, 10, 40))),
        users={
            "observed": UserQuota(mode=Mode.OBSERVE),
            "exempt": UserQuota(exempt=True),
            "blocked": UserQuota.per_window(0),
        },
        cluster_rate_milli=60_000 if cluster else None,
    )


def random_question(rng: Random, *, came_back: bool | None = None) -> Question:
    ids = rng.sample(range(60), rng.choice((1, 1, 1, 2, 5)))
    back = rng.random() < 0.3 if came_back is None else came_back
    return question(rng.choice(USERS), *ids, transactional=rng.random() < 0.2, came_back=back)


@dataclass
class Log:
    """What a state has decided, and when each id was let pass last."""

    records: list[tuple[int, Decision]] = field(default_factory=list)
    used_ms: dict[tuple[str, int, bool], int] = field(default_factory=dict)

    def ask(self, state: ProducerIdQuota, asked: Question, now_ms: int) -> bool:
        client, decisions = asked
        answer = state.decide(client, decisions, now_ms)
        self.records += [(now_ms, decision) for decision in answer.decisions]
        if not is_refused(answer):
            for one in decisions:
                self.used_ms[client.user, one.producer_id, one.transactional] = now_ms
        return is_refused(answer)


def check_restart(rng: Random, make: StateClass) -> None:
    """A replay of the admissions into a fresh state: the same ids remembered, the same tokens; nothing charged."""
    quotas = small_quotas(rng)
    window = quotas.producer_ids
    token_units = window.window_ms * 1_000
    original, log, now_ms = make(quotas, seeds(), 0), Log(), 0
    if rng.random() < 0.3:
        original.begin_grace(rng.randint(0, 5_000))
    for _ in range(rng.randint(1, 60)):
        now_ms += rng.choice((0, 1, 50, 700, 2_500))
        log.ask(original, random_question(rng), now_ms)
    now_ms += rng.choice((0, 10, 3_000))
    # The clock of the new process: what was may lie before its zero.
    shift_ms = rng.choice((0, -now_ms, -now_ms + 1_234, 777, 1_000_000))
    restored_ms = now_ms + shift_ms
    fresh = make(quotas, seeds(50_000), restored_ms)
    for at_ms, decision in log.records:
        if decision.admitted:
            fresh.restorer.restore_id(
                decision.user,
                decision.producer_id,
                at_ms + shift_ms,
                restored_ms,
                transactional=decision.transactional,
            )
        if decision.admitted and decision.tokens_after is not None:
            fresh.restorer.restore_tokens(decision.user, decision.tokens_after, token_units, at_ms + shift_ms)
    for user in USERS:
        expected, found = original.status(user, now_ms).tokens, fresh.status(user, restored_ms).tokens
        if found is None and expected is not None:
            # Nothing was told of the user, as nothing was admitted: its bucket is full as it was.
            assert quotas.default.producer_ids_rate_milli is not None
            found = quotas.default.producer_ids_rate_milli / 1_000
        assert found == expected, user
    for later_ms in (0, 500, window.remember_ms - 1, window.remember_ms):
        for (user, producer_id, use), used_ms in log.used_ms.items():
            if now_ms + later_ms - used_ms <= window.remember_ms:
                assert fresh.table.remembers(user, producer_id, restored_ms + later_ms, transactional=use), (
                    user,
                    producer_id,
                    use,
                )


def copied(
    state: ProducerIdQuota, make: StateClass, quotas: Quotas, now_ms: int, restored_ms: int
) -> ProducerIdQuota:
    """The state in a new process, whose clock says `restored_ms` at `now_ms`."""
    copy = make(quotas, seeds(70_000), restored_ms)
    users: list[UserState] = list(state.restorer.export_users(now_ms))
    for user in users:
        copy.restorer.import_user(user, restored_ms)
    copy.restorer.import_cluster_bucket(state.restorer.export_cluster_bucket(now_ms), restored_ms)
    return copy


def check_copy(rng: Random, make: StateClass) -> None:
    """An exported and imported state gives the same answers as the original from then on."""
    quotas = small_quotas(rng, cluster=rng.random() < 0.5)
    original, log, now_ms = make(quotas, seeds(), 0), Log(), 0
    grace_until_ms = rng.choice((0, 0, 20_000))
    original.begin_grace(grace_until_ms)
    for _ in range(rng.randint(0, 40)):
        now_ms += rng.choice((0, 1, 50, 700, 2_500))
        log.ask(original, random_question(rng, came_back=False), now_ms)
    slice_ms = quotas.producer_ids.slice_ms  # another clock, with slices at the same moments
    shift_ms = slice_ms * rng.randint(-(now_ms // slice_ms), 20)
    copy = copied(original, make, quotas, now_ms, now_ms + shift_ms)
    if grace_until_ms > now_ms:
        copy.begin_grace(grace_until_ms + shift_ms)
    for _ in range(rng.randint(1, 40)):
        now_ms += rng.choice((0, 1, 50, 700, 2_500))
        client, decisions = random_question(rng)
        again = deepcopy(decisions)
        expected = original.decide(client, decisions, now_ms)
        assert copy.decide(client, again, now_ms + shift_ms) == expected


@dataclass
class Gateway:
    """One of a fleet: its state, its clock's zero, and what its connections know until its slice ends."""

    state: ProducerIdQuota
    shift_ms: int
    cached: dict[int, int] = field(default_factory=dict)
    charged: dict[int, int] = field(default_factory=dict)


class Fleet:
    """Gateways that tell each other what they admit, late and in any order. One user, named alice."""

    def __init__(self, rng: Random, make: StateClass, quotas: Quotas, members: int) -> None:
        self.rng, self.make, self.quotas = rng, make, quotas
        self.now_ms = 0
        self.told: list[tuple[int, int, Reason]] = []
        self._order = count()
        self._under_way: list[tuple[int, int, int, int, Reason]] = []
        self.gateways = []
        for number in range(members):
            shift_ms = rng.randint(0, 5_000)
            state = make(quotas, seeds(1_000 * number + 9), shift_ms)
            state.in_fleet = True
            self.gateways.append(Gateway(state, shift_ms))

    def produce(self, number: int, producer_id: int, most_delay_ms: int) -> bool:
        """A request with the id at one of them; False when it was refused."""
        gateway = self.gateways[number]
        now_ms = self.now_ms + gateway.shift_ms
        slice_no = now_ms // self.quotas.producer_ids.slice_ms
        if gateway.cached.get(producer_id) == slice_no:
            return True
        answer = gateway.state.decide(*question("alice", producer_id), now_ms)
        if is_refused(answer):
            return False
        gateway.cached[producer_id] = slice_no
        for decision in answer.decisions:
            self._charged(gateway, producer_id, decision.reason)
            self.told.append((self.now_ms, producer_id, decision.reason))
            for other in range(len(self.gateways)):
                if other != number:
                    at_ms = self.now_ms + self.rng.randint(0, most_delay_ms)
                    event = (at_ms, next(self._order), other, producer_id, decision.reason)
                    heapq.heappush(self._under_way, event)
        return True

    def pass_to(self, now_ms: int) -> None:
        """What is due by then arrives."""
        while self._under_way and self._under_way[0][0] <= now_ms:
            at_ms, _, number, producer_id, reason = heapq.heappop(self._under_way)
            gateway = self.gateways[number]
            at_ms += gateway.shift_ms
            if gateway.state.admitted_elsewhere("alice", producer_id, at_ms, reason):
                self._charged(gateway, producer_id, reason)
        self.now_ms = now_ms

    @staticmethod
    def _charged(gateway: Gateway, producer_id: int, reason: Reason) -> None:
        if reason in (Reason.FIRST_SEEN, Reason.QUEUE, Reason.OBSERVE):
            gateway.charged[producer_id] = gateway.charged.get(producer_id, 0) + 1

    def under_way(self) -> set[int]:
        return {event[3] for event in self._under_way}

    def restart_from_events(self, number: int) -> None:
        """The gateway comes back with another clock, knowing only what everyone has told."""
        gateway = self.gateways[number]
        gateway.shift_ms = self.rng.randint(-self.now_ms, 5_000)
        now_ms = self.now_ms + gateway.shift_ms
        gateway.state = self.make(self.quotas, seeds(number + 31), now_ms)
        gateway.state.in_fleet = True
        gateway.cached.clear()
        for at_ms, producer_id, _ in self.told:
            gateway.state.restorer.restore_id("alice", producer_id, at_ms + gateway.shift_ms, now_ms)

    def restart_from_export(self, number: int) -> None:
        """The same from an export; what is under way arrives later."""
        gateway = self.gateways[number]
        exported_ms = self.now_ms + gateway.shift_ms
        gateway.shift_ms = self.rng.randint(-self.now_ms, 5_000)
        restored_ms = self.now_ms + gateway.shift_ms
        gateway.state = copied(gateway.state, self.make, self.quotas, exported_ms, restored_ms)
        gateway.state.in_fleet = True
        gateway.cached.clear()

    def tokens(self, number: int) -> float | None:
        gateway = self.gateways[number]
        return gateway.state.status("alice", self.now_ms + gateway.shift_ms).tokens


def check_fleet_remembers(rng: Random, make: StateClass) -> None:
    """No gateway takes an id for new within the time to remember of its last use anywhere, restarts included."""
    quotas = Quotas(
        mode=Mode.ENFORCE,
        producer_ids=ProducerIdSettings(
            window_ms=10_000, remember_ms=4_000, layers=rng.randint(1, 4), false_positive_rate=1e-9
        ),
    )
    # An id is used silently for a slice after it was heard of; what is heard late is used so much later.
    most_delay_ms = rng.choice((0, 0, 300))
    remembered_ms = quotas.producer_ids.remember_ms - most_delay_ms
    fleet = Fleet(rng, make, quotas, rng.randint(2, 3))
    used_ms: dict[int, int] = {}
    for _ in range(rng.randint(1, 60)):
        fleet.pass_to(fleet.now_ms + rng.choice((0, 1, 60, 400, 1_500)))
        under_way = fleet.under_way()
        for producer_id, at_ms in used_ms.items():
            if fleet.now_ms - at_ms <= remembered_ms and producer_id not in under_way:
                for gateway in fleet.gateways:
                    known = gateway.state.table.remembers(
                        "alice", producer_id, fleet.now_ms + gateway.shift_ms
                    )
                    assert known, (producer_id, at_ms, fleet.now_ms)
        chance = rng.random()
        number = rng.randrange(len(fleet.gateways))
        if chance < 0.08:
            fleet.restart_from_events(number)
        elif chance < 0.16:
            fleet.restart_from_export(number)
        else:
            producer_id = rng.randrange(6)
            assert fleet.produce(number, producer_id, most_delay_ms=most_delay_ms)
            used_ms[producer_id] = fleet.now_ms


def check_fleet_tokens(rng: Random, make: StateClass) -> None:
    """Each id is charged once in each account, by whomever it was admitted, and all accounts come to the same."""
    quotas = Quotas(
        mode=Mode.ENFORCE,
        producer_ids=ProducerIdSettings(window_ms=1_000_000, false_positive_rate=1e-9),
        default=UserQuota.per_window(1_000),
    )
    fleet = Fleet(rng, make, quotas, rng.randint(2, 3))
    for producer_id in range(400):  # neither full nor in debt from here on
        assert fleet.produce(0, producer_id, 0)
    fleet.pass_to(0)
    for _ in range(rng.randint(1, 60)):
        fleet.pass_to(fleet.now_ms + rng.choice((0, 1, 60, 2_000)))
        ids = [rng.randrange(400, 500) for _ in range(rng.randint(1, 3))]
        for producer_id in ids:
            for number in rng.sample(range(len(fleet.gateways)), rng.randint(1, len(fleet.gateways))):
                assert fleet.produce(number, producer_id, most_delay_ms=rng.choice((0, 100, 5_000)))
    fleet.pass_to(fleet.now_ms + 5_000)
    produced = set().union(*(gateway.charged for gateway in fleet.gateways))
    for number, gateway in enumerate(fleet.gateways):
        assert gateway.charged == dict.fromkeys(produced, 1)
        left = fleet.tokens(number)
        assert left is not None
        assert abs(left - (1_000 + fleet.now_ms / 1_000 - len(produced))) < 1e-6, number
