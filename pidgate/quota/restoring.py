"""Restoring of users, from a history of admissions or from an export, and ids that pass until that is done. PURE.

A restored id was paid for, so it is not charged. A restored balance is refilled from its own moment on. Every time in
an export is an age relative to the moment of the export, so that another clock can take it up. An age below 0 lies
after that moment. Must not know file formats or decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from pidgate.quota.decisions import Reason
from pidgate.quota.entities import User
from pidgate.quota.layered_filter import LayerState
from pidgate.quota.settings import Mode
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.users import REMEMBER_MS, LiveUser, RatedKeys, UserTable

MOST_NOTED_IDS: Final = 200_000
"""About 25 MB. Further ids pass too, and are new again once the state is restored."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """A balance at the moment of the export: `token_units` of `units` are one token, `rate_milli` thousandths
    of an id are refilled per window. `rehearsed_units`: the balance as if observed ids were enforced, if it is counted
    separately.
    """

    units: int
    token_units: int
    rate_milli: int
    rehearsed_units: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionalIdsState:
    """A user's transactional ids: the filter's secret and layers, the bucket, and the ids admitted as grace."""

    secret: int
    layers: tuple[LayerState, ...] = ()
    bucket: BucketState | None = None
    grace_admitted: int = 0


@dataclass(frozen=True, slots=True)
class UserState:
    """One user: the secrets of its two filters, their layers, oldest first, the bucket, the ids admitted as grace,
    and the transactional ids if a rate limits them.
    """

    user: User
    secrets: tuple[int, int]
    layers: tuple[LayerState, ...] = ()
    bucket: BucketState | None = None
    grace_admitted: int = 0
    transactional_ids: TransactionalIdsState | None = None

    def without_grace(self) -> UserState:
        """Return the same state without ids admitted as grace: a past grace does not count against a later one."""
        names = self.transactional_ids
        return replace(
            self,
            grace_admitted=0,
            transactional_ids=None if names is None else replace(names, grace_admitted=0),
        )


class NotedIds:
    """Ids that passed while the state was being restored, in their order. Nothing is charged for them yet.

    `left`: ids that are noted; `not_noted`: ids that passed without a note, for lack of room. They are new again once
    the state is restored.
    """

    def __init__(self) -> None:
        self.left = 0
        self.not_noted = 0
        self._ids: dict[User, dict[int, Reason]] = {}  # by id, and ~id for one used in transactions
        self._names: dict[User, dict[int, Reason]] = {}  # by the hash of a transactional id
        self._predecessors: dict[tuple[User, int], int] = {}

    def note_id(self, user: User, producer_id: int, reason: Reason, *, transactional: bool) -> bool:
        """Note that the id passed; return whether it had no note before."""
        return self._note(self._ids, user, ~producer_id if transactional else producer_id, reason)

    def note_transactional_id(self, user: User, hashed: int, reason: Reason) -> bool:
        """Note that a transactional id passed, by 64 bits of its hash; return whether it had no note before."""
        return self._note(self._names, user, hashed, reason)

    def note_inherited(self, user: User, old_producer_id: int, new_producer_id: int) -> None:
        """Note the new id of a transaction. Whether its predecessor is remembered is found out later."""
        self.note_id(user, new_producer_id, Reason.INHERITED, transactional=True)
        if ~new_producer_id in self._ids.get(user, ()):
            self._predecessors[user, new_producer_id] = old_producer_id

    def _note(self, table: dict[User, dict[int, Reason]], user: User, key: int, reason: Reason) -> bool:
        is_new = key not in table.get(user, ())
        if is_new and self.left >= MOST_NOTED_IDS:
            self.not_noted += 1
            return True
        self.left += is_new
        # An id that passed before keeps its first reason, unless it must not be charged now.
        if is_new or reason is Reason.FAIL_OPEN:
            table.setdefault(user, {})[key] = reason
        return is_new

    def take_out_ids(self, at_most: int) -> Iterator[tuple[User, int, Reason]]:
        """Take out up to so many producer ids; ~id is one that was used in transactions."""
        return self._take_out(self._ids, at_most)

    def take_out_transactional_ids(self, at_most: int) -> Iterator[tuple[User, int, Reason]]:
        """Take out up to so many transactional ids."""
        return self._take_out(self._names, at_most)

    def _take_out(
        self, table: dict[User, dict[int, Reason]], at_most: int
    ) -> Iterator[tuple[User, int, Reason]]:
        # Only one portion: a portion of 200 ids must not cost a list of all 200,000.
        for user, ids in list(islice(table.items(), at_most)):
            for key in list(islice(ids, at_most)):
                self.left -= 1
                at_most -= 1
                yield user, key, ids.pop(key)
            if ids:
                return
            del table[user]

    def take_out_predecessor(self, user: User, producer_id: int) -> int | None:
        """Return the id that a transaction replaced by this one; None: there is none."""
        return self._predecessors.pop((user, producer_id), None)

    def users(self) -> list[User]:
        return list(self._ids)

    def has_id(self, user: User, producer_id: int, *, transactional: bool) -> bool:
        """Return whether the id has a note for that use."""
        return (~producer_id if transactional else producer_id) in self._ids.get(user, ())

    def count_ids(self, user: User) -> int:
        return len(self._ids.get(user, ()))


class Restorer:
    """Restoring of users into a table, and their export from it."""

    def __init__(self, table: UserTable) -> None:
        self._table = table
        self._cluster_restored_ms: int | None = None  # time of the cluster's restored balance

    # From a history

    def account(self, user: User, client_id: str) -> User:
        """Return the account that paid for new producer ids of this client."""
        return self._table.account(user, client_id)

    def restore_id(
        self, user: User, producer_id: int, used_ms: int, now_ms: int, *, transactional: bool = False
    ) -> bool:
        """Remember an id admitted or refreshed at `used_ms` (below 0: before the machine booted), uncharged.

        Returns whether it was unseen; uses too old to count are skipped. Histories should come in the order of time:
        a use out of order is remembered for longer.
        """
        return self._restore(user, producer_id, used_ms, now_ms, transactional)

    def restore_grace(
        self, user: User, producer_id: int, used_ms: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Remember an id admitted as grace; if it may be refused at all, it counts against the grace's bound."""
        unseen = self._restore(user, producer_id, used_ms, now_ms, transactional)
        if unseen and not (transactional and self._table.quotas.producer_ids.transactional is Mode.OBSERVE):
            self._table.live(user, now_ms).grace_admitted += 1

    def _restore(self, user: User, producer_id: int, used_ms: int, now_ms: int, transactional: bool) -> bool:
        """Return whether the id was unseen, and is remembered now."""
        used_ms = self._possible_ms(used_ms, now_ms)
        if used_ms + self._table.kept_ms <= now_ms:
            return False
        live = self._table.live(user, now_ms)
        ids = live.ids(transactional=transactional)
        return ids.insert_elsewhere(producer_id, used_ms, now_ms, floor=live.floor)

    @staticmethod
    def _possible_ms(used_ms: int, now_ms: int) -> int:
        """Return `used_ms`, but not a time after now, whatever clock recorded it."""
        return min(used_ms, now_ms)

    def restore_tokens(self, user: User, units: int, token_units: int, at_ms: int) -> None:
        """Set the user's balance as of `at_ms`, in the past; of several the newest counts.

        `token_units` of these units were one token: the window may have been different. Raises ValueError when
        `token_units` is not above 0.
        """
        if token_units <= 0:
            raise ValueError(f"a token cannot have {token_units} units")
        live = self._table.live(user, at_ms)
        bucket = live.active_bucket
        if bucket is None or (live.restored_ms is not None and at_ms < live.restored_ms):
            return
        live.restored_ms = at_ms
        bucket.restore(units, token_units, at_ms)

    def restore_cluster_charges(self, charged_ms: Iterable[int]) -> None:
        """Charge the cluster's bucket at these times, those of ids that were unseen: no event holds its balance.

        Charges that an imported balance includes are skipped; without one the bucket was full at the first.
        """
        bucket = self._table.cluster
        if bucket is None:
            return
        for at_ms in sorted(charged_ms):
            if self._cluster_restored_ms is None:
                self._cluster_restored_ms = at_ms - 1
                bucket.restore(bucket.capacity_units, bucket.token_units, at_ms)
            if at_ms > self._cluster_restored_ms:
                bucket.charge_elsewhere(at_ms)

    def restore_transactional_id(
        self, user: User, hashed: int, used_ms: int, now_ms: int, reason: Reason
    ) -> None:
        """Remember a transactional id admitted by any gateway at `used_ms`, and charge it if it is unseen here.

        `hashed`: 64 bits of its hash. Histories come in the order of time.
        """
        used_ms = self._possible_ms(used_ms, now_ms)
        live = self._table.live(user, now_ms)
        if live.quota.transactional_ids_rate_milli is None or used_ms + REMEMBER_MS <= now_ms:
            return
        known = self._table.transactional_ids(live, used_ms)
        if known.filter.insert_elsewhere(hashed, used_ms, now_ms, floor=live.transactional_floor):
            if reason is Reason.GRACE:
                known.grace_admitted += 1
            known.spend(reason, used_ms)

    # From an export

    def export_users(self, now_ms: int) -> Iterator[UserState]:
        """Yield every user; decisions may be made in between."""
        for user in self._table.users():
            live = self._table.kept_under(user)
            if live is not None:
                yield _exported_user(user, live, now_ms)

    def export_changed(self, now_ms: int) -> Iterator[UserState | None]:
        """Yield the users that have changed since they were last exported, and None for each of the others."""
        for user in self._table.users():
            live = self._table.kept_under(user)
            yield None if live is None or not live.needs_saving() else _exported_user(user, live, now_ms)

    def import_user(self, state: UserState, now_ms: int) -> None:
        """Put the user in, in place of its state here.

        `now_ms`: moment of the export on this clock; it may be below 0. Raises ValueError when the state is
        impossible, and changes nothing then.
        """
        live = self._table.new(state.user, state.secrets, now_ms)
        bucket, rehearsed = self._imported(state.bucket, now_ms)
        plain = [layer for layer in state.layers if not layer.transactional]
        in_transactions = [layer for layer in state.layers if layer.transactional]
        try:
            for ids, layers in zip(live.filters, (plain, in_transactions), strict=False):
                ids.restore_layers(layers, now_ms)
            if state.transactional_ids is not None:
                self._import_names(live, state.transactional_ids, now_ms)
        except ValueError:
            live.clear()
            raise
        live.bucket, live.rehearsed = bucket, rehearsed
        live.grace_admitted = state.grace_admitted
        live.restored_ms = now_ms
        self._table.replace(state.user, live, now_ms)

    def _import_names(self, live: LiveUser, state: TransactionalIdsState, now_ms: int) -> None:
        names = self._table.transactional_ids(live, now_ms, state.secret)
        names.filter.restore_layers(state.layers, now_ms)
        bucket, _ = self._imported(state.bucket, now_ms)
        names.bucket = bucket or names.bucket
        names.grace_admitted = state.grace_admitted

    def export_cluster_bucket(self, now_ms: int) -> BucketState | None:
        """Return the cluster's balance; None without a common rate."""
        return _exported(self._table.cluster, self._table.cluster_rehearsed, now_ms)

    def import_cluster_bucket(self, state: BucketState | None, now_ms: int) -> None:
        """Set the cluster's balance as of `now_ms`, unless there is no common rate now. Raises as `import_user`."""
        bucket, rehearsed = self._imported(state, now_ms)
        if bucket is not None and self._table.cluster is not None:
            self._cluster_restored_ms = now_ms
            self._table.set_cluster(bucket, rehearsed, now_ms)

    def _imported(
        self, state: BucketState | None, now_ms: int
    ) -> tuple[TokenBucket | None, TokenBucket | None]:
        """Return the bucket, and the rehearsed one, in the shape they had; reshaping them keeps their fraction."""
        if state is None:
            return None, None
        if state.token_units < 1000 or state.token_units % 1000:
            raise ValueError(f"no window makes a token of {state.token_units} units")
        window_ms = state.token_units // 1000
        burst = self._table.quotas.producer_ids.burst
        buckets: list[TokenBucket | None] = []
        for units in (state.units, state.rehearsed_units):
            bucket = None if units is None else TokenBucket(state.rate_milli, window_ms, burst, now_ms)
            if bucket is not None and units is not None:
                bucket.restore(units, state.token_units, now_ms)
            buckets.append(bucket)
        return buckets[0], buckets[1]


def _exported_user(user: User, live: LiveUser, now_ms: int) -> UserState:
    live.mark_saved()
    return UserState(
        user,
        (live.filter.secret, live.transactional_filter.secret),
        ()
        if live.is_of_client_id
        else live.filter.export_layers(now_ms)
        + live.transactional_filter.export_layers(now_ms, transactional=True),
        _exported(live.bucket, live.rehearsed, now_ms),
        live.grace_admitted,
        _exported_names(live.transactional_ids, now_ms),
    )


def _exported_names(names: RatedKeys | None, now_ms: int) -> TransactionalIdsState | None:
    if names is None:
        return None
    layers, bucket = names.filter.export_layers(now_ms), _exported(names.bucket, None, now_ms)
    return TransactionalIdsState(names.filter.secret, layers, bucket, names.grace_admitted)


def _exported(bucket: TokenBucket | None, rehearsed: TokenBucket | None, now_ms: int) -> BucketState | None:
    if bucket is None:
        return None
    rehearsed_units = None if rehearsed is None else rehearsed.units_at(now_ms)
    return BucketState(bucket.units_at(now_ms), bucket.token_units, bucket.rate_milli, rehearsed_units)
