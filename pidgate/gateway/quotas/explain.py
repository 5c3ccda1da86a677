"""The origin of quotas, and the state of a user and of its producer ids: why an id is refused, and until
when.

Reads the quotas in force and the quota's state without changing them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.recording.config_event import Provenance
from pidgate.quota.changes import ALL_MODES, RATES, Change, Setting, deciding, value_in_force
from pidgate.quota.counters import Refusal
from pidgate.quota.entities import NotRefused, User, client_accounts, resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import DEFAULT, Mode
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import LiveUser, UserTable

RUN_TIME: Final = "run_time"
_PER_ID = 1_000


class Source(StrEnum):
    """Origin of a value."""

    FILE = "file"
    RUN_TIME = "run_time"
    NOTHING = "nothing"
    """Not set: no limit."""


class Of(StrEnum):
    """The entity for which a value is set."""

    USER = "user"
    DEFAULT = "default"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class QuotaOrigin:
    """One value, a rate in thousandths or a mode, and its source. None: not set, or removed at run time.

    `until_wall_ms`: end of a temporary value. `in_file`: the file's value, in force again after a reset.
    """

    value: int | Mode | None
    source: Source
    of: Of
    set_by: str = ""
    set_wall_ms: int | None = None
    set_through: str = ""
    until_wall_ms: int | None = None
    note: str = ""
    in_file: int | Mode | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON for the admin API, with rates in ids per window."""
        return {**asdict(self), "value": rate_or_mode(self.value), "in_file": rate_or_mode(self.in_file)}


def rate_or_mode(value: int | Mode | None) -> float | str | None:
    """Return thousandths as ids per window (100, 0.5), and a mode as its name."""
    if value is None or isinstance(value, Mode):
        return None if value is None else str(value)
    return value // _PER_ID if value % _PER_ID == 0 else value / _PER_ID


class QuotaOrigins:
    """The origin of each value of the quotas in force."""

    def __init__(self, in_force: InForce, wall_ms: int) -> None:
        self._in_force = in_force
        # The values show whether the file takes precedence: an overruled change has a different value.
        self._deciding = deciding(in_force.in_file, in_force.changes, file_wins=False, wall_ms=wall_ms)

    def own(self, setting: Setting, user: str | None) -> QuotaOrigin:
        """Return the value set for this user alone.

        `user` None: for the default user (rate), or for all (mode).
        """
        value = value_in_force(self._in_force.quotas, setting, user)
        in_file = value_in_force(self._in_force.in_file, setting, user)
        change = self._deciding.get((setting, user))
        if user is not None and setting is Setting.MODE and ALL_MODES in self._deciding:
            # It is overridden by the mode of all users, which the values do not show.
            value = in_file if change is None else change.value
        if change is not None and (change.value == value or value is None):
            return _from_change(change, in_file)
        of = _of(setting, user)
        if value is None:
            return QuotaOrigin(None, Source.NOTHING, of, in_file=in_file)
        return QuotaOrigin(value, Source.FILE, of, in_file=in_file)

    def effective_rate(self, setting: Setting, user: str) -> QuotaOrigin:
        """Return the user's own rate, else the default user's."""
        own = self.own(setting, user)
        return own if own.value is not None else self.own(setting, None)

    def effective_mode(self, user: str | None) -> QuotaOrigin:
        """Return the mode set for all at run time, else the user's own, else the file's for all."""
        everybody = self.own(*ALL_MODES)
        own = everybody if user is None else self.own(Setting.MODE, user)
        is_switch = everybody.source is Source.RUN_TIME and everybody.value is not None
        return everybody if is_switch or own.value is None else own

    def effective_grace(self, user: str | None) -> QuotaOrigin:
        """Return the grace that an operator gave the user, else that of all users."""
        own = self.own(Setting.GRACE, user)
        return self.own(Setting.GRACE, None) if own.value is None else own

    def entities(self) -> list[str | None]:
        """Return every user with a setting or a change: the default user (None) first, then by name."""
        users = {*self._in_force.quotas.users, *self._in_force.in_file.users}
        users |= {change.target.user for change in self._in_force.changes if change.target.user is not None}
        return [None, *sorted(users)]


def _of(setting: Setting, user: str | None) -> Of:
    if user is not None:
        return Of.USER
    return Of.ALL if setting is Setting.MODE else Of.DEFAULT


def _from_change(change: Change, in_file: int | Mode | None) -> QuotaOrigin:
    return QuotaOrigin(
        change.value,
        Source.RUN_TIME,
        _of(change.target.setting, change.target.user),
        change.set_by,
        change.set_wall_ms,
        change.set_through,
        change.until_wall_ms,
        change.note,
        in_file,
    )


def provenance_in_force(settings: Settings, changes: Iterable[Change]) -> dict[str, Provenance]:
    """Return the source of each user's quota; the default quota has the key "".

    `changes`: only effective ones. The owner always comes from the file. The mode of all users is left out.
    """
    users = settings.quotas.named().items()
    found = {name: Provenance(owner=user.owner) for name, user in users}
    for change in sorted(changes, key=lambda change: change.set_wall_ms):
        if (change.target.setting, change.target.user) == ALL_MODES:
            continue
        user = change.target.user or ""
        found[user] = replace(
            found.get(user, Provenance()),
            source=RUN_TIME,
            set_by=change.set_by,
            set_wall_ms=change.set_wall_ms,
            until_wall_ms=change.until_wall_ms,
            note=change.note,
        )
    return found


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
    return {
        "user": user,
        "wall_ms": moment.wall_ms,
        "window_ms": quotas.producer_ids.window_ms,
        "is_restored": table is not None,
        "is_known": live is not None,
        **{str(rate): origins.effective_rate(rate, user).as_json() for rate in RATES},
        "mode": origins.effective_mode(user).as_json(),
        "is_exempt": resolve(quotas, user).exempt,
        "not_refused": not_refused(user, state=state, origins=origins, moment=moment),
        "owner": provenance.owner,
        "note": provenance.note,
        "tokens": _tokens(bucket, now_ms),
        "full_tokens": _full_tokens(bucket),
        "transactional_tokens": _tokens(of_names, now_ms),
        "client_ids": [
            _of_client_id(client_id, account, table=table, in_force=in_force, now_ms=now_ms)
            for client_id, account in client_accounts(quotas, user).items()
        ],
        "full_transactional_tokens": _full_tokens(of_names),
        "next_token_in_ms": _wait_ms(bucket, cluster, len(live.queue.waiting) if live else 0, now_ms),
        "cluster_producer_ids_rate": rate_or_mode(quotas.cluster_rate_milli),
        "cluster_tokens": _tokens(cluster, now_ms),
        "live_ids": status.live_ids,
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


def not_refused(
    user: str | None, *, state: ProducerIdQuota, origins: QuotaOrigins, moment: Moment
) -> dict[str, Any]:
    """Return why no new producer id of this user is refused now, and until when. None: the default user.

    `why` None: ids above the quota are refused. `until_wall_ms`: end of a grace. `ids_left`: ids that it still admits,
    None without a limit.
    """
    quotas = state.in_force.value
    why, left = state.not_refused(user or DEFAULT, moment.now_ms)
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
