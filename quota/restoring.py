"""How the users' state outlives a process: taken up from a history of admissions, or from an export.

Nothing here charges: what is restored was paid for. A restored id is known, a restored balance is what it was
at its moment and has been refilled since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidgate.quota.entities import User
from pidgate.quota.token_bucket import TokenBucket
from pidgate.quota.user_state import BucketState, UserState
from pidgate.quota.users import UserTable


class RestorableUsers(UserTable):
    """The users, with what is done before the first question is answered and while others read."""

    _cluster_restored_ms: int | None = None
    """From when the cluster's balance was taken up."""

    # From a history

    def restore_id(self, user: User, producer_id: int, used_ms: int, now_ms: int) -> None:
        """An admission or a refresh at `used_ms`, which may be below 0 (the machine has booted since); not
        charged.

        What is too old to be remembered is skipped. A history is best told in the order of time; what comes
        out of order is remembered for longer.
        """
        self._restore(user, producer_id, used_ms, now_ms)

    def restore_grace(self, user: User, producer_id: int, used_ms: int, now_ms: int) -> None:
        """The same for an id that was let in as grace: a restart is no way to ten more times the rate."""
        if self._restore(user, producer_id, used_ms, now_ms):
            self._users[user].grace_admitted += 1

    def _restore(self, user: User, producer_id: int, used_ms: int, now_ms: int) -> bool:
        """Whether the id was unseen, and is remembered now."""
        used_ms = self._possible_ms(used_ms, now_ms)
        if used_ms + self._kept_ms <= now_ms:
            return False
        live = self._users.get(user) or self._live(user, now_ms)
        ids = live.filter
        return ids.insert_elsewhere(ids.hashed(producer_id), used_ms, now_ms, floor=live.floor)

    @staticmethod
    def _possible_ms(used_ms: int, now_ms: int) -> int:
        """Nothing was used later than now, whatever the clock it was told by."""
        return min(used_ms, now_ms)

    def restore_tokens(self, user: User, units: int, token_units: int, at_ms: int) -> None:
        """The user's balance at `at_ms`, a time that has passed; of several the newest counts.

        `token_units` of these units were one token: the window may have been another. Raises ValueError when
        `token_units` is not above 0.
        """
        if token_units <= 0:
            raise ValueError(f"a token cannot have {token_units} units")
        live = self._live(user, at_ms)
        bucket = live.active_bucket
        if bucket is None or (live.restored_ms is not None and at_ms < live.restored_ms):
            return
        live.restored_ms = at_ms
        bucket.restore(units, token_units, at_ms)

    def restore_cluster_charges(self, charged_ms: Iterable[int]) -> None:
        """When tokens were spent, of all users together; for the bucket above them all, whose balance no event tells.

        What an imported balance holds already is passed over; without one the bucket was full at the first.
        """
        bucket = self._cluster
        if bucket is None:
            return
        for at_ms in sorted(charged_ms):
            if self._cluster_restored_ms is None:
                self._cluster_restored_ms = at_ms - 1
                bucket.restore(bucket.capacity_units, bucket.token_units, at_ms)
            if at_ms > self._cluster_restored_ms:
                bucket.charge_elsewhere(at_ms)

    # From an export

    def export_users(self, now_ms: int) -> Iterator[UserState]:
        """Every user as it is when its turn comes; decisions may be made in between."""
        for user in list(self._users):
            live = self._users.get(user)
            if live is not None:
                yield UserState(
                    user,
                    live.filter.seed,
                    live.filter.export_layers(now_ms),
                    _exported(live.bucket, now_ms),
                    live.grace_admitted,
                )

    def import_user(self, state: UserState, now_ms: int) -> None:
        """Takes the user up, in place of what is known of it.

        `now_ms`: the moment of the export on this clock; it may have passed, and may be below 0. Raises
        ValueError when the state is impossible, and changes nothing then.
        """
        live = self._new(state.user, state.seed)
        bucket = self._imported(state.bucket, now_ms)
        live.filter.restore_layers(state.layers, now_ms)
        live.bucket = bucket
        live.grace_admitted = state.grace_admitted
        live.restored_ms = now_ms
        self._shape_bucket(live, now_ms)
        replaced = self._users.get(state.user)
        if replaced is not None:
            replaced.filter.clear()
        self._users[state.user] = live

    def export_cluster_bucket(self, now_ms: int) -> BucketState | None:
        """None when no bound is set for the whole cluster."""
        return _exported(self._cluster, now_ms)

    def import_cluster_bucket(self, state: BucketState | None, now_ms: int) -> None:
        """The cluster's balance at `now_ms`, as `import_user` takes it; ignored when there is no such bound now."""
        bucket = self._imported(state, now_ms)
        if bucket is not None and self._cluster is not None:
            self._cluster = bucket
            self._cluster_restored_ms = now_ms
            self._shape_cluster(now_ms)

    def _imported(self, state: BucketState | None, now_ms: int) -> TokenBucket | None:
        """The bucket in the shape it had; shaping it anew keeps its fraction."""
        if state is None:
            return None
        if state.token_units < 1000 or state.token_units % 1000:
            raise ValueError(f"no window makes a token of {state.token_units} units")
        window_ms = state.token_units // 1000
        bucket = TokenBucket(state.rate_milli, window_ms, self._quotas.producer_ids.burst, now_ms)
        bucket.restore(state.units, state.token_units, now_ms)
        return bucket


def _exported(bucket: TokenBucket | None, now_ms: int) -> BucketState | None:
    if bucket is None:
        return None
    return BucketState(bucket.units(now_ms), bucket.token_units, bucket.rate_milli)
