"""Resolution of quotas: an explicit user over the default user, key by key, as Kafka does. PURE.

A user has one account for new producer ids (KIP-936: user principals only). A client id that the file gives a rate has
an account of its own. Its rate is a part of the user's, so all accounts together admit what the user's rate admits, and
no client id can spend another one's part. All other client ids share the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from pidgate.names import escaped
from pidgate.quota.settings import NOT_SET, Mode, Quotas

User = str
"""A principal's name, or `unidentified(mechanism)`. Tables of the quota also have accounts of client ids."""

ANONYMOUS: Final = "ANONYMOUS"
"""The user of all clients that do not log in, as brokers call it."""

_UNIDENTIFIED: Final = "\0"
"""No principal's name begins with it: PLAIN uses it as a separator, and SCRAM does not allow it."""

BY_CERTIFICATE: Final = "SSL"
"""In place of a SASL mechanism: the user is that of a client's certificate."""


def unidentified(mechanism: str) -> User:
    """Return the one entity of all clients that logged in by this mechanism without a readable name.

    It has a quota and a mode as every user has, so an unreadable name is no way around a quota.
    """
    return _UNIDENTIFIED + mechanism


def is_unidentified(user: User) -> bool:
    return user.startswith(_UNIDENTIFIED)


def mechanism_of(user: User) -> str:
    """Return the mechanism of an unidentified user."""
    return user.removeprefix(_UNIDENTIFIED)


def owner_of(account: User) -> tuple[User, str | None]:
    """Return the user of an account, and the client id if the account is that of one client id."""
    user, separator, client_id = account[1:].rpartition(_UNIDENTIFIED)
    return (user, client_id) if separator and account.startswith(_UNIDENTIFIED) else (account, None)


def account_of(quotas: Quotas, user: User, client_id: str) -> User:
    """Return the account that pays for new producer ids of this client: the user's, or that of its client id."""
    own = quotas.users.get(user)
    if own is None or client_id not in own.client_rates_milli:
        return user
    return f"{_UNIDENTIFIED}{user}{_UNIDENTIFIED}{client_id}"


def client_accounts(quotas: Quotas, user: User) -> dict[str, User]:
    """Return the user's accounts of client ids, by client id."""
    rates = quotas.users.get(user, NOT_SET).client_rates_milli
    return {client_id: account_of(quotas, user, client_id) for client_id in rates}


def shown(user: User) -> str:
    """Return a user's name as tables, metrics and commands show it: "(unidentified OAUTHBEARER)" for such an entity."""
    user, client_id = owner_of(user)
    if client_id is not None:
        return f"{shown(user)} (client id {escaped(client_id)})"
    return f"(unidentified {escaped(mechanism_of(user))})" if is_unidentified(user) else escaped(user)


MOST_USERS: Final = 20_000
"""Most users with an entry of their own in a table. Some brokers accept any name in a token. The bound limits what such
names cost, and no user's state is evicted for a new name.
"""

OTHER_USERS: Final = unidentified("")
"""All users together that have no entry of their own in a table."""


def table_key(user: User, table: Collection[User]) -> User:
    """Return the key under which a table by user keeps this one: its own, while there are fewer than MOST_USERS."""
    return user if user in table or len(table) < MOST_USERS else OTHER_USERS


def has_room_for_user(alike: int, users: int) -> bool:
    """Return whether a table of so many users has an account for one more, of whose origin it holds `alike`.

    The users of one address hold at most four times what they leave free. So an address that makes up users pushes no
    user of another one into the shared account.
    """
    return alike < 4 * (MOST_USERS - users)


@dataclass(frozen=True, slots=True)
class EffectiveQuota:
    """Quota of one user: rate in thousandths of an id per window (None: no limit), mode, exemption.

    `transactional_ids_rate_milli`: of new transactional ids; None: they are not even counted. `grace_milli`: see
    UserQuota. `states_rate_milli`: new producer states, which are charged and never refused.
    """

    rate_milli: int | None
    mode: Mode
    exempt: bool
    transactional_ids_rate_milli: int | None = None
    grace_milli: int | None = None
    states_rate_milli: int | None = None

    @property
    def enforces(self) -> bool:
        """True when anything of this user may be refused."""
        return self.mode is Mode.ENFORCE and not self.exempt


def resolve(quotas: Quotas, user: User) -> EffectiveQuota:
    """Return the quota in force for `user`, or for an account of a client id."""
    user, client_id = owner_of(user)
    own = quotas.users.get(user, NOT_SET)
    default = quotas.default
    rate = own.producer_ids_rate_milli
    if rate is None:
        rate = default.producer_ids_rate_milli
    if own.client_rates_milli or client_id is not None:
        rate = _part(rate, own.client_rates_milli, client_id)
    of_names = own.transactional_ids_rate_milli
    if of_names is None:
        of_names = default.transactional_ids_rate_milli
    grace = own.grace_milli
    if grace is None:
        grace = default.grace_milli
    of_states = own.producer_states_rate_milli
    if of_states is None:
        of_states = default.producer_states_rate_milli
    mode = own.mode or default.mode or quotas.mode
    return EffectiveQuota(rate, mode, own.exempt or default.exempt, of_names, grace, of_states)


def _part(rate_milli: int | None, rates: Mapping[str, int], client_id: str | None) -> int | None:
    """Return the part of a user's rate that is for a client id. None: for all client ids without a rate.

    If the user's rate was lowered below the sum of the parts, each part shrinks with it.
    """
    given = sum(rates.values())
    if client_id is None:
        return None if rate_milli is None else max(0, rate_milli - given)
    own = rates.get(client_id, 0)
    return own if rate_milli is None or given <= rate_milli else own * rate_milli // given


def id_terms_of(quotas: Quotas, user: User) -> tuple[object, ...]:
    """Return the terms that decide how long new ids of this user wait, to compare before and after a change."""
    parts = quotas.users.get(user, NOT_SET).client_rates_milli
    return resolve(quotas, user), parts, quotas.cluster_rate_milli, quotas.producer_ids


def enforces(quotas: Quotas, user: User, *, transactional: bool) -> bool:
    """Return whether a Produce request of `user` may be refused for a new producer id."""
    return may_refuse(quotas, resolve(quotas, user), transactional=transactional)


def may_refuse(quotas: Quotas, quota: EffectiveQuota, *, transactional: bool) -> bool:
    """Return the same for a resolved quota.

    Transactional requests have a switch of their own, because a transaction's clock may already run.
    """
    if transactional and quotas.producer_ids.transactional is Mode.OBSERVE:
        return False
    return why_not_refused(quotas, quota) is None


class NotRefused(StrEnum):
    """Why no new producer id of a user is refused. GRACE and RESTORING end by themselves."""

    EXEMPT = "exempt"
    OBSERVE = "observe"
    NO_RATE = "no_rate"
    GRACE = "grace"
    RESTORING = "restoring"


def why_not_refused(quotas: Quotas, quota: EffectiveQuota) -> NotRefused | None:
    """Return why these quotas refuse no new producer id of a user; None: they may."""
    if quota.exempt:
        return NotRefused.EXEMPT
    if quota.mode is Mode.OBSERVE:
        return NotRefused.OBSERVE
    return None if is_bounded(quotas, quota) else NotRefused.NO_RATE


def bound_milli(quotas: Quotas, user: User, *, transactional: bool) -> int | None:
    """Return the rate that limits new ids of this user, in thousandths of an id per window; None: no rate.

    It is the lowest of the user's and the cluster's rates; an id has at least one producer state.
    """
    quota = resolve(quotas, user)
    if not may_refuse(quotas, quota, transactional=transactional):
        return None
    rates = quota.rate_milli, quota.states_rate_milli, quotas.cluster_rate_milli
    return min(rate for rate in rates if rate is not None)


def is_asked_at_init(quotas: Quotas, user: User, *, transactional: bool) -> bool:
    """Return whether an InitProducerId of `user`, with or without a transactional id, has to be judged."""
    if transactional:
        return resolve(quotas, user).transactional_ids_rate_milli is not None
    return quotas.producer_ids.refuse_init and is_bounded(quotas, resolve(quotas, user))


def limits_transactional_ids(quotas: Quotas) -> bool:
    """Return whether a rate of transactional ids is set for anybody."""
    of_all = [quotas.default, *quotas.users.values()]
    return any(quota.transactional_ids_rate_milli is not None for quota in of_all)


def limits_states(quotas: Quotas) -> bool:
    """Return whether a rate of producer states is set for anybody."""
    of_all = [quotas.default, *quotas.users.values()]
    return any(quota.producer_states_rate_milli is not None for quota in of_all)


def is_bounded(quotas: Quotas, quota: EffectiveQuota) -> bool:
    """Return whether a rate limits how many new ids the user may bring."""
    return (
        quota.rate_milli is not None
        or quota.states_rate_milli is not None
        or quotas.cluster_rate_milli is not None
    )


K = TypeVar("K")
V = TypeVar("V")

PORTION: Final = 1_000
"""Users that one sweep looks at: some 5 us each. With more of them a round takes as many seconds longer."""


class Portions(Generic[K]):
    """The keys of a table that are left in a round."""

    def __init__(self, most: int = PORTION) -> None:
        self._most = most
        self._left: list[K] = []

    def of(self, table: Mapping[K, V]) -> list[tuple[K, V]]:
        """Return the next portion of the table, which may have changed since the last; of a small one, all of it."""
        if not self._left:
            self._left = list(reversed(list(table)))
        keys = self._left[-self._most :]
        del self._left[-self._most :]
        return [(key, table[key]) for key in reversed(keys) if key in table]
