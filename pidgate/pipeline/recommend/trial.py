"""One user's arrivals replayed at one rate, by the gateway's own bucket: the refused ids and their traffic. Pure.

`QuotaReplay` decides every admission. This module only skips arrivals that cannot change the bucket's course.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome, QuotaReplay

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

AHEAD: Final = 16_384
"""Arrivals admitted in one step while the bucket has a token for each."""
TRIED_BEFORE: Final = 16
"""Arrivals admitted one by one before such a step, which costs as much as a few dozen of them."""
_EXACT: Final = 1 << 62
_RATES: Final = [
    *(float(rate) for rate in range(1, 11)),
    *(float(digits * 10**power) for power in range(12) for digits in range(11, 101)),
]
"""All rates of at most two digits, in order: 1 to 10, 11 to 100, 110, 120, ..."""


class Arrivals:
    """New ids of a user in order of time, each with the requests and records that it brought."""

    def __init__(self, at_ms: Longs, healthy: Flags, requests: Longs, records: Longs) -> None:
        self.times = at_ms
        self.healthy = healthy
        self.at_ms = array("q", at_ms.tobytes())
        self._healthy_places = array("q", np.flatnonzero(healthy).astype(np.int64).tobytes())
        self._traffic = requests, records
        self._requests, self._records = (np.concatenate(([0], np.cumsum(one))) for one in self._traffic)

    def __len__(self) -> int:
        return len(self.at_ms)

    def only(self, where: Flags) -> Arrivals:
        """Return some of the arrivals."""
        return Arrivals(self.times[where], self.healthy[where], *(one[where] for one in self._traffic))

    def before(self, time_ms: int) -> int:
        """Return the number of arrivals before a time."""
        return bisect_left(self.at_ms, time_ms)

    def next_healthy(self, place: int) -> int:
        """Return the place of the first healthy arrival from here on, or the end."""
        number = bisect_left(self._healthy_places, place)
        return self._healthy_places[number] if number < len(self._healthy_places) else len(self)

    def traffic(self, begin: int, end: int) -> tuple[int, int]:
        """Return the requests and records of these arrivals."""
        return int(self._requests[end] - self._requests[begin]), int(
            self._records[end] - self._records[begin]
        )


@dataclass(slots=True)
class Cost:
    """What a rate would have refused.

    `refused_ids`: at their first request. Healthy ids come back until they are admitted or give up, and only those
    that give up lose their requests. Ids of a rogue do not come back.
    """

    refused_ids: int = 0
    refused_healthy_ids: int = 0
    refused_requests: int = 0
    refused_records: int = 0
    longest_wait_ms: int = 0
    """Of a healthy id until it is admitted or gives up (120 s); of a rogue's id until the bucket has a token."""


class RateTrial(QuotaReplay):
    """A replay at one rate."""

    __slots__ = ("_came", "_refused")

    def __init__(self, rate: float, settings: ProducerIdSettings, came: Arrivals) -> None:
        super().__init__(round(rate * 1000), settings, came.at_ms[0] if len(came) else 0)
        self._came = came
        self._refused: deque[tuple[int, Outcome, Cost]] = deque()

    def replay(self, begin: int = 0, end: int | None = None) -> Cost:
        """Return the cost of these arrivals, which follow those of the previous call."""
        came, cost = self._came, Cost()
        place, end, in_a_row = begin, len(came) if end is None else end, 0
        while place < end:
            at_ms = came.at_ms[place]
            next_healthy = min(end, came.next_healthy(place))
            if next_healthy > place and (free_ms := self._refuses_until_ms(at_ms)) > at_ms:
                until = bisect_left(came.at_ms, free_ms, place, next_healthy)
                self._add(cost, place, until, self._due_ms(at_ms) - at_ms)
                self._at_ms = came.at_ms[until - 1]
                place, in_a_row = until, 0
            elif in_a_row >= TRIED_BEFORE and not self._waiting and (count := self.admit_ahead(place, end)):
                place += count
            else:
                self._add_one(cost, place, is_healthy=place == next_healthy)
                in_a_row = 0 if self._waiting else in_a_row + 1
                place += 1
        return cost

    def finish(self) -> None:
        super().finish()
        self._settle()

    def refuses_nobody(self) -> bool:
        """Return whether all arrivals are admitted at once."""
        came, place = self._came, 0
        while place < len(came):
            count = self.admit_ahead(place, len(came))
            if not count and not self.admit_id(0, came.at_ms[place]):
                return False
            place += max(count, 1)
        return True

    def _add(self, cost: Cost, begin: int, end: int, wait_ms: int) -> None:
        requests, records = self._came.traffic(begin, end)
        cost.refused_ids += end - begin
        cost.refused_requests += requests
        cost.refused_records += records
        cost.longest_wait_ms = max(cost.longest_wait_ms, wait_ms)

    def _add_one(self, cost: Cost, place: int, *, is_healthy: bool) -> None:
        outcome = Outcome()
        self.add_arrival(self._came.at_ms[place], outcome, retries=is_healthy)
        if outcome.refused and is_healthy:
            cost.refused_ids += 1
            cost.refused_healthy_ids += 1
            self._refused.append((place, outcome, cost))
        elif outcome.refused:
            self._add(cost, place, place + 1, self.bucket.wait_ms(0, self._came.at_ms[place]))
        self._settle()

    def _settle(self) -> None:
        """Count the outcome of healthy ids that no longer wait."""
        while self._refused and self._refused[0][1].longest_wait_ms:
            place, outcome, cost = self._refused.popleft()
            cost.longest_wait_ms = max(cost.longest_wait_ms, outcome.longest_wait_ms)
            if outcome.gave_up:
                requests, records = self._came.traffic(place, place + 1)
                cost.refused_requests += requests
                cost.refused_records += records

    def _refuses_until_ms(self, at_ms: int) -> int:
        """Return the time until which arrivals are refused, while no client is served and none gives up."""
        due_ms = self._due_ms(at_ms)
        return min(due_ms, self._waiting[0][0] + GIVES_UP_AFTER_MS) if self._waiting else due_ms

    def _due_ms(self, at_ms: int) -> int:
        """Return the time of the next token: for the first client that waits, or for an arrival at `at_ms`."""
        since_ms = self._at_ms if self._waiting else at_ms
        return since_ms + self.bucket.wait_ms(0, since_ms)

    def admit_ahead(self, place: int, end: int) -> int:
        """Admit the arrivals from this place on that find a token, at most AHEAD; return their number.

        While all are admitted, the balance is the former one, less a token for each, plus the refill. It never
        exceeds the capacity, so it is the minimum over balances that start full at any of the arrivals.
        """
        times = self._came.times[place : min(end, place + AHEAD)]
        elapsed_ms, token = times - times[0], self.bucket.token_units
        if int(elapsed_ms[-1]) * self.rate_milli + AHEAD * token + self.bucket.capacity_units >= _EXACT:
            return 0
        change = elapsed_ms * self.rate_milli - np.arange(len(times)) * token
        least = np.minimum.accumulate(self.bucket.capacity_units - change)
        units = change + np.minimum(self.bucket.units(int(times[0])), least)
        short = np.flatnonzero(units < 0)
        count = int(short[0]) if len(short) else len(times)
        if count:
            self._at_ms = int(times[count - 1])
            self.bucket.restore(int(units[count - 1]) - token, token, self._at_ms)
        return count


def cost_at(rate: float, settings: ProducerIdSettings, came: Arrivals) -> Cost:
    """Return the cost of a rate over all arrivals. A rate of 0 refuses all."""
    if rate <= 0:
        requests, records = came.traffic(0, len(came))
        return Cost(len(came), int(came.healthy.sum()), requests, records, GIVES_UP_AFTER_MS)
    trial = RateTrial(rate, settings, came)
    cost = trial.replay()
    trial.finish()
    return cost


def least_rate(settings: ProducerIdSettings, came: Arrivals) -> float:
    """Return the least rate of at most two digits that refuses none of these arrivals; 0 without arrivals.

    By bisection: a rate above one that refuses nobody refuses nobody either.
    """
    if not len(came):
        return 0.0

    def refuses_nobody(step: int) -> bool:
        return RateTrial(_RATES[step], settings, came).refuses_nobody()

    enough = bisect_left(_RATES, len(came) / min(1.0, float(settings.burst)))
    return _RATES[bisect_left(range(enough), True, key=refuses_nobody)]


def rounded_up(rate: float) -> float:
    """Return the next rate of at most two digits, as in handwritten files: 7, 43, 130, 2600."""
    if rate <= 1:
        return 1.0
    digit = 10.0 ** max(0, floor(log10(rate)) - 1)
    return float(ceil(round(rate / digit, 6)) * digit)
