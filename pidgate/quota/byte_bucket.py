"""One bucket: the bytes of all who share a byte rate. PURE.

With a `Share` its window is summed with those of the other processes of a gateway. Must not know who shares it, nor
how processes share memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pidgate.quota.byte_rates import BucketName, Kind
from pidgate.quota.byte_window import Sample, Window, throttle_ms, window_ms
from pidgate.quota.counters import Samples
from pidgate.quota.settings import ByteQuotas


class Share(Protocol):
    """One bucket's cells in memory that processes share."""

    def past(self) -> list[Sample]:
        """Return the samples of a process formerly in this one's place, oldest first."""
        ...

    def write(self, start_ms: int, last_ms: int, size_bytes: int) -> None:
        """Write the sample being filled, whole."""
        ...

    def others(self, now_ms: int) -> tuple[int, int | None]:
        """Bytes that the other processes remember, and when the oldest of their samples began (None: nothing)."""
        ...

    def release(self) -> None:
        """Free the cells: this process has no bucket for them any more."""
        ...


class Cells(Protocol):
    """Memory that the processes of a gateway share."""

    def share(
        self, kind: Kind, bucket: BucketName, samples: int, sample_ms: int, now_ms: int
    ) -> Share | None:
        """Return the cells of one bucket; None without room: the process counts for itself."""
        ...


@dataclass(frozen=True, slots=True)
class ByteSnapshot:
    """One bucket now, for metrics and pages.

    user, client_id   whose bytes are counted together; None: whoever it is
    rate_bytes_per_s  the bound, 0 when none holds any more
    bytes_per_s       now, of all processes that share the bucket (Kafka's `byte-rate`)
    throttled         requests after which a client had to wait; `would_throttle`: had it been enforced
    throttle_time_ms  average of the latest waits (Kafka's `throttle-time`)
    total_bytes       counted by this process since it has the bucket
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
        "reported_ms",
        "sample_ms",
        "samples",
        "share",
        "throttle_times_ms",
        "throttled",
        "total_bytes",
        "window",
        "would_throttle",
    )

    def __init__(
        self, kind: Kind, name: BucketName, quotas: ByteQuotas, share: Share | None, now_ms: int
    ) -> None:
        self.kind = kind
        self.name = name
        self.made_ms = now_ms
        self.rate_bytes_per_s: int | None = None
        self.samples = quotas.samples
        self.sample_ms = quotas.sample_ms
        self.share = share
        self.window = Window(quotas.samples, quotas.sample_ms, () if share is None else share.past())
        self.throttled = 0
        self.would_throttle = 0
        self.throttle_times_ms = Samples()
        self.total_bytes = 0
        self.reported_ms = now_ms
        """Time of the last report by `ByteQuota.changes`."""
        self.is_dropped = False

    @property
    def expire_ms(self) -> int:
        return self.samples * self.sample_ms

    def idle_ms(self, now_ms: int) -> int:
        """Since this process last counted something in it, or made it."""
        return now_ms - max(self.window.last_ms, self.made_ms)

    def record(self, size_bytes: int, now_ms: int) -> int:
        """Count the bytes; return the wait (ms) until the rate is at the bound again."""
        window = self.window
        window.record(size_bytes, now_ms)
        self.total_bytes += size_bytes
        total, oldest_ms = window.total, window.oldest_ms
        if self.share is not None:
            self.share.write(window.start_ms, window.last_ms, window.current_bytes)
            others, their_oldest_ms = self.share.others(now_ms)
            total += others
            if their_oldest_ms is not None and their_oldest_ms < oldest_ms:
                oldest_ms = their_oldest_ms
        rate = self.rate_bytes_per_s
        # The window is never shorter than samples - 1 full ones: most records end here.
        if rate is None or total * 1_000 <= rate * (self.samples - 1) * self.sample_ms:
            return 0
        return throttle_ms(total, window_ms(oldest_ms, now_ms, self.samples, self.sample_ms), rate)

    def bytes_per_s(self, now_ms: int) -> float:
        total, oldest_ms = self.window.at(now_ms)
        if self.share is not None:
            others, their_oldest_ms = self.share.others(now_ms)
            total += others
            if their_oldest_ms is not None:
                oldest_ms = their_oldest_ms if oldest_ms is None else min(oldest_ms, their_oldest_ms)
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
        if self.share is not None:
            self.share.release()
