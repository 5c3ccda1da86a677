"""Values of the quota: clients, batches, decisions, verdicts, and the text of a refusal. PURE.

Must not contain rules. Values created for each frame are not frozen: a frozen slotted dataclass takes three times as
long to create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pidgate.client_faults import ORDINARY, ClientTraits
from pidgate.names import bounded
from pidgate.quota.entities import User, owner_of, resolve
from pidgate.quota.settings import Quotas
from pidgate.units import show_duration, show_milli

ProducerBatch = tuple[int, int, int, bytes, int]
"""producer_id, producer_epoch, base_sequence, topic (UTF-8 name, or a zero byte and the 16 bytes of its
id), partition
"""


def lowest_of_each_partition(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    """Return the first batch of each (id, partition): Produce v0-v2 may carry several; they pass together.

    Epochs do not matter. No client sends two epochs of one partition in one request, and if one does, the first batch
    decides. If both counted, the later one would end the entry that the earlier one has found.
    """
    if len(batches) == 1:
        return batches
    # The topic comes first: its hash is keyed, so a client cannot choose numbers that collide.
    first: dict[tuple[bytes, int, int], ProducerBatch] = {}
    for batch in batches:
        first.setdefault((batch[3], batch[4], batch[0]), batch)
    return list(first.values())


SHORTEST_THROTTLE_MS: Final = 100
"""A refusal costs the client a round trip; less would make it spin."""

MOST_IDS_PER_REQUEST: Final = 8
"""In one Produce: a client has one id, and two around the end of an epoch."""


def names_too_many_ids(batches: list[ProducerBatch], most: int = MOST_IDS_PER_REQUEST) -> bool:
    """Return whether a request names more distinct ids than a client has; such a request is closed in every mode."""
    return len(batches) > most and len({batch[0] for batch in batches}) > most


NO_IDS: Final[dict[int, int]] = {}
"""Of a connection that has no id yet. Never written to."""
MOST_CACHED_IDS: Final = 1_000
"""Of one connection. Real clients have one id, a transactional pool some dozens."""


class Reason(StrEnum):
    """Reason for an admission or a refusal, as in the decision event."""

    FIRST_SEEN = "first_seen"  # decided by the bucket, not in line
    REFRESH = "refresh"  # remembered from an earlier slice
    STICKY = "sticky"  # a batch before this one was refused and has not been forwarded
    ESTABLISHED = "established"  # first sight above sequence 0
    QUEUE = "queue"  # decided by its place among those that came back
    DEADLINE = "deadline"  # back before its throttle was over
    BLOCKED = "blocked"  # the user's rate is 0
    OBSERVE = "observe"
    EXEMPT = "exempt"
    INHERITED = "inherited"  # handed out by EndTxn v5+ to an id that is remembered
    FAIL_OPEN = "fail_open"  # the quota's code raised an error: admitted, or above the ceiling refused
    RESTORING = "restoring"  # passed before the state was restored: charged once it is
    GRACE = "grace"  # unseen during a cold start: admitted uncharged
    HELD = "held"  # neither: a mute holds a batch that begins a partition


KEEPS_ORDER: Final = frozenset({Reason.STICKY, Reason.ESTABLISHED})
"""Refusals that keep batches in order. They say nothing of the quota: the user may be below it."""


_ONLY_REFUSALS: Final = (Reason.DEADLINE, Reason.BLOCKED, *sorted(KEEPS_ORDER))
REFUSALS: Final = (Reason.FIRST_SEEN, Reason.QUEUE, Reason.FAIL_OPEN, *_ONLY_REFUSALS)
"""Reasons of refusals."""
_NO_ADMISSIONS: Final = (*_ONLY_REFUSALS, Reason.HELD)
ADMISSIONS: Final = tuple(reason for reason in Reason if reason not in _NO_ADMISSIONS)
"""Reasons of admissions."""


class Bound(StrEnum):
    """The bucket that refused an id."""

    USER = "user"
    STATES = "states"
    """The user's, of producer states."""
    CLUSTER = "cluster"


@dataclass(slots=True)
class Client:
    """One client connection. `admitted` is its cache: producer id -> time slice in which it was last looked
    up.

    Change `user` by `identify` only: another user's admissions must not count.
    """

    user: User
    client_id: str
    address: str
    connection_id: int
    admitted: dict[int, int] = field(default_factory=lambda: NO_IDS)
    traits: ClientTraits = ORDINARY

    def identify(self, user: User) -> None:
        """Set the connection's user (first authentication, or a new one)."""
        user = bounded(user)
        if user != self.user:
            self.user = user
            self.admitted = NO_IDS

    def remember(self, producer_id: int, slice_key: int) -> None:
        if not self.admitted or len(self.admitted) >= MOST_CACHED_IDS:
            self.admitted = {}
        self.admitted[producer_id] = slice_key


NO_PRODUCER_ID: Final = -1
"""RecordBatch.NO_PRODUCER_ID. Stands for the id that an InitProducerId asks for."""
IDS_OF_BLOCK: Final = 1_000
"""Ids that the controller hands out to a broker at a time (KIP-730: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE)."""


@dataclass(slots=True)
class Decision:
    """One producer id of a request and the decision about it: the `decision` event's own fields, and five more.

    `Admission` begins it from the request and the table of refused batches, the quota completes it.

    topic to base_sequence  of the id's first batch in the request
    tokens_before, tokens_after  in the bucket's units (window_ms x 1,000 make one token); None: no bucket was read
    waited_ms         since the id's first refusal
    would_refuse      forwarded, but enforcing would have refused it
    came_back         the same batch was refused before
    above_0           first sight above sequence 0: the id's earlier batches on a partition are unknown
    deadline_left_ms  left of the id's throttle, 0 or less when it is over
    enforced          an id like this is refused without a token
    bound             the bucket that refused the id
    """

    user: User
    producer_id: int
    epoch: int
    transactional: bool
    topic: bytes
    partition: int
    base_sequence: int
    request_partitions: int
    admitted: bool = True
    reason: Reason = Reason.OBSERVE
    tokens_before: int | None = None
    tokens_after: int | None = None
    throttle_time_ms: int = 0
    queue_position: int | None = None
    waited_ms: int | None = None
    would_refuse: bool = False
    came_back: bool = False
    above_0: bool = False
    deadline_left_ms: int = 0
    enforced: bool = False
    bound: Bound = Bound.USER

    def refuse(
        self,
        reason: Reason,
        throttle_time_ms: int,
        *,
        queue_position: int | None = None,
        bound: Bound = Bound.USER,
    ) -> None:
        self.admitted = False
        self.reason, self.throttle_time_ms = reason, throttle_time_ms
        self.queue_position, self.bound = queue_position, bound

    def undecided(self) -> Decision:
        """Return the same id as it was before anything was decided, for code that decides instead."""
        return Decision(
            self.user,
            self.producer_id,
            self.epoch,
            self.transactional,
            self.topic,
            self.partition,
            self.base_sequence,
            self.request_partitions,
            waited_ms=self.waited_ms,
        )


def batch_decision(
    user: User, batch: ProducerBatch, request_partitions: int, transactional: bool
) -> Decision:
    """Begin the decision about the id of a batch."""
    producer_id, epoch, base_sequence, topic, partition = batch
    return Decision(
        user, producer_id, epoch, transactional, topic, partition, base_sequence, request_partitions
    )


def init_decision(user: User, transactional: bool) -> Decision:
    """Begin the decision about an InitProducerId, with or without a transactional id."""
    return Decision(user, NO_PRODUCER_ID, -1, transactional, b"", -1, -1, 0)


def given_decision(user: User, producer_id: int, epoch: int) -> Decision:
    """Begin the decision about an id that a broker has given and no batch has used."""
    return Decision(user, producer_id, epoch, False, b"", -1, -1, 0)


@dataclass(slots=True)
class Forward:
    """Forward the request. `decisions` is empty if all ids were known."""

    decisions: tuple[Decision, ...] = ()


FORWARD: Final = Forward()
"""The verdict about known ids; never changed."""


@dataclass(slots=True)
class Refuse:
    """Answer the whole request with NOT_ENOUGH_REPLICAS (19) and this throttle; with acks=0 close the
    connection.

    `rearms_mute`: the channel is muted until now + throttle_time_ms, if that is later than its mute;
    otherwise its mute stays as it is. `rate_milli` (None: no bound was asked) and `window_ms` say which
    bound it was.
    """

    throttle_time_ms: int
    reason: Reason
    producer_id: int
    rearms_mute: bool
    user: User
    rate_milli: int | None
    window_ms: int
    bound: Bound = Bound.USER
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Close:
    """Close the connection without an answer. Closing is always safe: the client resends its unacknowledged batches."""

    reason: str
    producer_id: int


Verdict = Forward | Refuse | Close


@dataclass(slots=True)
class GaveUp:
    """An id that left its user's queue without having been admitted."""

    user: User
    producer_id: int
    waited_ms: int
    attempts: int


def refusal_of(
    quotas: Quotas, decisions: Sequence[Decision], account: User, *, rearms_mute: bool = True
) -> Refuse:
    """Return the refusal of a request for these refused ids: that with the longest throttle counts."""
    longest = decisions[0]
    for decision in decisions:
        if decision.throttle_time_ms > longest.throttle_time_ms:
            longest = decision
    quota = resolve(quotas, account)
    rate_milli = quota.rate_milli
    if longest.bound is Bound.CLUSTER:
        rate_milli = quotas.cluster_rate_milli
    elif longest.bound is Bound.STATES:
        rate_milli = quota.states_rate_milli
    elif longest.producer_id == NO_PRODUCER_ID and longest.transactional:
        rate_milli = quota.transactional_ids_rate_milli
    return Refuse(
        longest.throttle_time_ms,
        longest.reason,
        longest.producer_id,
        rearms_mute,
        account,
        rate_milli,
        quotas.producer_ids.window_ms,
        longest.bound,
        tuple(decisions),
    )


def error_message(refusal: Refuse, help_url: str = "") -> str:
    """Return one line: the cause, the time of the retry, and a link."""
    more = f"; see {help_url}" if help_url else ""
    return f"{_what_happened(refusal)}; retry in {refusal.throttle_time_ms} ms{more}"


def _what_happened(refusal: Refuse) -> str:
    producer_id, (user, client_id) = refusal.producer_id, owner_of(refusal.user)
    if refusal.reason is Reason.STICKY:
        return f"an earlier batch of producer id {producer_id} was refused and has to be sent first"
    if refusal.reason is Reason.ESTABLISHED:
        return f"producer id {producer_id} of user {user} is not known here and starts above sequence 0"
    if refusal.reason is Reason.FAIL_OPEN:
        return f"the gateway could not decide about producer id {producer_id} of user {user}"
    if refusal.reason is Reason.BLOCKED:
        return f"user {user} may not bring new producer ids: producer id {producer_id} is new"
    owner = f"of user {user}" if client_id is None else f"of client id {client_id} of user {user}"
    if refusal.bound is Bound.CLUSTER:
        owner = "of the cluster"
    rate = f"{show_milli(refusal.rate_milli or 0)} per {show_duration(refusal.window_ms)}"
    if refusal.bound is Bound.STATES:
        return (
            f"producer_states_rate quota of user {user} exceeded ({rate}): the ids in use have written to many "
            f"partitions, and producer id {producer_id} is new"
        )
    return f"producer_ids_rate quota {owner} exceeded ({rate}): producer id {producer_id} is new"
