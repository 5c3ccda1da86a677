"""Input and output of the quota: sessions, batches, verdicts, decision records. PURE.

Unfrozen where they are made for each frame: creating a frozen slotted dataclass costs three times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pidgate.names import bounded
from pidgate.quota.entities import User

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
class Session:
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
