"""Short hashes in place of names that must not stand in the topic: users, client ids, addresses. PURE.

The hash has no key, so that every gateway and every restart gives the same person the same name: that is what lets
gateways share one quota without naming anybody. It is a pseudonym, not a secret: whoever has a list of candidates can
hash them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeVar

from pidgate.events.definitions import ConfigEvent, Event
from pidgate.names import bounded

REDACTABLE: Final = ("user", "client_id", "address")

TRANSACTIONAL_ID: Final = "transactional_id"

_HASH_BYTES = 8  # among a million names two are alike with a chance of 3 in 100 million

MOST_MET: Final = 100_000
"""Users whose names are found by their hashes. State of those beyond stays under the hash until they come again."""

_E = TypeVar("_E", bound=Event)


def pseudonym(field: str, name: str) -> str:
    """Return the hash for this name: `h:` and 16 hex digits; an empty name stays empty.

    The field takes part (at most 16 bytes), so that a user and a client id of the same name do not give each other
    away.
    """
    if not name:
        return ""
    return f"h:{hash64(field, name):0{2 * _HASH_BYTES}x}"


def hash64(field: str, name: str) -> int:
    """Return the number that `pseudonym` writes in hexadecimal. A name and its bounded form have the same."""
    return _hashed(field, bounded(name))


@lru_cache(maxsize=10_000)
def _hashed(field: str, name: str) -> int:
    data = name.encode("utf-8", "replace")
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES, person=field.encode()).digest(), "big")


def redacted(event: _E, redact: Collection[str]) -> _E:
    """The event with the named fields hashed; the same event when there are none. To be applied once.

    With `user`, the users in a config event are hashed too, and owner and note are left out: they would say
    whom the hash stands for. Raises ValueError for a field that is not in REDACTABLE.
    """
    if not redact:
        return event
    unknown = sorted(set(redact) - set(REDACTABLE))
    if unknown:
        raise ValueError(f"{', '.join(unknown)} cannot be redacted: {', '.join(REDACTABLE)} can")
    names: dict[str, Any] = {field: pseudonym(field, getattr(event, field)) for field in redact}
    hashed = replace(event, **names)
    if "user" in redact and isinstance(hashed, ConfigEvent):
        hashed.quotas = [
            replace(
                quota,
                user=pseudonym("user", quota.user),
                set_by=pseudonym("user", quota.set_by),
                owner="",
                note="",
            )
            for quota in hashed.quotas
        ]
    return hashed


class UserNames:
    """Names of users in events, and users by name; the same where users are not redacted.

    With `redact: [user]` a gateway finds a name's user by hashing the users that it knows: those with quotas of their
    own (given here, and to `meet` when quotas change) and those that have connected. State under a name of nobody it
    knows is kept under that name; when its user is met, `meet` returns that name, and the state is moved. Until then
    only the default quota can hold for it, since a user with a quota of its own is known from the start.

    A user is a principal's name, or NUL and a mechanism where nobody can be identified. The empty name stays as it is:
    it was that of everybody unidentified once.
    """

    __slots__ = ("_redacts", "_users")

    def __init__(self, redact: Collection[str] = (), users: Iterable[str] = ()) -> None:
        self._redacts = "user" in redact
        self._users: dict[str, str] = {}
        for user in users:
            self.meet(user)

    @property
    def redacts(self) -> bool:
        """True when events carry hashes instead of users."""
        return self._redacts

    def in_events(self, user: str) -> str:
        """Return the name of this user in events."""
        return pseudonym("user", user) if self._redacts and user else user

    def user_of(self, name: str) -> str:
        """Return the user of a name in an event: a known one, or the name itself."""
        return self._users.get(name, name)

    def meet(self, user: str) -> str | None:
        """Note that this user is known, if there is room.

        Return the name under which its state may have been kept so far; None when it was known.
        """
        if not self._redacts or not user:
            return None
        name = pseudonym("user", user)
        if name in self._users:
            return None
        if len(self._users) < MOST_MET:
            self._users[name] = user
        return name
