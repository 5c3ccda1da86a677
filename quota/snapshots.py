"""One user at one moment, put together for metrics and pages. Reads what others hold, and changes nothing."""

from __future__ import annotations

from pidgate.quota.counters import UserCounters, UserSnapshot
from pidgate.quota.entities import EffectiveQuota, User
from pidgate.quota.state import QuotaState


def snapshot(
    user: User,
    counters: UserCounters,
    quota: EffectiveQuota,
    state: QuotaState,
    sticky_entries: int,
    now_ms: int,
) -> UserSnapshot:
    """The user as its counters, its quota and its state tell."""
    return UserSnapshot(
        user=user,
        enforces=quota.enforces,
        exempt=quota.exempt,
        rate_milli=quota.rate_milli,
        tokens=state.tokens(user, now_ms),
        admitted_per_s=counters.new_ids.per_second(now_ms),
        throttle_time_ms=counters.throttle_times_ms.mean(now_ms),
        waiting=state.waiting(user),
        oldest_waiting_ms=state.oldest_waiting_ms(user, now_ms),
        live_ids=state.live_ids(user, now_ms),
        sticky_entries=sticky_entries,
        admitted={str(reason): count for reason, count in counters.admitted.items()},
        refused={str(reason): count for reason, count in counters.refused.items()},
        closed=dict(counters.closed),
        would_refuse=counters.would_refuse,
        outcomes={
            "admitted_after_waiting": sum(counters.waited_ms_buckets.values()),
            "gave_up": counters.gave_up,
        },
        waited_ms_buckets=dict(counters.waited_ms_buckets),
        waited_ms_sum=counters.waited_ms_sum,
        unused_ids=counters.unused_ids,
        inits_refused=counters.inits_refused,
        inits_would_refuse=counters.inits_would_refuse,
    )
