"""One user's history at several rates: how many ids each rate would have admitted, and how long healthy ones would
have waited.

Each rate is a `QuotaReplay`. Whether an id is remembered does not depend on the rate, and the arrivals say it exactly.
The gateway's filter (`LayeredFilter`) therefore runs once beside them, to count its errors. Without Spark. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pidgate.quota.layered_filter import FilterBudget, LayeredFilter, Sighting
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome, QuotaReplay
from pidgate.quota.users import layer_floor

TRAIN, TEST = 0, 1

AHEAD = 4_096
"""Arrivals that are looked at in one go where a token is there for each."""
TRIED_BEFORE = 16
"""So many in a row were admitted one by one before: looking ahead costs as much as a few dozen of them."""
_EXACT = 1 << 62


@dataclass(frozen=True)
class Arrivals:
    """New ids of a user in the order of their times, all of one period. `healthy`: the places of those that are."""

    at_ms: list[int]
    healthy: list[int]

    @cached_property
    def times(self) -> NDArray[np.int64]:
        return np.array(self.at_ms, np.int64)

    def healthy_before(self, place: int) -> int:
        return bisect_left(self.healthy, place)

    def next_healthy(self, place: int) -> int:
        """Return the place of the first healthy one from here on, else of the end."""
        number = self.healthy_before(place)
        return self.healthy[number] if number < len(self.healthy) else len(self.at_ms)


class RateTrial(QuotaReplay):
    """A replay at one rate. A healthy id that is refused comes back until it gives up; a rogue one does not.

    `periods`: the outcomes (healthy, rogue) of TRAIN and of TEST.
    """

    __slots__ = ("periods",)

    def __init__(self, rate_milli: int, settings: ProducerIdSettings, at_ms: int) -> None:
        super().__init__(rate_milli, settings, at_ms)
        self.periods = ((Outcome(), Outcome()), (Outcome(), Outcome()))

    def add_arrivals(self, came: Arrivals, period: int) -> None:
        """Replay them all as `add_arrival` would one by one, but skip those that do not change the bucket's course."""
        healthy, rogue = self.periods[period]
        place, in_a_row = 0, 0
        while place < len(came.at_ms):
            at_ms = came.at_ms[place]
            next_healthy = came.next_healthy(place)
            refused_until = place
            if next_healthy > place and (free_ms := self._refuses_until_ms(at_ms)) > at_ms:
                refused_until = min(next_healthy, bisect_left(came.at_ms, free_ms, place))
            if refused_until > place:
                rogue.refused += refused_until - place
                self._at_ms = came.at_ms[refused_until - 1]
                place, in_a_row = refused_until, 0
            elif in_a_row >= TRIED_BEFORE and not self._waiting and (count := self._admit_ahead(came, place)):
                good = came.healthy_before(place + count) - came.healthy_before(place)
                healthy.admitted += good
                rogue.admitted += count - good
                place += count
            else:
                is_healthy = place == next_healthy
                self.add_arrival(at_ms, healthy if is_healthy else rogue, retries=is_healthy)
                in_a_row = 0 if self._waiting else in_a_row + 1
                place += 1

    def _refuses_until_ms(self, at_ms: int) -> int:
        """Return until when nobody who comes is admitted and nobody who waits is served or gives up."""
        if not self._waiting:
            return at_ms + self.bucket.wait_ms(0, at_ms)
        due_ms = self._at_ms + self.bucket.wait_ms(0, self._at_ms)
        return min(due_ms, self._waiting[0][0] + GIVES_UP_AFTER_MS)

    def _admit_ahead(self, came: Arrivals, place: int) -> int:
        """Admit those from this place on that find a token, at most AHEAD; return how many.

        While all are admitted, the balance is what it was, less a token for each, and more by the time: but never more
        than the bucket holds, and so it is the least of what it would be had it been full at any of them.
        """
        times = came.times[place : place + AHEAD]
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


class FilterTrial:
    """The gateway's filter of one user, compared with what is known exactly."""

    __slots__ = ("_filter", "_floor", "false_positives", "ids")

    def __init__(self, settings: ProducerIdSettings, rate_milli: int | None, secret: int) -> None:
        self._filter = LayeredFilter(settings, FilterBudget(settings), secret)
        self._floor = layer_floor(rate_milli, settings)
        self.ids = 0
        self.false_positives = 0

    def add_use(self, producer_id: int, at_ms: int, *, is_new: bool) -> None:
        """Look an id up and insert it; `is_new`: it was never used before."""
        if is_new:
            self.ids += 1
            self.false_positives += self._filter.find(producer_id, at_ms) is not Sighting.UNSEEN
        self._filter.insert(producer_id, at_ms, floor=self._floor)


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
        self.filter = FilterTrial(settings, largest, secret=1) if with_filter else None

    def add_arrivals(self, at_ms: list[int], healthy: list[bool]) -> None:
        """Replay ids that are not remembered, in the order of their times."""
        split = bisect_left(at_ms, self._split_ms)
        for period, part in ((TRAIN, slice(0, split)), (TEST, slice(split, None))):
            came = Arrivals(at_ms[part], [place for place, is_ in enumerate(healthy[part]) if is_])
            for rate in self.rates:
                rate.add_arrivals(came, period)

    def finish(self) -> Iterator[tuple[int, int, Outcome, Outcome]]:
        """Yield (rate_milli, period, healthy, rogue) of each rate; ends the history."""
        for rate in self.rates:
            rate.finish()
            for period, (healthy, rogue) in enumerate(rate.periods):
                yield rate.rate_milli, period, healthy, rogue
