"""The numbers of the demo: its users, times and quotas."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from tools.sandbox.jars import NEWEST
from tools.sandbox.spec import ClusterSpec

ALICE, BOB, CAROL, MALLORY = "alice", "bob", "carol", "mallory"


def password_of(user: str) -> str:
    return f"{user}-secret"


USERS: Final = {name: password_of(name) for name in (ALICE, BOB, CAROL, MALLORY)}

ORDERS, NIGHTLY, CLICKS = "orders", "nightly", "clicks"
PARTITIONS: Final = {ORDERS: 4, NIGHTLY: 1, CLICKS: 200}
"""alice and bob write orders, carol nightly, and mallory all of clicks with each of her producers."""

WINDOW_S: Final = 3600
BYSTANDER_RATE: Final = 20
CRASH_LOOP_RATE: Final = 10
"""New producer ids an hour: one start of a service needs one."""

NODE_ID: Final = 1

# With 16 the end takes twice as long: what the producers have under way takes memory, too.
_PRODUCERS_AT_A_TIME: Final = 32


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that can be chosen. `quota` is mallory's, in new producer ids an hour; None: no quota."""

    quota: Fraction | None = Fraction(100)
    rogues: int = 4
    seed: int = 1
    version: str = NEWEST
    heap_mb: int = 80
    """A broker of this kind needs about 45 MB for itself."""
    direct_at_most_s: float = 60.0
    """The rogues' time directly; a dead broker ends it, after some 10 s on two idle cores."""
    through_at_least_s: float = 18.0
    through_longer_by_s: float = 5.0
    baseline_runs: int = 3
    baseline_s: float = 2.5
    bystander_per_s: float = 100.0
    rogue_delivery_timeout_s: float = 12.0
    """Patience of a rogue's producer; Java's would be 120 s, more than the demo has."""

    @property
    def threads(self) -> int:
        """Producers that one rogue process has at a time: 8, or what makes 32 in all."""
        return max(8, -(-_PRODUCERS_AT_A_TIME // self.rogues))

    def through_s(self, direct_s: float) -> float:
        """The rogues' time through the gateway: more than the broker had directly."""
        return max(self.through_at_least_s, direct_s + self.through_longer_by_s)

    def cluster(self) -> ClusterSpec:
        """One broker with a small heap. G1, because it is what brokers run with."""
        return ClusterSpec(
            version=self.version,
            heap_mb=self.heap_mb,
            sasl=True,
            users=USERS,
            jvm_options=("-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"),
            # The demo keeps its logs itself.
            keep_logs_on_failure=False,
        )

    def rate_of(self, user: str) -> Fraction | None:
        """The user's quota; None without one."""
        if self.quota is None:
            return None
        return {MALLORY: self.quota, CAROL: Fraction(CRASH_LOOP_RATE)}.get(user, Fraction(BYSTANDER_RATE))

    def admitted_at_most(self, user: str, elapsed_s: float) -> int | None:
        """Return the new ids that the quota lets in from a full bucket: a window's burst, one, and the refill."""
        rate = self.rate_of(user)
        if rate is None:
            return None
        if rate == 0:
            return 0
        return int(rate + 1 + rate * Fraction(elapsed_s) / WINDOW_S)

    def quotas(self) -> dict[str, Any]:
        """The quotas section of the gateway's file."""
        if self.quota is None:
            return {"mode": "observe"}
        rates = {user: self.rate_of(user) or Fraction(0) for user in USERS}
        return {
            "mode": "enforce",
            "producer_ids": {"window": f"{WINDOW_S}s"},
            "users": {user: {"producer_ids_rate": plain(rate)} for user, rate in rates.items()},
        }


def plain(rate: Fraction) -> int | float:
    """As people write it: 100 and not 100.0."""
    return rate.numerator if rate.denominator == 1 else float(rate)
