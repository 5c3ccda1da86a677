"""What is known of a user, and of one of its producer ids: why it is refused, since when, until when. PURE.

Reads the quota's state, and changes nothing in it. What lives in the processes that own the connections (batches
that wait for an earlier one) is told as far as it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.quota_origin import QuotaOrigin, QuotaOrigins, rate_or_mode
from pidgate.quota.entities import resolve
from pidgate.quota.latest_refusals import LatestRefusal
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.retry_queue import Waiting
from pidgate.quota.state import QuotaState
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser

__all__ = ["Explanation", "IdExplanation", "explanation"]


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by both clocks: the quota's own times are monotonic, people's are not."""

    now_ms: int
    wall_ms: int

    def on_the_wall(self, at_ms: int) -> int:
        return self.wall_ms + at_ms - self.now_ms


@dataclass(frozen=True, slots=True)
class IdExplanation:
    """One producer id of the user. `is_released`: it is let in when it comes back. `waiting` None: it is not in
    line; `place`: 0 is next.
    """

    producer_id: int
    is_remembered: bool
    is_released: bool
    waiting: Waiting | None
    place: int | None
    last_refusal: LatestRefusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A user at one moment. Tokens are None without a limit; `is_restored` False: nothing is refused yet, as what
    is remembered is still being read. `next_token_in_ms`: until a new id that has not waited would be admitted.
    """

    user: str
    moment: Moment
    window_ms: int
    is_restored: bool
    is_known: bool
    rate: QuotaOrigin
    mode: QuotaOrigin
    is_exempt: bool
    owner: str
    note: str
    tokens: float | None
    full_tokens: float | None
    next_token_in_ms: int | None
    cluster_rate_milli: int | None
    cluster_tokens: float | None
    live_ids: int
    waiting: int
    oldest_waiting_ms: int
    grace_left_ms: int
    grace_admitted: int
    sticky_entries: int | None
    last_refusal: LatestRefusal | None
    asked_id: IdExplanation | None

    def as_json(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "wall_ms": self.moment.wall_ms,
            "window_ms": self.window_ms,
            "is_restored": self.is_restored,
            "is_known": self.is_known,
            "producer_ids_rate": self.rate.as_json(),
            "mode": self.mode.as_json(),
            "is_exempt": self.is_exempt,
            "owner": self.owner,
            "note": self.note,
            "tokens": _rounded(self.tokens),
            "full_tokens": _rounded(self.full_tokens),
            "next_token_in_ms": self.next_token_in_ms,
            "cluster_producer_ids_rate": rate_or_mode(self.cluster_rate_milli),
            "cluster_tokens": _rounded(self.cluster_tokens),
            "live_ids": self.live_ids,
            "waiting": self.waiting,
            "oldest_waiting_ms": self.oldest_waiting_ms,
            "grace_left_ms": self.grace_left_ms,
            "grace_admitted": self.grace_admitted,
            "sticky_entries": self.sticky_entries,
            "last_refusal": _refusal(self.last_refusal, self.moment),
            "producer_id": None if self.asked_id is None else _asked_id(self.asked_id, self.moment),
        }


def explanation(
    user: str,
    producer_id: int | None,
    *,
    state: QuotaState,
    in_force: InForce,
    now_ms: int,
    wall_ms: int,
    sticky_entries: int | None = None,
    said: QuotaOrigins | None = None,
) -> Explanation:
    """All that this gateway knows. `sticky_entries`: of the user, None where other processes hold them; `said`: of
    `in_force`, for whoever asks for many users.
    """
    moment = Moment(now_ms, wall_ms)
    quotas, said = in_force.quotas, said or QuotaOrigins(in_force, wall_ms)
    real = state if isinstance(state, ProducerIdQuota) else None
    live = real.find(user) if real is not None else None
    cluster = real.cluster_bucket if real is not None else None
    provenance = in_force.provenance.get(user)
    bucket = _bucket(live, in_force, user, now_ms)
    return Explanation(
        user=user,
        moment=moment,
        window_ms=quotas.producer_ids.window_ms,
        is_restored=real is not None,
        is_known=live is not None,
        rate=said.effective_rate(user),
        mode=said.effective_mode(user),
        is_exempt=resolve(quotas, user).exempt,
        owner=provenance.owner if provenance else "",
        note=provenance.note if provenance else "",
        tokens=_tokens(bucket, now_ms),
        full_tokens=bucket.capacity_units / bucket.token_units if bucket else None,
        next_token_in_ms=_wait_ms(bucket, cluster, len(live.queue) if live else 0, now_ms),
        cluster_rate_milli=quotas.cluster_rate_milli,
        cluster_tokens=_tokens(cluster, now_ms),
        live_ids=state.live_ids(user, now_ms),
        waiting=state.waiting(user),
        oldest_waiting_ms=state.oldest_waiting_ms(user, now_ms),
        grace_left_ms=max(0, real.grace_until_ms - now_ms) if real is not None else 0,
        grace_admitted=live.grace_admitted if live else 0,
        sticky_entries=sticky_entries,
        last_refusal=real.latest_refusals.of_user(user) if real is not None else None,
        asked_id=None if producer_id is None else _of_id(real, live, user, producer_id, now_ms),
    )


def _bucket(live: LiveUser | None, in_force: InForce, user: str, now_ms: int) -> TokenBucket | None:
    """The user's own; for one who has not been seen, the full one that it would get."""
    if live is not None:
        return live.active_bucket
    rate_milli = resolve(in_force.quotas, user).rate_milli
    ids = in_force.quotas.producer_ids
    return TokenBucket(rate_milli, ids.window_ms, ids.burst, now_ms) if rate_milli else None


def _tokens(bucket: TokenBucket | None, now_ms: int) -> float | None:
    return None if bucket is None else bucket.units(now_ms) / bucket.token_units


def _wait_ms(own: TokenBucket | None, cluster: TokenBucket | None, place: int, now_ms: int) -> int | None:
    waits_ms = [bucket.wait_ms(place, now_ms) for bucket in (own, cluster) if bucket is not None]
    return max(waits_ms, default=None)


def _of_id(
    real: ProducerIdQuota | None, live: LiveUser | None, user: str, producer_id: int, now_ms: int
) -> IdExplanation:
    if real is None:
        return IdExplanation(producer_id, False, False, None, None, None)
    waiting = live.queue.waiting(producer_id) if live else None
    return IdExplanation(
        producer_id,
        real.remembers(user, producer_id, now_ms),
        real.releases.holds(user, producer_id),
        waiting,
        live.queue.place(producer_id) if live and waiting else None,
        real.latest_refusals.of_id(user, producer_id),
    )


def _asked_id(asked: IdExplanation, moment: Moment) -> dict[str, Any]:
    waiting = asked.waiting
    return {
        "producer_id": asked.producer_id,
        "is_remembered": asked.is_remembered,
        "is_released": asked.is_released,
        "waiting": None
        if waiting is None
        else {
            "queue_position": asked.place,
            "attempts": waiting.attempts,
            "first_refused_wall_ms": moment.on_the_wall(waiting.first_refused_ms),
            "last_seen_wall_ms": moment.on_the_wall(waiting.last_seen_ms),
            "address": waiting.address,
            "client_id": waiting.client_id,
        },
        "last_refusal": _refusal(asked.last_refusal, moment),
    }


def _refusal(refusal: LatestRefusal | None, moment: Moment) -> dict[str, Any] | None:
    if refusal is None:
        return None
    return {
        "producer_id": refusal.producer_id,
        "reason": str(refusal.reason),
        "bound": str(refusal.bound),
        "producer_ids_rate": rate_or_mode(refusal.rate_milli),
        "refused_wall_ms": moment.on_the_wall(refusal.refused_ms),
        "until_wall_ms": moment.on_the_wall(refusal.until_ms),
        "throttle_time_ms": refusal.until_ms - refusal.refused_ms,
        "queue_position": refusal.queue_position,
    }


def _rounded(tokens: float | None) -> float | None:
    return None if tokens is None else round(tokens, 3)
