"""Kafka's strict token bucket in integers, and the replay of recorded arrivals through it. PURE.

One token = window_ms x 1,000 units, and a rate of r thousandths per window refills r units a millisecond. Nothing is
rounded, so a replay of the same charges is exact. An id is admitted while the balance is not negative. It costs one
token, so the balance may end just below 0 (org.apache.kafka.common.metrics.stats.TokenBucket under strict quotas).

QuotaReplay answers the question "which of these arrivals would a quota have refused?" for `pidgate promote` and the
pipeline's `recommend`. It simulates a client that comes back at its turn until it gives up.
test_recommend_trial.py compares whole replays with `ProducerIdQuota.decide`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pidgate.quota.settings import ProducerIdSettings


class TokenBucket:
    """Tokens of one user, or of the whole cluster. Full at first sight; `rate_milli` is above 0.

    Times are monotonic milliseconds; a time before the last one seen refills nothing.
    """

    __slots__ = ("_last_ms", "_units", "capacity_units", "rate_milli", "token_units")

    def __init__(self, rate_milli: int, window_ms: int, burst: Fraction, now_ms: int) -> None:
        self._shape(rate_milli, window_ms, burst)
        self._units = self.capacity_units
        self._last_ms = now_ms

    def _shape(self, rate_milli: int, window_ms: int, burst: Fraction) -> None:
        if rate_milli <= 0:
            raise ValueError("a bucket needs a rate above 0; a rate of 0 is decided before the bucket")
        self.rate_milli = rate_milli
        self.token_units = window_ms * 1000
        self.capacity_units = rate_milli * window_ms * burst.numerator // burst.denominator

    def units(self, now_ms: int) -> int:
        """Return the balance in units; `token_units` of them are one token."""
        elapsed_ms = now_ms - self._last_ms
        if elapsed_ms > 0:
            self._units = min(self.capacity_units, self._units + elapsed_ms * self.rate_milli)
            self._last_ms = now_ms
        return self._units

    def units_at(self, at_ms: int) -> int:
        """Return the balance as of `at_ms`, which may lie in the past: without later refills."""
        units = self.units(at_ms)
        return units - (self._last_ms - at_ms) * self.rate_milli

    def is_full(self, now_ms: int) -> bool:
        return self.units(now_ms) >= self.capacity_units

    def wait_ms(self, place: int, now_ms: int) -> int:
        """Return the ms, rounded up, until the id at `place` (0 = next) is admitted: when tokens - place >= 0."""
        missing = place * self.token_units - self.units(now_ms)
        return 0 if missing <= 0 else -(-missing // self.rate_milli)

    def charge(self, now_ms: int) -> None:
        """Spend one token. The caller has asked `wait_ms` first."""
        self._units = self.units(now_ms) - self.token_units

    def charge_floored(self, now_ms: int) -> None:
        """Spend one token, with a debt of one token at most: for an id forwarded anyway. So a switch from observe
        to enforce finds no debt.
        """
        self._spend_down_to(-self.token_units, now_ms)

    def charge_elsewhere(self, now_ms: int) -> None:
        """Spend a token for an id admitted by another gateway, with a debt of a full bucket at most. So a burst of late
        events causes no long outage.
        """
        self._spend_down_to(self._deepest_units, now_ms)

    def _spend_down_to(self, floor_units: int, now_ms: int) -> None:
        units = self.units(now_ms)
        self._units = min(units, max(floor_units, units - self.token_units))

    @property
    def _deepest_units(self) -> int:
        return -max(self.capacity_units, self.token_units)

    def fill(self, now_ms: int) -> None:
        """Fill the bucket, whatever was spent."""
        self._units, self._last_ms = self.capacity_units, max(now_ms, self._last_ms)

    def restore(self, units: int, token_units: int, at_ms: int) -> None:
        """Restore the balance as of `at_ms`, which may lie in the past: it has been refilled since.

        `token_units` of these units were one token.
        """
        if token_units != self.token_units:
            scaled = abs(units) * self.token_units // token_units
            units = scaled if units >= 0 else -scaled
        self._units = max(self._deepest_units, min(self.capacity_units, units))
        self._last_ms = at_ms

    def reshape(self, rate_milli: int, window_ms: int, burst: Fraction, now_ms: int) -> None:
        """Change rate, window or burst. A positive balance keeps its fraction of the capacity.

        A debt stays what it is in tokens: scaled by the capacity it would grow when an operator raises the quota.
        """
        units, old_capacity, old_token = self.units(now_ms), self.capacity_units, self.token_units
        self._shape(rate_milli, window_ms, burst)
        if units >= 0:
            self._units = units * self.capacity_units // old_capacity if old_capacity else self.capacity_units
        else:
            self._units = -(-units * self.token_units // old_token)


GIVES_UP_AFTER_MS: Final = 120_000
"""delivery.timeout.ms of Java and kafka-python. A client that waits longer loses data."""


@dataclass(slots=True)
class Outcome:
    """Counts of some arrivals. `refused`: at first; `gave_up`: of these, not admitted in time.

    `longest_wait_ms` is at most GIVES_UP_AFTER_MS.
    """

    admitted: int = 0
    refused: int = 0
    gave_up: int = 0
    longest_wait_ms: int = 0

    @property
    def new_ids(self) -> int:
        return self.admitted + self.refused

    def add(self, other: Outcome) -> None:
        """Add the counts of other arrivals."""
        self.admitted += other.admitted
        self.refused += other.refused
        self.gave_up += other.gave_up
        self.longest_wait_ms = max(self.longest_wait_ms, other.longest_wait_ms)


class QuotaReplay:
    """One user's quota of `rate_milli` thousandths of an id per window (above 0), and the clients that wait for it.

    Each arrival is counted in the `Outcome` that comes with it. Times do not go back.
    """

    __slots__ = ("_at_ms", "_most_waiting", "_waiting", "bucket", "rate_milli")

    def __init__(self, rate_milli: int, settings: ProducerIdSettings, at_ms: int) -> None:
        self.rate_milli = rate_milli
        self.bucket = TokenBucket(rate_milli, settings.window_ms, settings.burst, at_ms)
        self._most_waiting = settings.queue
        self._waiting: deque[tuple[int, Outcome]] = deque()
        self._at_ms = at_ms

    def admit_id(self, ahead: int, at_ms: int) -> bool:
        """Decide on an unseen id behind `ahead` others, and charge it if it is admitted."""
        if self.bucket.wait_ms(ahead, at_ms):
            return False
        self.bucket.charge(at_ms)
        return True

    def add_arrival(self, at_ms: int, outcome: Outcome, *, retries: bool = True) -> None:
        """Replay the arrival of a new id, behind all that wait. Without `retries` a refused id does not come back."""
        if self._waiting:
            self._serve_waiting(at_ms)
        self._at_ms = at_ms
        if self.admit_id(len(self._waiting), at_ms):
            outcome.admitted += 1
            return
        outcome.refused += 1
        if not retries:
            return
        if len(self._waiting) < self._most_waiting:
            self._waiting.append((at_ms, outcome))
        else:
            self._give_up(outcome)

    def add_unrefused(self, at_ms: int, outcome: Outcome) -> None:
        """Replay an id that is charged and never refused: a transactional one, where those are observed."""
        if self._waiting:
            self._serve_waiting(at_ms)
        self._at_ms = at_ms
        self.bucket.charge_floored(at_ms)
        outcome.admitted += 1

    def finish(self) -> None:
        """Serve the clients that still wait after the last arrival."""
        self._serve_waiting(1 << 62)

    def _serve_waiting(self, until_ms: int) -> None:
        """Admit waiting clients first come, first served, each when its turn has come, or let it give up."""
        waiting = self._waiting
        while waiting:
            since_ms, outcome = waiting[0]
            due_ms = self._at_ms + self.bucket.wait_ms(0, self._at_ms)
            gives_up_ms = since_ms + GIVES_UP_AFTER_MS
            if min(due_ms, gives_up_ms) > until_ms:
                return
            waiting.popleft()
            if due_ms <= gives_up_ms and self.admit_id(0, due_ms):
                self._at_ms = due_ms
                outcome.longest_wait_ms = max(outcome.longest_wait_ms, due_ms - since_ms)
            else:
                self._give_up(outcome)

    def _give_up(self, outcome: Outcome) -> None:
        outcome.gave_up += 1
        outcome.longest_wait_ms = GIVES_UP_AFTER_MS
