"""The state of a user and of its producer ids: what is in force and why, and why an id is refused until when.

Reads the quotas in force and the quota's state without changing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.origins import QuotaOrigins, rate_or_mode
from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.byte_quota import throttles_bytes
from pidgate.quota.changes import RATES
from pidgate.quota.counters import Refusal
from pidgate.quota.entities import NotRefused, User, client_accounts, resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import DEFAULT, Mode, Quotas
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser, UserTable


@dataclass(frozen=True, slots=True)
class Moment:
    """The current time on both clocks. The quota's times are monotonic."""

    now_ms: int
    wall_ms: int

    def on_the_wall(self, at_ms: int) -> int:
        """Convert a monotonic time to wall time."""
        return self.wall_ms + at_ms - self.now_ms


def explanation(
    user: str,
    producer_id: int | None,
    *,
    state: ProducerIdQuota,
    in_force: InForce,
    moment: Moment,
    sticky_entries: int | None = None,
    origins: QuotaOrigins | None = None,
) -> dict[str, Any]:
    """Return all that this gateway knows of a user, for the admin API.

    Tokens are None without a limit. `is_restored` False: nothing is refused yet, because the state is still
    being restored. `next_token_in_ms`: time until a new id that is not waiting would be admitted.
    `sticky_entries`: of the user, None where other processes hold them. `origins`: of `in_force`, passed by
    callers that ask for many users.
    """
    now_ms = moment.now_ms
    quotas, origins = in_force.quotas, origins or QuotaOrigins(in_force, moment.wall_ms)
    table, status = state.table if state.is_restored else None, state.status(user, now_ms)
    live = table.find(user) if table is not None else None
    cluster = table.cluster if table is not None else None
    provenance = in_force.provenance.get(user) or Provenance()
    bucket = _bucket(live, in_force, user, now_ms)
    of_names = _bucket_of_transactional_ids(live, in_force, user, now_ms)
    of_states = _bucket_of_states(live, in_force, user, now_ms)
    return {
        "user": user,
        "wall_ms": moment.wall_ms,
        "window_ms": quotas.producer_ids.window_ms,
        "is_restored": table is not None,
        "is_known": live is not None,
        **{str(rate): origins.effective_rate(rate, user).as_json() for rate in RATES},
        "mode": origins.effective_mode(user).as_json(),
        "is_exempt": resolve(quotas, user).exempt,
        "not_refused": not_refused(user, state=state, quotas=quotas, origins=origins, moment=moment),
        "owner": provenance.owner,
        "note": provenance.note,
        "tokens": _tokens(bucket, now_ms),
        "full_tokens": _full_tokens(bucket),
        "transactional_tokens": _tokens(of_names, now_ms),
        "states_tokens": _tokens(of_states, now_ms),
        "client_ids": [
            _of_client_id(client_id, account, table=table, in_force=in_force, now_ms=now_ms)
            for client_id, account in client_accounts(quotas, user).items()
        ],
        "full_transactional_tokens": _full_tokens(of_names),
        "full_states_tokens": _full_tokens(of_states),
        "next_token_in_ms": _wait_ms(bucket, cluster, len(live.queue.waiting) if live else 0, now_ms),
        "cluster_producer_ids_rate": rate_or_mode(quotas.cluster_rate_milli),
        "cluster_tokens": _tokens(cluster, now_ms),
        "live_ids": status.live_ids,
        "producer_states": state.states.of_user(user, now_ms),
        "waiting": status.waiting,
        "oldest_waiting_ms": status.oldest_waiting_ms,
        "next_gives_up_in_ms": None if live is None else _left_ms(live.queue.next_gives_up_ms(), now_ms),
        "grace_admitted": live.grace_admitted if live else 0,
        "sticky_entries": sticky_entries,
        "last_refusal": _refusal(table.refusals.of_user(user) if table is not None else None, moment),
        "producer_id": None
        if producer_id is None
        else _of_id(table, _waiting_in(table, live, in_force, user, producer_id), user, producer_id, moment),
    }


def _of_client_id(
    client_id: str, account: User, *, table: UserTable | None, in_force: InForce, now_ms: int
) -> dict[str, Any]:
    """Return the rate of a client id, a part of its user's, and the tokens of its account."""
    live = table.kept_under(account) if table is not None else None
    bucket = _bucket(live, in_force, account, now_ms)
    return {
        "client_id": client_id,
        "producer_ids_rate": rate_or_mode(resolve(in_force.quotas, account).rate_milli),
        "tokens": _tokens(bucket, now_ms),
        "full_tokens": _full_tokens(bucket),
        "waiting": len(live.queue.waiting) if live is not None else 0,
    }


def effect(user: str | None, *, state: ProducerIdQuota, in_force: InForce, moment: Moment) -> dict[str, Any]:
    """Return what words.when_refused and words.when_throttled say of these quotas, perhaps not in force yet."""
    origins = QuotaOrigins(in_force, moment.wall_ms)
    rate = origins.own(RATES[0], None) if user is None else origins.effective_rate(RATES[0], user)
    return {
        "user": user,
        str(RATES[0]): rate.as_json(),
        "effective_rate": rate.as_json(),
        "effective_mode": origins.effective_mode(user).as_json(),
        "not_refused": not_refused(user, state=state, quotas=in_force.quotas, origins=origins, moment=moment),
        "throttles_bytes": throttles_bytes(in_force.quotas, user or DEFAULT),
    }


def not_refused(
    user: str | None, *, state: ProducerIdQuota, quotas: Quotas, origins: QuotaOrigins, moment: Moment
) -> dict[str, Any]:
    """Return why these quotas refuse no new producer id of this user now, and until when. None: the default user.

    `why` None: ids above the quota are refused. `until_wall_ms`: end of a grace. `ids_left`: ids that it still admits,
    None without a limit.
    """
    why, left = state.not_refused(quotas, user or DEFAULT, moment.now_ms)
    until_wall_ms = ids_left = None
    if why is NotRefused.GRACE:
        given = origins.effective_grace(user).until_wall_ms
        until_wall_ms = moment.on_the_wall(state.table.grace.until_ms) if given is None else given
        ids_left = None if resolve(quotas, user or DEFAULT).rate_milli is None else left
    return {
        "why": why,
        "until_wall_ms": until_wall_ms,
        "ids_left": ids_left,
        "refuses_transactional": quotas.producer_ids.transactional is Mode.ENFORCE,
    }


def _bucket(live: LiveUser | None, in_force: InForce, user: str, now_ms: int) -> TokenBucket | None:
    """Return the user's bucket. For a user not seen yet, return its full initial bucket."""
    if live is not None:
        return live.active_bucket
    return _full_bucket(in_force, resolve(in_force.quotas, user).rate_milli, now_ms)


def _bucket_of_transactional_ids(
    live: LiveUser | None, in_force: InForce, user: str, now_ms: int
) -> TokenBucket | None:
    rate_milli = resolve(in_force.quotas, user).transactional_ids_rate_milli
    if rate_milli and live is not None and live.transactional_ids is not None:
        return live.transactional_ids.bucket
    return _full_bucket(in_force, rate_milli, now_ms)


def _bucket_of_states(live: LiveUser | None, in_force: InForce, user: str, now_ms: int) -> TokenBucket | None:
    if live is not None and live.pairs_bucket is not None:
        return live.pairs_bucket
    return _full_bucket(in_force, resolve(in_force.quotas, user).states_rate_milli, now_ms)


def _full_bucket(in_force: InForce, rate_milli: int | None, now_ms: int) -> TokenBucket | None:
    ids = in_force.quotas.producer_ids
    return TokenBucket(rate_milli, ids.window_ms, ids.burst, now_ms) if rate_milli else None


def _full_tokens(bucket: TokenBucket | None) -> float | None:
    return None if bucket is None else round(bucket.capacity_units / bucket.token_units, 3)


def _tokens(bucket: TokenBucket | None, now_ms: int) -> float | None:
    return None if bucket is None else round(bucket.units(now_ms) / bucket.token_units, 3)


def _wait_ms(own: TokenBucket | None, cluster: TokenBucket | None, place: int, now_ms: int) -> int | None:
    waits_ms = [bucket.wait_ms(place, now_ms) for bucket in (own, cluster) if bucket is not None]
    return max(waits_ms, default=None)


def _left_ms(until_ms: int | None, now_ms: int) -> int | None:
    return None if until_ms is None else max(0, until_ms - now_ms)


def _waiting_in(
    table: UserTable | None, live: LiveUser | None, in_force: InForce, user: User, producer_id: int
) -> LiveUser | None:
    """Return the account of a client id in whose line the id waits, else the user's."""
    accounts = client_accounts(in_force.quotas, user).values() if table is not None else ()
    found = [table.kept_under(account) for account in accounts] if table is not None else []
    return next((one for one in found if one is not None and producer_id in one.queue.waiting), live)


def _of_id(
    table: UserTable | None, live: LiveUser | None, user: str, producer_id: int, moment: Moment
) -> dict[str, Any]:
    """Return the state of one producer id. `is_released`: it is admitted on its next attempt."""
    waiting = live.queue.waiting.get(producer_id) if live else None
    return {
        "producer_id": producer_id,
        "is_remembered": table is not None
        and any(
            table.remembers(user, producer_id, moment.now_ms, transactional=use) for use in (False, True)
        ),
        "is_released": table is not None and (user, producer_id) in table.refusals.released,
        "waiting": None
        if live is None or waiting is None
        else {
            "queue_position": live.queue.place_of(producer_id),
            "attempts": waiting.attempts,
            "first_refused_wall_ms": moment.on_the_wall(waiting.first_refused_ms),
            "last_seen_wall_ms": moment.on_the_wall(waiting.last_seen_ms),
            "address": waiting.address,
            "client_id": waiting.client_id,
            "gives_up_in_ms": _left_ms(waiting.gives_up_ms, moment.now_ms),
        },
        "last_refusal": _refusal(None if table is None else table.refusals.of_id(user, producer_id), moment),
    }


def _refusal(refusal: Refusal | None, moment: Moment) -> dict[str, Any] | None:
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
