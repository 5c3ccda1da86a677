"""Reader of what one event admits: a producer id or a transactional id. PURE."""

from __future__ import annotations

from collections.abc import Callable

from pidgate.events.definitions import TransactionalIdEvent
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.gateway.state.decision_scan import scan, type_of
from pidgate.quota.entities import User
from pidgate.quota.state import PassedId


def admitted_in(value: bytes, user_of: Callable[[str], User]) -> PassedId | None:
    """Return the id that an event admits; None where it admits none, or cannot be read.

    `user_of`: the user of a name in an event (events.UserNames).
    """
    try:
        decision = scan(value)
        if decision is not None:
            _, _, _, name, producer_id, transactional, admitted, *_ = decision
            return PassedId(user_of(name), producer_id, transactional) if admitted else None
        event = from_json(value) if type_of(value) == TransactionalIdEvent.type else None
    except EventUnreadable:
        return None
    hashed = hash_in(event) if isinstance(event, TransactionalIdEvent) else None
    if event is None or hashed is None:
        return None
    return PassedId(user_of(event.user), hashed, True, is_transactional_id=True)


def hash_in(event: TransactionalIdEvent) -> int | None:
    """Return the hash of a transactional id; None: a newer version's, by which the id is new when it comes."""
    _, _, digits = event.transactional_id_hash.partition(":")
    try:
        hashed = int(digits, 16)
    except ValueError:
        return None
    return hashed if 0 <= hashed < 1 << 64 else None
