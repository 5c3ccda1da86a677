"""Parameters of the demo: users, times and quotas."""

import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from tools.sandbox.jars import NEWEST
from tools.sandbox.spec import ClusterSpec

ALICE, BOB, CAROL, MALLORY = "alice", "bob", "carol", "mallory"
ROGUES_HOST: Final = "127.0.0.66" if sys.platform == "linux" else "127.0.0.1"
"""Only Linux has all of 127/8 on its loopback interface."""


def password_of(user: str) -> str:
    return f"{user}-secret"


USERS: Final = {name: password_of(name) for name in (ALICE, BOB, CAROL, MALLORY)}

ORDERS, NIGHTLY, CLICKS = "orders", "nightly", "clicks"
PARTITIONS: Final = {ORDERS: 4, NIGHTLY: 1, CLICKS: 200}
"""alice and bob write orders, carol nightly, and each of mallory's producers all of clicks."""

WINDOW_S: Final = 3600
BYSTANDER_RATE: Final = 20
CRASH_LOOP_RATE: Final = 10
"""New producer ids per hour: one start of a service needs one."""

FUSE_STATES: Final = 12_000
"""Producer states: the fuse trips at 48 of mallory's ids."""
MOST_BEHIND_FUSE: Final = 100
"""New ids of mallory until the fuse has looked and the gateway has heard; a broker of this heap holds as many."""

NODE_ID: Final = 1

# With 16 the death takes twice as long, because in-flight data also uses memory.
_PRODUCERS_AT_A_TIME: Final = 32


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All parameters. `quota` is mallory's, in new producer ids per hour; None: no quota.

    `fuse`: the gateway observes, with a fuse, and mallory's quota is a fifth.
    """

    quota: Fraction | None = Fraction(100)
    fuse: bool = False
    rogues: int = 4
    seed: int = 1
    version: str = NEWEST
    heap_mb: int = 80
    """A broker of this kind needs about 45 MB for itself."""
    patience_s: float = 180.0
    """Longest wait without progress."""
    usual_death_s: float = 15.0
    """Of the broker without a gateway, on two idle cores. Only for the display."""
    through_at_least_s: float = 18.0
    through_longer_by_s: float = 5.0
    baseline_runs: int = 3
    baseline_s: float = 2.5
    bystander_per_s: float = 100.0
    rogue_delivery_timeout_s: float = 12.0
    """Delivery timeout of a rogue's producer; Java's 120 s are longer than the demo."""

    @property
    def threads(self) -> int:
        """Concurrent producers of a rogue process: 8, or a share of 32 in total."""
        return max(8, -(-_PRODUCERS_AT_A_TIME // self.rogues))

    def through_s(self, direct_s: float) -> float:
        """Duration of the rogues through the gateway: longer than the direct one."""
        return max(self.through_at_least_s, direct_s + self.through_longer_by_s)

    def cluster(self) -> ClusterSpec:
        """One broker with a small heap. G1, as in production."""
        return ClusterSpec(
            version=self.version,
            heap_mb=self.heap_mb,
            sasl=True,
            ready_within_s=self.patience_s,
            users=USERS,
            jvm_options=("-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"),
            # The demo keeps its logs itself.
            keep_logs_on_failure=False,
        )

    def rate_of(self, user: str) -> Fraction | None:
        """Return the user's quota, or None."""
        if self.quota is None:
            return None
        of_mallory = self.quota / 5 if self.fuse else self.quota
        return {MALLORY: of_mallory, CAROL: Fraction(CRASH_LOOP_RATE)}.get(user, Fraction(BYSTANDER_RATE))

    def admitted_at_most(self, user: str, elapsed_s: float) -> int | None:
        """Return the new ids that a full bucket admits: a window's burst, one, and the refill."""
        rate = self.rate_of(user)
        if rate is None:
            return None
        if self.fuse and user == MALLORY:
            return MOST_BEHIND_FUSE
        if rate == 0:
            return 0
        return int(rate + 1 + rate * Fraction(elapsed_s) / WINDOW_S)

    def quotas(self) -> dict[str, Any]:
        """Return the quotas section of the gateway's file."""
        if self.quota is None:
            return {"mode": "observe"}
        rates = {user: self.rate_of(user) or Fraction(0) for user in USERS}
        return {
            **({"mode": "observe", "fuse": FUSE_STATES} if self.fuse else {"mode": "enforce"}),
            "producer_ids": {"window": f"{WINDOW_S}s"},
            "users": {user: {"producer_ids_rate": plain(rate)} for user, rate in rates.items()},
        }


def plain(rate: Fraction) -> int | float:
    """Return a number in its usual form: 100 instead of 100.0."""
    return rate.numerator if rate.denominator == 1 else float(rate)
