"""KIP-936 as a library: `ProducerIdTracker.track(user, producer_id, now_ms)`. PURE.

For engineers who build the quota into a broker or another proxy. This module is the public part of `pidgate.quota`:
its names and meanings change only with a note in the changelog. The rest of the package is private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pidgate.quota.decisions import Client, Refuse, batch_decision
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class ProducerIdTracker:
    """A quota of new producer ids for each user: layered, time-decaying filters and a token bucket (KIP-936).

    secret_source  returns 128 random bits for each user's filter, which no client may know
    rate           new ids of a user in `window_ms`; the bucket holds as many
    rates          of single users, in place of `rate`
    window_ms      the time of the rate
    remember_ms    an id that was not used for so long is new again

    Not safe for threads: call it from one, or under a lock of your own.
    """

    def __init__(
        self,
        secret_source: Callable[[], int],
        rate: int,
        rates: Mapping[str, int] | None = None,
        *,
        window_ms: int = HOUR_MS,
        remember_ms: int = DAY_MS,
    ) -> None:
        quotas = Quotas(
            mode=Mode.ENFORCE,
            producer_ids=ProducerIdSettings(window_ms=window_ms, remember_ms=remember_ms),
            default=UserQuota.per_window(rate),
            users={user: UserQuota.per_window(own) for user, own in (rates or {}).items()},
        )
        self._quota = ProducerIdQuota(quotas, secret_source, 0)

    def track(self, user: str, producer_id: int, now_ms: int) -> int:
        """Return 0 if the id may pass, else for how many ms its client should be throttled (throttle_time_ms).

        A known id passes free of charge, and is remembered from now on. `now_ms`: monotonic milliseconds. Raises
        ValueError for an id below 0.
        """
        if producer_id < 0:
            raise ValueError(f"a producer id is not below 0: {producer_id}")
        asked = batch_decision(user, (producer_id, 0, 0, b"", 0), 1, False)
        verdict = self._quota.decide(Client(user, "", "", 0), [asked], now_ms)
        return verdict.throttle_time_ms if isinstance(verdict, Refuse) else 0

    def is_known(self, user: str, producer_id: int, now_ms: int) -> bool:
        """Return whether the id is remembered. After many ids there are false positives, one in a thousand."""
        return self._quota.table.remembers(user, producer_id, now_ms)

    def forget_idle_users(self, now_ms: int) -> None:
        """Free the state of users without any remembered id. Call it every few minutes."""
        self._quota.sweep(now_ms)
