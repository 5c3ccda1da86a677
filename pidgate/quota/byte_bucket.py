"""One bucket: the bytes of all who share a byte rate. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from pidgate.quota.byte_rates import BucketName, Kind
from pidgate.quota.byte_window import Window, throttle_ms, window_ms
from pidgate.quota.counters import Samples
from pidgate.quota.settings import ByteQuotas


@dataclass(frozen=True, slots=True)
class ByteSnapshot:
    """One bucket now, for metrics and pages.

    user, client_id   whose bytes are counted together; None: whoever it is
    rate_bytes_per_s  the bound, 0 when none holds any more
    bytes_per_s       now (Kafka's `byte-rate`)
    throttled         requests after which a client had to wait; `would_throttle`: had it been enforced
    throttle_time_ms  average of the latest waits (Kafka's `throttle-time`)
    total_bytes       counted since the bucket was made
    """

    user: str | None
    client_id: str | None
    kind: Kind
    rate_bytes_per_s: int
    bytes_per_s: float
    throttled: int
    would_throttle: int
    throttle_time_ms: float
    total_bytes: int


class ByteBucket:
    """A bucket: its bound, its window, and what came of it."""

    __slots__ = (
        "is_dropped",
        "kind",
        "made_ms",
        "name",
        "rate_bytes_per_s",
        "sample_ms",
        "samples",
        "throttle_times_ms",
        "throttled",
        "total_bytes",
        "window",
        "would_throttle",
    )

    def __init__(self, kind: Kind, name: BucketName, quotas: ByteQuotas, now_ms: int) -> None:
        self.kind = kind
        self.name = name
        self.made_ms = now_ms
        self.rate_bytes_per_s: int | None = None
        self.samples = quotas.samples
        self.sample_ms = quotas.sample_ms
        self.window = Window(quotas.samples, quotas.sample_ms)
        self.throttled = 0
        self.would_throttle = 0
        self.throttle_times_ms = Samples()
        self.total_bytes = 0
        self.is_dropped = False

    @property
    def expire_ms(self) -> int:
        return self.samples * self.sample_ms

    def idle_ms(self, now_ms: int) -> int:
        """Return the time since the last record, or since the bucket was made."""
        return now_ms - max(self.window.last_ms, self.made_ms)

    def record(self, size_bytes: int, now_ms: int) -> int:
        """Count the bytes; return the wait (ms) until the rate is at the bound again."""
        window = self.window
        window.record(size_bytes, now_ms)
        self.total_bytes += size_bytes
        total, oldest_ms = window.total, window.oldest_ms
        rate = self.rate_bytes_per_s
        # The window is never shorter than samples - 1 full ones: most records end here.
        if rate is None or total * 1_000 <= rate * (self.samples - 1) * self.sample_ms:
            return 0
        return throttle_ms(total, window_ms(oldest_ms, now_ms, self.samples, self.sample_ms), rate)

    def bytes_per_s(self, now_ms: int) -> float:
        total, oldest_ms = self.window.at(now_ms)
        if oldest_ms is None:
            return 0.0
        return total * 1_000 / window_ms(oldest_ms, now_ms, self.samples, self.sample_ms)

    def snapshot(self, now_ms: int) -> ByteSnapshot:
        return ByteSnapshot(
            *self.name,
            self.kind,
            self.rate_bytes_per_s or 0,
            self.bytes_per_s(now_ms),
            self.throttled,
            self.would_throttle,
            self.throttle_times_ms.mean(now_ms),
            self.total_bytes,
        )

    def drop(self) -> None:
        self.is_dropped = True
