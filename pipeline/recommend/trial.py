"""One user's history at several rates at once: what each would have admitted, and how long healthy ids would have
waited.

Each rate is a bucket of quota's own (`TokenBucket`). Whether an id is remembered does not depend on the rate, and the
arrivals say it exactly; so the gateway's filter (`LayeredFilter`) runs once beside them, to count its errors.

Proof: tests/pipeline/test_replay.py lets `RateTrial.admits` decide what real gateways decided, test_recommend_trial.py
holds whole trials against `ProducerIdQuota.decide`. Knows no Spark. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pidgate.quota.layered_filter import FilterBudget, LayeredFilter, Sighting, usable_seed
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import layer_floor

GIVES_UP_AFTER_MS = 120_000
"""Java's and kafka-python's delivery timeout: who waits longer has lost data."""

TRAIN, TEST = 0, 1


@dataclass(slots=True)
class Outcome:
    """Counts of one rate in one period. `longest_wait_ms`: of a healthy id, at most GIVES_UP_AFTER_MS."""

    healthy_admitted: int = 0
    healthy_refused: int = 0
    rogue_admitted: int = 0
    rogue_refused: int = 0
    longest_wait_ms: int = 0


class RateTrial:
    """One rate (thousandths of an id per window, above 0), and how clients would have fared under it.

    `admits` is the gateway's decision. `arrives` and `end` add clients: a healthy id that is refused comes back when
    its turn is there, until it gives up; another one is gone.
    """

    __slots__ = ("_at_ms", "_most_waiting", "_waiting", "bucket", "outcomes", "rate_milli")

    def __init__(self, rate_milli: int, settings: ProducerIdSettings, at_ms: int) -> None:
        self.rate_milli = rate_milli
        self.bucket = TokenBucket(rate_milli, settings.window_ms, settings.burst, at_ms)
        self._most_waiting = settings.queue
        self._waiting: deque[tuple[int, Outcome]] = deque()
        self._at_ms = at_ms
        self.outcomes = (Outcome(), Outcome())

    def admits(self, ahead: int, at_ms: int) -> bool:
        """Decide on an unseen id that has so many ids before it, and charge it if it is admitted."""
        if self.bucket.wait_ms(ahead, at_ms):
            return False
        self.bucket.charge(at_ms)
        return True

    def arrives(self, at_ms: int, *, healthy: bool, period: int) -> None:
        """Let a new id come, behind all that wait. Times do not go back."""
        if self._waiting:
            self._serve(at_ms)
        outcome = self.outcomes[period]
        if self.admits(len(self._waiting), at_ms):
            if healthy:
                outcome.healthy_admitted += 1
            else:
                outcome.rogue_admitted += 1
        elif healthy:
            outcome.healthy_refused += 1
            if len(self._waiting) < self._most_waiting:
                self._waiting.append((at_ms, outcome))
            else:
                outcome.longest_wait_ms = GIVES_UP_AFTER_MS
        else:
            outcome.rogue_refused += 1
        self._at_ms = at_ms

    def end(self) -> None:
        """Serve those that still wait when the history is over."""
        self._serve(1 << 62)

    def _serve(self, until_ms: int) -> None:
        """Admit those that wait, first come first served, each when its turn is there; or let it give up."""
        waiting = self._waiting
        while waiting:
            since_ms, outcome = waiting[0]
            due_ms = self._at_ms + self.bucket.wait_ms(0, self._at_ms)
            gives_up_ms = since_ms + GIVES_UP_AFTER_MS
            if min(due_ms, gives_up_ms) > until_ms:
                return
            waiting.popleft()
            if due_ms <= gives_up_ms and self.admits(0, due_ms):
                self._at_ms = due_ms
            waited_ms = min(due_ms, gives_up_ms) - since_ms
            outcome.longest_wait_ms = max(outcome.longest_wait_ms, waited_ms)


class FilterTrial:
    """The gateway's filter of one user, compared with what is known exactly."""

    __slots__ = ("_filter", "_floor", "false_positives", "ids")

    def __init__(self, settings: ProducerIdSettings, rate_milli: int | None, seed: int) -> None:
        self._filter = LayeredFilter(settings, FilterBudget(settings), usable_seed(seed))
        self._floor = layer_floor(rate_milli, settings)
        self.ids = 0
        self.false_positives = 0

    def uses(self, producer_id: int, at_ms: int, *, is_new: bool) -> None:
        """Look an id up and insert it; `is_new`: it was never used before."""
        pair = self._filter.hashed(producer_id)
        if is_new:
            self.ids += 1
            self.false_positives += self._filter.find(pair, at_ms) is not Sighting.UNSEEN
        self._filter.insert(pair, at_ms, floor=self._floor)


class UserTrial:
    """Trials of one user's rates, or of a part of them. `with_filter`: one of the parts has it."""

    __slots__ = ("_split_ms", "filter", "rates")

    def __init__(
        self,
        rates_milli: Sequence[int],
        settings: ProducerIdSettings,
        *,
        at_ms: int,
        split_ms: int,
        with_filter: bool = True,
    ) -> None:
        self._split_ms = split_ms
        self.rates = [RateTrial(rate, settings, at_ms) for rate in rates_milli]
        largest = max(rates_milli, default=None)
        self.filter = FilterTrial(settings, largest, seed=1) if with_filter else None

    def arrives(self, producer_id: int, at_ms: int, *, healthy: bool, is_first: bool) -> None:
        """Let an id come that is not remembered; `is_first`: it was never seen before."""
        period = TEST if at_ms >= self._split_ms else TRAIN
        for rate in self.rates:
            rate.arrives(at_ms, healthy=healthy, period=period)
        if self.filter is not None:
            self.filter.uses(producer_id, at_ms, is_new=is_first)

    def is_used(self, producer_id: int, at_ms: int) -> None:
        """Note the use of an id that is remembered, in a new slice: free of charge."""
        if self.filter is not None:
            self.filter.uses(producer_id, at_ms, is_new=False)

    def outcomes(self) -> Iterator[tuple[int, int, Outcome]]:
        """Yield (rate_milli, period, outcome) of each; ends the history."""
        for rate in self.rates:
            rate.end()
            for period, outcome in enumerate(rate.outcomes):
                yield rate.rate_milli, period, outcome
