"""Values of the quota: clients, batches, questions, decisions, verdicts, and the text of a refusal. PURE.

Must not know how anything is decided. Values that are made for each frame are not frozen: a frozen slotted dataclass
takes three times as long to create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pidgate.names import bounded
from pidgate.quota.entities import User, resolve
from pidgate.quota.settings import Quotas
from pidgate.units import show_duration, show_milli

ProducerBatch = tuple[int, int, int, bytes, int]
"""producer_id, producer_epoch, base_sequence, topic (UTF-8 name, or a zero byte and the 16 bytes of its
id), partition
"""


def lowest_of_each_partition(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    """Return the first batch of each (id, partition): Produce v0-v2 may carry several; they pass together.

    Of whatever epoch: no client sends one partition two epochs at once, and for one that does the first decides. Were
    both looked at, the later one would end the entry that the earlier one has found.
    """
    if len(batches) == 1:
        return batches
    # The topic first: its hash is keyed, and after it a client cannot choose numbers that collide.
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
    GRACE = "grace"  # unseen during a cold start: let in uncharged


class Bound(StrEnum):
    """The bucket that stood in the way."""

    USER = "user"
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
    admitted: dict[int, int] = field(default_factory=dict)

    def identify(self, user: User) -> None:
        """Set the connection's user (first authentication, or a new one)."""
        user = bounded(user)
        if user != self.user:
            self.user = user
            self.admitted.clear()

    def remember(self, producer_id: int, slice_key: int) -> None:
        if len(self.admitted) >= MOST_CACHED_IDS:
            self.admitted.clear()
        self.admitted[producer_id] = slice_key


@dataclass(slots=True)
class Decision:
    """Decision about one id of one request, and its grounds: a `decision` event's own fields.

    Tokens are in the bucket's units (window_ms x 1,000 make one token), None where no bucket was asked. `waited_ms`:
    since the id's first refusal. `would_refuse`: forwarded, but enforcing would have refused it.
    """

    user: User
    producer_id: int
    epoch: int
    transactional: bool
    topic: bytes
    partition: int
    base_sequence: int
    request_partitions: int
    admitted: bool
    reason: Reason
    tokens_before: int | None = None
    tokens_after: int | None = None
    throttle_time_ms: int = 0
    queue_position: int | None = None
    waited_ms: int | None = None
    would_refuse: bool = False

    @property
    def decision(self) -> str:
        return "admit" if self.admitted else "refuse"


@dataclass(slots=True)
class Forward:
    """Hand the request on. `decisions` is empty when everything was known."""

    decisions: tuple[Decision, ...] = ()


FORWARD: Final = Forward()
"""The answer to all that is known; never changed."""


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
    """Close the connection without an answer. Closing is always safe: the client resends what is
    unacknowledged.
    """

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


def local_decision(
    user: User,
    cause: ProducerBatch,
    request_partitions: int,
    transactional: bool,
    reason: Reason,
    throttle_time_ms: int,
) -> Decision:
    """Return the decision that refuses `cause` without asking the state."""
    producer_id, epoch, base_sequence, topic, partition = cause
    return Decision(
        user,
        producer_id,
        epoch,
        transactional,
        topic,
        partition,
        base_sequence,
        request_partitions,
        False,
        reason,
        throttle_time_ms=throttle_time_ms,
    )


def refusal_with(quotas: Quotas, decision: Decision, decisions: tuple[Decision, ...]) -> Refuse:
    """Return the refusal of a request for `decision`, one of `decisions`."""
    return Refuse(
        decision.throttle_time_ms,
        decision.reason,
        decision.producer_id,
        True,
        decision.user,
        resolve(quotas, decision.user).rate_milli,
        quotas.producer_ids.window_ms,
        decisions=decisions,
    )


def local_refusal(quotas: Quotas, decision: Decision) -> Refuse:
    """Return the refusal of a request for a decision that no state was asked about."""
    refusal = refusal_with(quotas, decision, (decision,))
    refusal.rearms_mute = decision.reason is Reason.ESTABLISHED
    return refusal


def refusal_of(quotas: Quotas, answer: Answer) -> Refuse:
    """Return the refusal for the state's answer: that with the longest throttle counts."""
    longest = max(answer.decisions, key=lambda decision: decision.throttle_time_ms)
    refusal = refusal_with(quotas, longest, answer.decisions)
    refusal.bound = answer.bound
    if longest.producer_id == NO_PRODUCER_ID and longest.transactional:
        refusal.rate_milli = resolve(quotas, longest.user).transactional_ids_rate_milli
    if answer.bound is Bound.CLUSTER:
        refusal.rate_milli = quotas.cluster_rate_milli
    return refusal


def error_message(refusal: Refuse, help_url: str = "") -> str:
    """Return one line with what happened, what follows, and where to read on."""
    more = f"; see {help_url}" if help_url else ""
    return f"{_what_happened(refusal)}; retry in {refusal.throttle_time_ms} ms{more}"


def _what_happened(refusal: Refuse) -> str:
    producer_id = refusal.producer_id
    if refusal.reason is Reason.STICKY:
        return f"an earlier batch of producer id {producer_id} was refused and has to be sent first"
    if refusal.reason is Reason.ESTABLISHED:
        return (
            f"producer id {producer_id} of user {refusal.user} is not known here and starts above sequence 0"
        )
    if refusal.reason is Reason.FAIL_OPEN:
        return f"the gateway could not decide about producer id {producer_id} of user {refusal.user}"
    if refusal.reason is Reason.BLOCKED:
        return f"user {refusal.user} may not bring new producer ids: producer id {producer_id} is new"
    whose = "of the cluster" if refusal.bound is Bound.CLUSTER else f"of user {refusal.user}"
    rate = f"{show_milli(refusal.rate_milli or 0)} per {show_duration(refusal.window_ms)}"
    return f"producer_ids_rate quota {whose} exceeded ({rate}): producer id {producer_id} is new"


NO_PRODUCER_ID: Final = -1
"""RecordBatch.NO_PRODUCER_ID."""


@dataclass(slots=True)
class AskedId:
    """One producer id of a request, and what the table of refused batches knows of it.

    `came_back`: the same batch was refused before; `first_sight_above_0`: it arrives above sequence 0 on a partition
    where nothing is known of the id; `deadline_ms`: end of its latest throttle; `first_refused_ms`: time of
    its first refusal.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    topic: bytes
    partition: int
    came_back: bool = False
    first_sight_above_0: bool = False
    deadline_ms: int = 0
    first_refused_ms: int | None = None


@dataclass(slots=True)
class Question:
    """The ids of one request; without ids, an InitProducerId that would give the user a new one, or one that names a
    transactional id: then 64 bits of its hash are given.
    """

    user: User
    address: str
    client_id: str
    transactional: bool
    request_partitions: int
    ids: Sequence[AskedId]
    transactional_id: int | None = None


@dataclass(slots=True)
class Answer:
    """Not refused: forward the request. Refused: `decisions` holds the refusals, and no token was spent.

    For a question without ids: at most one decision, about NO_PRODUCER_ID.
    """

    refused: bool
    decisions: tuple[Decision, ...]
    bound: Bound = Bound.USER


def new_id_question(
    user: User, address: str, client_id: str, transactional_id: int | None = None
) -> Question:
    """Ask whether a broker may give this user a new id, or one for this transactional id (InitProducerId)."""
    of_transaction = transactional_id is not None
    return Question(user, address, client_id, of_transaction, 0, (), transactional_id)


def new_id_decision(
    question: Question, reason: Reason, throttle_time_ms: int, tokens: int | None, *, enforced: bool
) -> Decision:
    """Return the decision that a new id would be one too many: refused, or only counted."""
    return Decision(
        question.user,
        NO_PRODUCER_ID,
        epoch=-1,
        transactional=question.transactional,
        topic=b"",
        partition=-1,
        base_sequence=-1,
        request_partitions=0,
        admitted=not enforced,
        reason=reason,
        tokens_before=tokens,
        tokens_after=tokens,
        throttle_time_ms=throttle_time_ms if enforced else 0,
        would_refuse=not enforced,
    )


def decision_of(question: Question, asked: AskedId, admitted: bool, reason: Reason, now_ms: int) -> Decision:
    """Return the decision about one id of a question, still without tokens and throttle."""
    first_ms = asked.first_refused_ms
    return Decision(
        question.user,
        asked.producer_id,
        asked.epoch,
        question.transactional,
        asked.topic,
        asked.partition,
        asked.base_sequence,
        question.request_partitions,
        admitted,
        reason,
        waited_ms=None if first_ms is None else now_ms - first_ms,
    )
