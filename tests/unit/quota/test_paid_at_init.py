"""A client that a refused batch ends is refused at InitProducerId, and has its token when it is given an id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final

import pytest

from pidgate.client_faults import traits_of
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, Forward, Reason, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, UserQuota
from tests.support.rules import rule
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing, seeds, table_of

HARMED: Final = traits_of("librdkafka", "2.4.0", "")
TOKEN_MS: Final = 36_000
"""At 100 an hour."""


class Clients(World):
    """Some of them claim librdkafka 2.4.0."""

    def __init__(self, rate: int = 100, mode: Mode = Mode.ENFORCE, **settings: object) -> None:
        quotas = enforcing(rate, mode=mode, **settings)  # type: ignore[arg-type]
        super().__init__(quotas, Admission(quotas, seeds(), 0))
        self.ids = count(1)

    def harmed(self, client_id: str = "app", address: str = "10.0.0.1") -> Client:
        client = self.connect(client_id=client_id, address=address)
        client.traits = HARMED
        return client

    def ask(self, client: Client) -> int | Refuse:
        """InitProducerId: a refusal, or the id that a broker gives."""
        verdict = self.admission.judge_new_id(client, self.now_ms)
        if isinstance(verdict, Refuse):
            return verdict
        producer_id = next(self.ids)
        if self.admission.pays_at_init(client):
            self.admission.admit_given_id(client, producer_id, 0, self.now_ms)
        return producer_id

    def given(self, client: Client) -> int:
        producer_id = self.ask(client)
        assert isinstance(producer_id, int), producer_id
        return producer_id

    @property
    def tokens(self) -> float:
        return self.admission.state.status("alice", self.now_ms).tokens or 0.0


@rule(
    "A client that cannot survive a refused batch is refused at InitProducerId; an id given to it is charged there.",
    "cost",
)
def test_an_id_that_is_given_has_its_token_whatever_others_take() -> None:
    world = Clients()
    client = world.harmed()
    producer_id = world.given(client)
    assert world.tokens == 99
    world.spend(100)
    assert world.tokens < 0
    world.now_ms += 20_000
    assert isinstance(world.judge(client, batch(producer_id)), Forward)
    assert isinstance(world.judge(world.connect(), batch(producer_id, partition=1)), Forward)
    assert world.tokens == pytest.approx(-1 + 20_000 / TOKEN_MS), "and it is charged once"


def test_without_a_token_it_is_given_none_and_waits_at_init() -> None:
    world = Clients()
    world.spend(101)
    client = world.harmed()
    refused = world.ask(client)
    assert isinstance(refused, Refuse)
    assert refused.throttle_time_ms == 10_000
    world.now_ms = TOKEN_MS
    producer_id = world.given(client)
    assert isinstance(world.judge(client, batch(producer_id)), Forward)
    (alice,) = world.admission.user_snapshots(world.now_ms)
    assert (alice.waiting, alice.outcomes["admitted_after_waiting"], alice.refused) == (0, 1, {})


def test_an_id_that_was_not_given_here_is_refused_as_any_new_id() -> None:
    """The name chooses where a client meets its refusal, never whether."""
    world = Clients()
    world.spend(101)
    assert world.refusal(world.harmed(), batch(4_711)).reason is Reason.FIRST_SEEN


def test_other_clients_and_other_users_pay_at_their_first_batch() -> None:
    world = Clients()
    world.given(world.connect())
    assert world.tokens == 0.0, "nobody of alice has been counted"
    observed = Clients(mode=Mode.OBSERVE)
    observed.given(observed.harmed())
    assert observed.admission.state.users() == []
    exempt = Clients(users={"alice": UserQuota(0, exempt=True)})
    exempt.given(exempt.harmed())
    assert exempt.admission.state.users() == []


def test_a_gateway_that_hears_of_it_charges_it_once_and_knows_it() -> None:
    here, there = Clients(), Clients()
    producer_id = here.given(here.harmed())
    there.spend(100)
    state = there.admission.state
    assert state.admitted_elsewhere("alice", producer_id, 0, Reason.FIRST_SEEN)
    assert there.tokens == -1
    assert isinstance(there.judge(there.harmed(), batch(producer_id)), Forward)


def test_a_gateway_that_has_not_heard_of_it_waits_only_where_it_would_refuse() -> None:
    world = Clients()
    harmed, ordinary = world.harmed(), world.connect()
    elsewhere = world.admission.may_be_admitted_elsewhere
    assert not elsewhere(harmed, (4_711,), False, 0), "there are tokens"
    world.spend(101)
    assert elsewhere(harmed, (4_711,), False, 0)
    assert not elsewhere(ordinary, (4_711,), False, 0)
    assert not elsewhere(harmed, (4_711,), True, 0), "transactions are observed"
    world.admission.state.admitted_elsewhere("alice", 4_711, 0, Reason.FIRST_SEEN)
    assert not elsewhere(harmed, (4_711,), False, 0)


def test_a_broken_quota_gives_ids_that_are_decided_about_later() -> None:
    world = Clients()

    class Broken(ProducerIdQuota):
        def admit_given(self, *_: object) -> Forward:
            raise ZeroDivisionError("a bug")

    failures: list[Exception] = []
    quotas = world.admission.quotas
    world.admission = Admission(
        quotas, seeds(), 0, state=Broken(quotas, seeds(), 0), on_failure=failures.append
    )
    producer_id = world.given(world.harmed())
    assert len(failures) == 1
    assert isinstance(world.judge(world.harmed(), batch(producer_id)), Forward)


# ---- who claims to be harmed -------------------------------------------------------------------------------


class Race(Clients):
    """Over quota for hours: an honest client waits with a batch, others at other addresses do what they can.

    `got` counts the ids admitted by address.
    """

    HONEST: Final = "10.0.0.1"
    ROGUE: Final = "10.0.0.66"

    def __init__(self) -> None:
        super().__init__()
        self.spend(101)
        self.got: Counter[str] = Counter()

    def run(self, *each: Iterator[None]) -> None:
        for self.now_ms in range(0, HOUR_MS, 1_000):
            for one in each:
                next(one)

    def honest(self) -> Iterator[None]:
        """A new producer each time its last one was admitted; a refused one sends its batch again."""
        while True:
            client, producer_id = self.connect(address=self.HONEST), next(self.ids)
            while True:
                verdict = self.judge(client, batch(producer_id))
                if isinstance(verdict, Forward):
                    break
                assert isinstance(verdict, Refuse)
                yield from self._wait(verdict.throttle_time_ms)
            self.got[self.HONEST] += 1
            yield

    def claiming(self, client_id: str) -> Iterator[None]:
        """Asks for ids as librdkafka 2.4.0, over a new connection each time, and uses each at once."""
        while True:
            client = self.harmed(client_id, self.ROGUE)
            producer_id = self.ask(client)
            if isinstance(producer_id, int):
                assert isinstance(self.judge(client, batch(producer_id)), Forward)
                self.got[self.ROGUE] += 1
            yield

    def nameless(self) -> Iterator[None]:
        """Brings a new id each time, without a name."""
        while True:
            client = self.connect(address=self.ROGUE)
            if isinstance(self.judge(client, batch(next(self.ids))), Forward):
                self.got[self.ROGUE] += 1
            self.close(client)
            yield

    def _wait(self, milliseconds: int) -> Iterator[None]:
        until_ms = self.now_ms + milliseconds
        while self.now_ms < until_ms:
            yield


@rule("Claiming another client library gives no id more.", "cost")
@pytest.mark.parametrize("claim", ["2.4.0", "nobody"])
def test_a_raw_client_gets_no_id_more_than_an_honest_one(claim: str) -> None:
    race = Race()
    rogues = [race.claiming(f"c{number}") if claim == "2.4.0" else race.nameless() for number in range(10)]
    race.run(*rogues, race.honest())
    assert race.got.total() <= 100, "the quota holds"
    assert race.got[Race.HONEST] >= 45
    assert race.got[Race.ROGUE] <= race.got[Race.HONEST] + 2


def test_the_control_an_honest_client_alone_gets_all_tokens() -> None:
    race = Race()
    race.run(race.honest())
    assert race.got[Race.HONEST] >= 95


def test_the_control_without_a_line_the_rogue_gets_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with refuse_init alone, where whoever asks first when a token is back gets it."""
    race = Race()

    def ask_unlined(client: Client) -> int | Refuse:
        client.traits = replace(HARMED, is_refused_at_init=False)
        verdict = race.admission.judge_new_id(client, race.now_ms)
        if isinstance(verdict, Refuse):
            return verdict
        client.traits = HARMED
        producer_id = next(race.ids)
        race.admission.admit_given_id(client, producer_id, 0, race.now_ms)
        return producer_id

    race.admission.set_quotas(enforcing(100, refuse_init=True), 0)
    monkeypatch.setattr(race, "ask", ask_unlined)
    race.run(*(race.claiming(f"c{number}") for number in range(10)), race.honest())
    assert race.got[Race.ROGUE] > 3 * race.got[Race.HONEST]


def test_the_line_is_of_an_address_and_client_id_whatever_the_connection() -> None:
    world = Clients()
    world.spend(101)
    for _ in range(5):
        assert isinstance(world.ask(world.harmed()), Refuse)
    assert isinstance(world.ask(world.harmed(address="10.0.0.2")), Refuse)
    live = table_of(world.admission).find("alice")
    assert live is not None
    assert len(live.queue.waiting) == 2


def test_who_does_not_come_back_gave_up() -> None:
    world = Clients()
    world.spend(101)
    assert isinstance(world.ask(world.harmed()), Refuse)
    world.now_ms = HOUR_MS
    (gone,) = world.admission.sweep(world.now_ms)
    assert (gone.user, gone.producer_id, gone.attempts) == ("alice", -1, 2)
