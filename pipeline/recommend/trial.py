"""One user's history at several rates at once: what each would have let in, and how long the healthy would have waited.

Every rate has a bucket of quota's own (`TokenBucket`), and is asked as `ProducerIdQuota.decide` asks it: an id that
comes for the first time is let in when a token is there for it behind those who wait; who was refused and is healthy
comes again and is served first; who is not is gone. Whether an id is remembered does not depend on the rate, and the
arrivals say it exactly; so the filter of the gateway (`LayeredFilter`) runs once beside them, its errors are counted.

tests/pipeline/test_recommend_trial.py holds it against `decide` itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pidgate.quota import Mode, ProducerIdSettings
from pidgate.quota.entities import EffectiveQuota
from pidgate.quota.layered_filter import FilterBudget, LayeredFilter, Sighting, usable_seed
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser

GIVES_UP_AFTER_MS = 120_000
"""Java's and kafka-python's delivery timeout: who waits longer has lost data."""

TRAIN, TEST = 0, 1


@dataclass(slots=True)
class Outcome:
    """Of one rate in one period. `longest_wait_ms`: of a healthy id, at most GIVES_UP_AFTER_MS."""

    healthy_admitted: int = 0
    healthy_refused: int = 0
    rogue_admitted: int = 0
    rogue_refused: int = 0
    longest_wait_ms: int = 0


class RateTrial:
    """One rate (thousandths of an id per window, above 0) from the first arrival on."""

    __slots__ = ("_at_ms", "_bucket", "_most_waiting", "_waiting", "outcomes", "rate_milli")

    def __init__(self, rate_milli: int, settings: ProducerIdSettings, at_ms: int) -> None:
        self.rate_milli = rate_milli
        self._bucket = TokenBucket(rate_milli, settings.window_ms, settings.burst, at_ms)
        self._most_waiting = settings.queue
        self._waiting: deque[tuple[int, Outcome]] = deque()
        self._at_ms = at_ms
        self.outcomes = (Outcome(), Outcome())

    def arrives(self, at_ms: int, *, healthy: bool, period: int) -> None:
        """A new id. Times do not go back."""
        if self._waiting:
            self._serve(at_ms)
        outcome, bucket = self.outcomes[period], self._bucket
        if bucket.wait_ms(len(self._waiting), at_ms) == 0:
            bucket.charge(at_ms)
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
        """The history is over: who still waits is served after it."""
        self._serve(1 << 62)

    def _serve(self, until_ms: int) -> None:
        """Who waits is let in when a token is there, in the order in which they came, or has given up before."""
        waiting, bucket = self._waiting, self._bucket
        while waiting:
            since_ms, outcome = waiting[0]
            due_ms = self._at_ms + bucket.wait_ms(0, self._at_ms)
            gives_up_ms = since_ms + GIVES_UP_AFTER_MS
            if min(due_ms, gives_up_ms) > until_ms:
                return
            waiting.popleft()
            if due_ms <= gives_up_ms:
                bucket.charge(due_ms)
                self._at_ms = due_ms
            waited_ms = min(due_ms, gives_up_ms) - since_ms
            outcome.longest_wait_ms = max(outcome.longest_wait_ms, waited_ms)


class FilterTrial:
    """The gateway's filter of one user, beside what is known exactly."""

    __slots__ = ("_filter", "_floor", "false_positives", "ids")

    def __init__(self, settings: ProducerIdSettings, rate_milli: int | None, seed: int) -> None:
        ids = LayeredFilter(settings, FilterBudget(settings), usable_seed(seed))
        self._filter = ids
        self._floor = LiveUser(EffectiveQuota(rate_milli, Mode.ENFORCE, exempt=False), settings, ids).floor
        self.ids = 0
        self.false_positives = 0

    def uses(self, producer_id: int, at_ms: int, *, is_new: bool) -> None:
        """The id is used; `is_new`: it was never used before."""
        pair = self._filter.hashed(producer_id)
        if is_new:
            self.ids += 1
            self.false_positives += self._filter.find(pair, at_ms) is not Sighting.UNSEEN
        self._filter.insert(pair, at_ms, floor=self._floor)


class UserTrial:
    """All of it for one user, or for a part of its rates. `with_filter`: one of the parts has it."""

    __slots__ = ("_split_ms", "filter", "rates")

    def __init__(
        self,
        rates_milli: Sequence[int],
        settings: ProducerIdSettings,
        *,
        at_ms: int,
        split_ms: int,
        seed: int,
        with_filter: bool = True,
    ) -> None:
        self._split_ms = split_ms
        self.rates = [RateTrial(rate, settings, at_ms) for rate in rates_milli]
        largest = max(rates_milli, default=None)
        self.filter = FilterTrial(settings, largest, seed) if with_filter else None

    def arrives(self, producer_id: int, at_ms: int, *, healthy: bool, is_first: bool) -> None:
        """An id that is not remembered; `is_first`: it was never seen before."""
        period = TEST if at_ms >= self._split_ms else TRAIN
        for rate in self.rates:
            rate.arrives(at_ms, healthy=healthy, period=period)
        if self.filter is not None:
            self.filter.uses(producer_id, at_ms, is_new=is_first)

    def is_used(self, producer_id: int, at_ms: int) -> None:
        """An id that is remembered, in a new slice: free of charge."""
        if self.filter is not None:
            self.filter.uses(producer_id, at_ms, is_new=False)

    def outcomes(self) -> Iterator[tuple[int, int, Outcome]]:
        """(rate_milli, period, outcome) of each, once the history is over."""
        for rate in self.rates:
            rate.end()
            for period, outcome in enumerate(rate.outcomes):
                yield rate.rate_milli, period, outcome
