"""What a trial says of a rate is what the gateway's own decision says, arrival by arrival."""

from __future__ import annotations

from dataclasses import asdict
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.pipeline.recommend import trial as trial_module
from pidgate.pipeline.recommend.trial import Cost, RateTrial, cost_at, least_rate, rounded_up
from pidgate.quota import token_bucket
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome, QuotaReplay
from tests.support.questions import is_refused, question

SETTINGS = ProducerIdSettings(window_ms=60_000, false_positive_rate=1e-9, max_throttle_ms=GIVES_UP_AFTER_MS)
"""A place in line is kept for longer than anybody waits."""
Arrivals = list[tuple[int, bool]]


class Decided:
    """The same by `ProducerIdQuota.decide`: a healthy id that was refused comes back at once, and then when it is told
    that its turn has come, until it gives up.
    """

    def __init__(self, rate_milli: int) -> None:
        quotas = Quotas(Mode.ENFORCE, SETTINGS, default=UserQuota(rate_milli))
        self._quota = ProducerIdQuota(quotas, lambda: 7, 0)
        self._waiting: list[tuple[int, int]] = []
        self.admitted = [0, 0]
        self.refused = [0, 0]
        self.gave_up = 0
        self.longest_wait_ms = 0
        self._now_ms = 0

    def _asks(self, producer_id: int, at_ms: int, first_ms: int | None) -> bool:
        client, decisions = question("u", producer_id, came_back=first_ms is not None)
        if first_ms is not None:
            decisions[0].waited_ms = at_ms - first_ms
        return not is_refused(self._quota.decide(client, decisions, at_ms))

    def _come_back(self, until_ms: int) -> None:
        """Whose turn has come by then, and who has given up."""
        while self._waiting:
            live = self._quota.table.find("u")
            assert live is not None
            assert live.bucket is not None
            producer_id, first_ms = self._waiting[0]
            due_ms = self._now_ms + live.bucket.wait_ms(0, self._now_ms)
            gives_up_ms = first_ms + GIVES_UP_AFTER_MS
            if min(due_ms, gives_up_ms) > until_ms:
                return
            self._waiting.pop(0)
            if due_ms <= gives_up_ms:
                assert self._asks(producer_id, due_ms, first_ms)
                self._now_ms = due_ms
            else:
                live.queue.remove(producer_id)
                self.gave_up += 1
            self.longest_wait_ms = max(self.longest_wait_ms, min(due_ms, gives_up_ms) - first_ms)

    def run(self, arrivals: Arrivals) -> None:
        for producer_id, (at_ms, healthy) in enumerate(arrivals):
            self._come_back(at_ms)
            self._now_ms = at_ms
            if self._asks(producer_id, at_ms, None):
                self.admitted[healthy] += 1
                continue
            self.refused[healthy] += 1
            if healthy:
                self._waiting.append((producer_id, at_ms))
                assert not self._asks(producer_id, at_ms, at_ms)
        self._come_back(1 << 62)


@given(
    st.integers(300, 20_000),
    st.lists(st.tuples(st.integers(0, 20_000), st.booleans()), max_size=60),
)
def test_a_trial_decides_as_the_gateway(rate_milli: int, steps: Arrivals) -> None:
    at_ms, arrivals = 0, []
    for pause_ms, healthy in steps:
        at_ms += pause_ms
        arrivals.append((at_ms, healthy))
    decided, tried = Decided(rate_milli), QuotaReplay(rate_milli, SETTINGS, 0)
    decided.run(arrivals)
    good, rogue = Outcome(), Outcome()
    for at, healthy in arrivals:
        tried.add_arrival(at, good if healthy else rogue, retries=healthy)
    tried.finish()
    assert decided.admitted == [rogue.admitted, good.admitted]
    assert decided.refused == [rogue.refused, good.refused]
    assert decided.gave_up == good.gave_up
    assert decided.longest_wait_ms == good.longest_wait_ms


def made(arrivals: Arrivals) -> trial_module.Arrivals:
    """With a request for each healthy id, and records that tell all ids apart."""
    at_ms, healthy = (np.array(column) for column in zip(*arrivals, strict=True))
    return trial_module.Arrivals(at_ms, healthy, healthy.astype(np.int64), np.arange(1, len(at_ms) + 1))


def one_by_one(rate_milli: int, arrivals: Arrivals) -> Cost:
    """The slow reference: each arrival asked for, and each outcome looked at when all is over."""
    replay, cost = QuotaReplay(rate_milli, SETTINGS, arrivals[0][0]), Cost()
    outcomes = []
    for at_ms, healthy in arrivals:
        outcome = Outcome()
        replay.add_arrival(at_ms, outcome, retries=healthy)
        if outcome.refused and not healthy:
            outcome.gave_up, outcome.longest_wait_ms = 1, replay.bucket.wait_ms(0, at_ms)
        outcomes.append(outcome)
    replay.finish()
    for place, (outcome, (_, healthy)) in enumerate(zip(outcomes, arrivals, strict=True)):
        cost.refused_ids += outcome.refused
        cost.refused_healthy_ids += outcome.refused * healthy
        cost.refused_requests += outcome.gave_up * healthy
        cost.refused_records += outcome.gave_up * (place + 1)
        cost.longest_wait_ms = max(cost.longest_wait_ms, outcome.longest_wait_ms)
    return cost


def same(rate_milli: int, arrivals: Arrivals) -> bool:
    """In two goes: a client may wait over their border."""
    trial, cut = RateTrial(rate_milli / 1000, SETTINGS, made(arrivals)), len(arrivals) // 2
    costs = [trial.replay(0, cut), trial.replay(cut)]
    trial.finish()
    both = {name: getattr(costs[0], name) + getattr(costs[1], name) for name in asdict(costs[0])}
    both["longest_wait_ms"] = max(one.longest_wait_ms for one in costs)
    return both == asdict(one_by_one(rate_milli, arrivals))


def storms(seed: int, count: int) -> Arrivals:
    """Arrivals in storms and pauses, healthy ones now and then, or hardly ever, or all of them."""
    chance, at_ms, arrivals = Random(seed), 0, []
    healthy_share = chance.choice((0.0, 0.02, 0.3, 1.0))
    for _ in range(count):
        at_ms += chance.choice((0, 0, 3, 40, 900, 90_000 if chance.random() < 0.05 else 1))
        arrivals.append((at_ms, chance.random() < healthy_share))
    return arrivals


@pytest.mark.parametrize("seed", range(12))
def test_what_is_skipped_changes_nothing(seed: int) -> None:
    arrivals = storms(seed, 3_000)
    for rate_milli in (300, 20_000, 700_000, 5_000_000, 1_000_000_000_000):
        assert same(rate_milli, arrivals), rate_milli


def test_who_skips_too_far_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a millisecond, past the moment in which a token is there."""
    right = RateTrial._due_ms
    monkeypatch.setattr(RateTrial, "_due_ms", lambda trial, at_ms: right(trial, at_ms) + 1)
    assert not same(6_000, [(at_ms, False) for at_ms in range(0, 120_000, 7)])


@pytest.mark.parametrize("seed", range(12))
def test_the_least_rate_is_the_least_of_all_that_refuse_nobody(seed: int) -> None:
    came = made(storms(seed, 300))
    found = least_rate(SETTINGS, came)
    assert cost_at(found, SETTINGS, came) == Cost()
    rates = [float(rate) for rate in range(1, 500) if rounded_up(rate) == rate]
    below = [rate for rate in rates if rate < found]
    assert below
    assert all(cost_at(rate, SETTINGS, came).refused_ids for rate in below)


@pytest.mark.parametrize(
    ("rate", "expected"), [(0, 1), (7, 7), (7.2, 8), (99.1, 100), (130, 130), (131, 140), (2_501, 2_600)]
)
def test_rates_are_rounded_up_to_two_digits(rate: float, expected: float) -> None:
    assert rounded_up(rate) == expected


def test_a_rate_of_zero_refuses_all() -> None:
    arrivals = [(0, True), (5, False)]
    assert cost_at(0, SETTINGS, made(arrivals)) == Cost(2, 1, 1, 3, GIVES_UP_AFTER_MS)


def test_who_never_gives_up_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one number that is not quota's: how long a client goes on."""
    monkeypatch.setattr(token_bucket, "GIVES_UP_AFTER_MS", 10)
    tried, outcome = QuotaReplay(2_000, SETTINGS, 0), Outcome()
    for _ in range(8):
        tried.add_arrival(0, outcome)
    tried.finish()
    assert outcome.longest_wait_ms == 10
    assert outcome.gave_up == 5
