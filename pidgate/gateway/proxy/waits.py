"""Why the gateway keeps a client waiting, since when and until when. PURE.

A wait is noted where it is decided. `pidgate explain` and the status page read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pidgate.quota.decisions import KEEPS_ORDER, NO_PRODUCER_ID, Bound, Reason, Refuse
from pidgate.quota.entities import owner_of


class Why(StrEnum):
    """Reason of a wait. The sentences are in gateway/present/wait_words.py."""

    USER_RATE = "user_rate"
    CLIENT_ID_RATE = "client_id_rate"
    STATES_RATE = "states_rate"
    CLUSTER_RATE = "cluster_rate"
    BLOCKED = "blocked"
    ORDER = "order"
    UNDECIDED = "undecided"
    NEW_PRODUCER = "new_producer"
    TRANSACTIONAL_IDS = "transactional_ids"
    PRODUCED_BYTES = "produced_bytes"
    FETCHED_BYTES = "fetched_bytes"
    CONNECTION_RATE = "connection_rate"
    RESTORING = "restoring"
    OTHER_GATEWAY = "other_gateway"
    LOGIN = "login"
    ANSWER = "answer"
    QUOTA_CHANGE = "quota_change"
    MEMORY = "memory"
    CONNECTING = "connecting"
    BROKER_BUSY = "broker_busy"
    IN_FLIGHT = "in_flight"
    NOT_READING = "not_reading"
    TURN = "turn"


BY_ID_QUOTA: Final = frozenset(
    (Why.USER_RATE, Why.CLIENT_ID_RATE, Why.STATES_RATE, Why.CLUSTER_RATE, Why.BLOCKED, Why.ORDER)
)
"""Waits with a batch that the quota of new ids refused."""

SAME_WAIT_MS: Final = 2_000
"""A client comes back within a second or two of its throttle: a wait for the same reason goes on."""


class Wait:
    """The latest wait of a connection. `producer_id`: the refused id, or NO_PRODUCER_ID."""

    __slots__ = ("producer_id", "since_ms", "until_ms", "why")

    def __init__(self, why: Why, since_ms: int, until_ms: int, producer_id: int = NO_PRODUCER_ID) -> None:
        self.why = why
        self.since_ms = since_ms
        self.until_ms = until_ms
        self.producer_id = producer_id

    def goes_on(self, why: Why, producer_id: int, now_ms: int) -> bool:
        """Return whether a wait that begins now continues this one."""
        is_same = why is self.why and producer_id == self.producer_id
        return is_same and now_ms - self.until_ms <= SAME_WAIT_MS


OF_BOUND: Final = {Bound.CLUSTER: Why.CLUSTER_RATE, Bound.STATES: Why.STATES_RATE}
"""Waits for a bucket other than that of the user's or the client id's new ids."""


def why_refused(refusal: Refuse) -> Why:
    """Return the reason of the wait that a refusal begins."""
    reason = refusal.reason
    if reason in KEEPS_ORDER:
        return Why.ORDER
    if reason is Reason.FAIL_OPEN:
        return Why.UNDECIDED
    if reason is Reason.BLOCKED:
        return Why.BLOCKED
    if (why := OF_BOUND.get(refusal.bound)) is not None:
        return why
    if refusal.producer_id == NO_PRODUCER_ID:
        is_transactional = any(decision.transactional for decision in refusal.decisions)
        return Why.TRANSACTIONAL_IDS if is_transactional else Why.NEW_PRODUCER
    return Why.USER_RATE if owner_of(refusal.user)[1] is None else Why.CLIENT_ID_RATE
