"""Short hashes in place of users, client ids and addresses that must not appear in the topic. PURE.

The hash has no key, so that every gateway and every restart gives the same person the same pseudonym. This
lets gateways share a quota without naming its user. A pseudonym is not a secret: candidate names can be
hashed for comparison.
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

_HASH_BYTES = 8  # among a million names two collide with a probability of 3 in 100 million

MOST_MET: Final = 100_000
"""Users found by their hashes. The state of further users stays under the hash until they connect again."""

_E = TypeVar("_E", bound=Event)


def pseudonym(field: str, name: str) -> str:
    """Return the hash of this name: `h:` and 16 hex digits. An empty name stays empty.

    The field is hashed too (at most 16 bytes), so that a user and a client id of the same name have different
    hashes.
    """
    if not name:
        return ""
    return f"h:{hash64(field, name):0{2 * _HASH_BYTES}x}"


def hash64(field: str, name: str) -> int:
    """Return the number written by `pseudonym` in hexadecimal. A name and its bounded form have the same."""
    return _hashed(field, bounded(name))


@lru_cache(maxsize=10_000)
def _hashed(field: str, name: str) -> int:
    data = name.encode("utf-8", "replace")
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES, person=field.encode()).digest(), "big")


def redacted(event: _E, redact: Collection[str]) -> _E:
    """Return the event with the named fields hashed, or the same event without any. Apply it once.

    With `user`, users in a config event are hashed too, and owner and note are removed, as they would
    identify the user. Raises ValueError for a field that is not in REDACTABLE.
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
    """Maps users to their names in events and back. The two are equal where users are not redacted.

    With `redact: [user]` a gateway finds a name's user by hashing its known users: those with quotas of their
    own (given here, and to `meet` when quotas change) and those that have connected. State under a name
    without a known user is kept under that name. When its user is met, `meet` returns that name, and the
    state is moved. Until then only the default quota can apply to it, since users with their own quota are
    known from the start.

    A user is a principal's name, or NUL and a mechanism for unidentified users. The empty name stays as it
    is: it was once the name of all unidentified users.
    """

    __slots__ = ("_redacts", "_users")

    def __init__(self, redact: Collection[str] = (), users: Iterable[str] = ()) -> None:
        self._redacts = "user" in redact
        self._users: dict[str, str] = {}
        for user in users:
            self.meet(user)

    @property
    def redacts(self) -> bool:
        """Return whether events carry hashes instead of users."""
        return self._redacts

    def in_events(self, user: str) -> str:
        return pseudonym("user", user) if self._redacts and user else user

    def user_of(self, name: str) -> str:
        """Return the user of a name in an event: a known one, or the name itself."""
        return self._users.get(name, name)

    def meet(self, user: str) -> str | None:
        """Record that this user is known, if there is room.

        Returns the name under which its state may have been kept so far. None: it was known already.
        """
        if not self._redacts or not user:
            return None
        name = pseudonym("user", user)
        if name in self._users:
            return None
        if len(self._users) < MOST_MET:
            self._users[name] = user
        return name
