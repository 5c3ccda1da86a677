"""Kafka's strict token bucket, in integers.

One token = window_ms x 1,000 units, and a rate of r thousandths per window refills r units a millisecond:
no rounding anywhere, so that a replay of the same charges is exact. Admitted while the balance is not
negative; admitting costs one token, so it may end just below 0
(org.apache.kafka.common.metrics.stats.TokenBucket under strict quotas).
"""

from __future__ import annotations

from fractions import Fraction


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

    def is_full(self, now_ms: int) -> bool:
        return self.units(now_ms) >= self.capacity_units

    def wait_ms(self, place: int, now_ms: int) -> int:
        """Return the ms, rounded up, until the id at `place` (0 = next) is admitted: until tokens - place >= 0."""
        missing = place * self.token_units - self.units(now_ms)
        return 0 if missing <= 0 else -(-missing // self.rate_milli)

    def charge(self, now_ms: int) -> None:
        """Spend one token. The caller has asked `wait_ms` first."""
        self._units = self.units(now_ms) - self.token_units

    def charge_floored(self, now_ms: int) -> None:
        """Spend one token without a debt of more than one: for what is forwarded although none is left, so that a
        switch from observing to enforcing finds no debt.
        """
        self._spend_down_to(-self.token_units, now_ms)

    def charge_elsewhere(self, now_ms: int) -> None:
        """Spend a token for an id admitted by another gateway, without a debt of more than a full bucket, so that
        events that arrive late and at once cause no long outage.
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
