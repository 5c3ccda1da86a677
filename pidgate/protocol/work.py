"""The most work that one frame may cause before others have their turn. PURE.

A callback of the event loop works for 10 ms of its thread's CPU at most: everybody else waits for so long. Three rules
keep that, and tests count the steps of the dearest frames that are still taken (tests/support/steps.py):

* A request may count so many elements, below; the numbers in a frame are compared with them before anything is made of
  it. They are above what Kafka's own clients send within their max.request.size of 1 MiB.
* An answer may be as long as the cluster is large. Where every element of it has to be looked at, or all its bytes are
  hashed or searched, that is a Walk, which goes on for STEPS_PER_TURN and then lets the others go first.
* Of what one read brought, or a mute held back, MOST_FRAMES_PER_TURN are handled, fewer where they are read, bring new
  producer ids or have many elements that are looked at (JUDGED_PER_TURN); the rest waits for the next turn. So do
  messages between a worker and the state owner (gateway/process/message_reader.py).

Memory: what is made of a request is at most MEMORY_FACTOR times its size and MEMORY_SLACK_BYTES.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

MOST_PARTITIONS: Final = 3_000
"""Topics and partitions of one Produce, and batches of it. A producer sends a broker one batch at most for each
partition that it leads, and a broker is advised to hold 4,000 partitions, replicas included."""

TAGS_BYTES_FOR_ONE: Final = 4
"""Of tagged fields that nobody knows here, for one element of a bound: 32 empty ones have 65 bytes, and take 30 us."""

MOST_OLD_MESSAGES: Final = 20_000
"""Messages of magic 0 and 1 in one Produce, which has an entry for each: 1 MiB of those with 26 bytes of content, as
much as their heads have."""

MOST_MESSAGES: Final = 100
"""Partitions of a refusal that have its sentence; the others have its code. Else 0.6 MB would be answered with 27."""

MOST_TOPIC_NAME_BYTES: Final = 249
"""Kafka's own limit: org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH."""

MOST_ELEMENTS: Final = 1_500
"""Elements of all arrays in a request that is read field by field: 500 users of an AlterClientQuotas, with an entity
and a value each. They take some 6 us each."""

MOST_DECODED: Final = 500
"""The same where the codec makes objects of them, and the refusal repeats them."""

MOST_SEARCHED_BYTES: Final = 4 * 1024 * 1024
"""Of a request that is searched for a gateway topic: twice what an OffsetCommit for 20,000 partitions has."""

MOST_BROKERS: Final = 2_000
"""Of a Metadata answer: a cluster has some hundred. They stand before the topics, and are passed over at once."""

MOST_ENDPOINTS: Final = 1_000
"""Brokers at the end of an answer to a Fetch: those that lead now what was asked of another. 4 us each."""

MOST_API_RANGES: Final = 2_000
"""Of an ApiVersions answer: Kafka 4.4 has fewer than a hundred."""

MOST_FRAMES_PER_TURN: Final = 512
"""A read of 256 KiB could hold 20,000."""

JUDGED_PER_TURN: Final = 4_800
"""Batches of producers judged in a turn: 2 us each. What else is dear in a request counts for as many batches as take
that long, by the constants below, which are of the dearest request of each kind: requests without a batch end the turn
as well."""

READ_FOR: Final = 32
"""A request, unless it is a Produce like the one before it: its head, and the end of its body, may have as many tagged
fields as are read. Clients have five requests in flight."""

DECIDED_FOR: Final = 32
"""A decision about an id, and the event that says so, take as long as judging so many batches of known ones."""

JUDGED_FOR_PLACE: Final = 1
"""Batches judged for each topic, partition and old message of a Produce: some have no batch in them, but tagged fields,
which are among them (TAGS_BYTES_FOR_ONE) and take as long."""

ANSWERED_BYTES_FOR_ONE: Final = 32
"""Of an answer of our own: a refusal of a Produce has 14 to 33 for each partition."""

QUOTAS_FOR_BYTE: Final = 1
"""Batches judged for each byte of an AlterClientQuotas or a DescribeClientQuotas: an entry without content has 3."""

NAMED_FOR_BYTE: Final = 5
"""The same for a request in which a gateway topic's name stands: it is decoded, and the refusal repeats it, which takes
8 us for each name of a DeleteTopics, of 2 bytes. More than it takes: one of 1 KiB has a turn of its own."""

MEMORY_FACTOR: Final = 6
"""Bytes that are made of each byte of a request, while it is decided about."""

MEMORY_SLACK_BYTES: Final = 1024 * 1024
"""And so many for each request, however small: objects of MOST_ELEMENTS, which have 30 times their bytes and more."""

STEPS_PER_TURN: Final = 500
"""Of a Walk: 20 us each."""

BYTES_PER_STEP: Final = 8 * 1024
"""Of a Walk that searches: 2 us for each name."""

Steps = Generator[None, None, bytes | None]
"""Work on one answer, which yields after each element. Returns the frame that takes the answer's place, framed; None:
as it came.
"""

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Do work in steps without giving way, for those who are in nobody's way; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Walk:
    """Steps that are taken in turns."""

    __slots__ = ("_steps", "result")

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.result: bytes | None = None

    def go_on(self) -> bool:
        """Work for one turn; return whether there is more to do. Raises what the steps raise."""
        steps = self._steps
        try:
            for _ in range(STEPS_PER_TURN):
                next(steps)
        except StopIteration as end:
            self.result = end.value
            return False
        return True

    def finish(self) -> bytes | None:
        """Do it all at once, for those who are in nobody's way; return the result."""
        self.result = at_once(self._steps)
        return self.result
