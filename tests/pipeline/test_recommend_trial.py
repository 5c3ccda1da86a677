"""What a trial says of a rate is what the gateway's own decision says, arrival by arrival."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.pipeline.recommend import trial as trial_module
from pidgate.pipeline.recommend.trial import TRAIN, FilterTrial, RateTrial, UserTrial
from pidgate.quota import token_bucket
from pidgate.quota.layered_filter import EXACT_IDS
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


def one_by_one(rate_milli: int, arrivals: Arrivals) -> RateTrial:
    tried = RateTrial(rate_milli, SETTINGS, 0)
    for at, healthy in arrivals:
        good, rogue = tried.periods[TRAIN]
        tried.add_arrival(at, good if healthy else rogue, retries=healthy)
    return tried


def at_once(rate_milli: int, arrivals: Arrivals) -> RateTrial:
    tried = RateTrial(rate_milli, SETTINGS, 0)
    healthy = [place for place, (_, is_healthy) in enumerate(arrivals) if is_healthy]
    # In two goes: what waits, waits over their border.
    cut = len(arrivals) // 2
    for part in (slice(0, cut), slice(cut, None)):
        begin = part.start
        places = [place - begin for place in healthy if begin <= place < begin + len(arrivals[part])]
        tried.add_arrivals(trial_module.Arrivals([at for at, _ in arrivals[part]], places), TRAIN)
    return tried


def same_at_the_end(one: RateTrial, other: RateTrial, end_ms: int) -> bool:
    balances = one.bucket.units(end_ms) == other.bucket.units(end_ms)
    one.finish()
    other.finish()
    return balances and one.periods == other.periods


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
        ahead, step_by_step = at_once(rate_milli, arrivals), one_by_one(rate_milli, arrivals)
        assert same_at_the_end(ahead, step_by_step, arrivals[-1][0] + 1), rate_milli


def test_who_skips_too_far_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a millisecond, past the moment in which a token is there."""
    right = RateTrial._refuses_until_ms
    monkeypatch.setattr(RateTrial, "_refuses_until_ms", lambda trial, at_ms: right(trial, at_ms) + 1)
    arrivals = [(at_ms, False) for at_ms in range(0, 120_000, 7)]
    rate_milli = 6_000
    assert not same_at_the_end(at_once(rate_milli, arrivals), one_by_one(rate_milli, arrivals), 120_000)


def test_the_periods_share_one_bucket() -> None:
    """What was spent before the judged days is spent in them."""
    trial = UserTrial([2_000], SETTINGS, at_ms=0, split_ms=10)
    trial.add_arrivals([8 + number for number in range(6)], [False] * 6)
    train, test = (rogue for _, _, _, rogue in trial.finish())
    assert (train.admitted, train.refused) == (2, 0)
    assert (test.admitted, test.refused) == (1, 3)


def test_false_positives_are_counted_against_what_is_known_exactly() -> None:
    settings = ProducerIdSettings(false_positive_rate=0.05)
    filters, random = FilterTrial(settings, 50_000, 9), Random(2)
    for number in range(EXACT_IDS + 4_000):
        if number == EXACT_IDS:
            assert filters.false_positives == 0
        filters.add_use(number, number * 1_000, is_new=True)
        if number > 10:
            filters.add_use(random.randrange(number), number * 1_000, is_new=False)
    assert filters.ids == EXACT_IDS + 4_000
    assert 0 < filters.false_positives <= 0.05 * 4_000


def test_who_never_gives_up_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one number that is not quota's: how long a client goes on."""
    monkeypatch.setattr(token_bucket, "GIVES_UP_AFTER_MS", 10)
    tried, outcome = QuotaReplay(2_000, SETTINGS, 0), Outcome()
    for _ in range(8):
        tried.add_arrival(0, outcome)
    tried.finish()
    assert outcome.longest_wait_ms == 10
    assert outcome.gave_up == 5
