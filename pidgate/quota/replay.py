"""What would this quota have refused? Recorded arrivals of one user, replayed through the gateway's token bucket.

`pidgate promote` and the pipeline's `recommend` both ask here. The replay adds what the gateway does not decide: a
client that is refused comes back when its turn has come, until it gives up.

Proof: test_recommend_trial.py compares whole replays with `ProducerIdQuota.decide`. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket

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
