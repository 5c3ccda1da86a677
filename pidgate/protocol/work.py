"""Limits on the work caused by one frame or one turn of the event loop. PURE.

A callback of the event loop uses at most 10 ms of CPU, because every other connection waits for it. Tests
count the steps of the most expensive accepted frames (tests/support/steps.py). Three rules keep the bound:

* The number of elements in a request is limited (below) and checked before anything is allocated. The limits
  are above what Kafka's own clients send within their max.request.size of 1 MiB.
* A response may be as long as the cluster is large. If every element is inspected, or all bytes are hashed or
  searched, the work is a Walk, which runs for STEPS_PER_TURN and then yields.
* Reads, frames and answers are counted for the account of their user (JUDGED_PER_TURN). Beyond that the rest waits
  for the account's next turn (gateway/proxy/turns.py).

Memory: a request allocates at most MEMORY_FACTOR times its size plus MEMORY_SLACK_BYTES.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

MOST_PARTITIONS: Final = 3_000
"""Topics and partitions, and batches, of one Produce.

A producer sends a broker at most one batch per partition that it leads, and a broker should hold at most
4,000 partitions, replicas included.
"""

TAGS_BYTES_FOR_ONE: Final = 4
"""Bytes of unknown tagged fields that count as one element: 32 empty fields have 65 bytes and take 30 us."""

MOST_OLD_MESSAGES: Final = 20_000
"""Messages of magic 0 and 1 in one Produce, each with its own entry: 1 MiB of messages with 26 bytes of
content and 26 of head.
"""

MOST_MESSAGES: Final = 100
"""Partitions of a refusal with an error message; the others have only the code.

Otherwise 0.6 MB of request would cause 27 MB of response.
"""

MOST_TOPIC_NAME_BYTES: Final = 249
"""Kafka's own limit: org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH."""

MOST_ELEMENTS: Final = 1_500
"""Elements of all arrays in a request parsed field by field: 500 users of an AlterClientQuotas with an entity
and a value each. About 6 us per element.
"""

MOST_DECODED: Final = 500
"""The same limit for requests decoded by the codec and repeated in a refusal."""

MOST_SEARCHED_BYTES: Final = 4 * 1024 * 1024
"""Longest request searched for a gateway topic: twice an OffsetCommit for 20,000 partitions."""

MOST_BROKERS: Final = 2_000
"""Brokers in a Metadata response; clusters have some hundred.

They precede the topics and are walked in one turn.
"""

MOST_ENDPOINTS: Final = 1_000
"""Node endpoints at the end of a Fetch response, the new leaders of requested partitions. 4 us each."""

MOST_API_RANGES: Final = 2_000
"""Ranges in an ApiVersions response; Kafka 4.4 has fewer than a hundred."""

JUDGED_PER_TURN: Final = 4_800
"""Batches judged per turn of one account, 2 us each.

Everything else counts as the number of batches that take the same time, by the constants below, measured for the most
expensive request of each kind.
"""

ARRIVED_FOR: Final = 5
"""Cost of a read from a socket, and of the write of its bytes."""

ARRIVED_BYTES_FOR_ONE: Final = 8 * 1024
"""Bytes of a read that cost as much as one batch."""

REPEATED_FOR: Final = 4
"""Cost of a Produce that repeats the previous one, besides its batches, and of an answer that passes unread."""

READ_FOR: Final = 32
"""Cost of a request, and of an answer that is read whole, except a Produce that repeats the previous one.

Its head and the end of its body may have the maximum of tagged fields. Clients have five requests in flight.
"""

DECIDED_FOR: Final = 32
"""Cost of a decision about an id and its event, in batches of known ids."""

JUDGED_FOR_PLACE: Final = 1
"""Cost of each topic, partition and old message of a Produce.

Some hold tagged fields (TAGS_BYTES_FOR_ONE) instead of a batch and take as long.
"""

ANSWER_BYTES_FOR_ONE: Final = 8
"""Bytes of a broker's answer that cost as much as one batch, if it is read whole; a range of ApiVersions has 7."""

WALKED_FOR: Final = 500
"""Cost of STEPS_PER_TURN units of a Fetch answer, which is walked as it passes."""

ANSWERED_BYTES_FOR_ONE: Final = 32
"""Bytes of the gateway's own response that count as one batch; a Produce refusal has 14 to 33 per partition.
"""

QUOTAS_FOR_BYTE: Final = 1
"""Cost of each byte of an AlterClientQuotas or a DescribeClientQuotas; an empty entry has 3 bytes."""

NAMED_FOR_BYTE: Final = 5
"""Cost of each byte of a request that contains a gateway topic's name.

It is decoded and repeated in the refusal: 8 us for each 2 byte name of a DeleteTopics. Deliberately high: a
request of 1 KiB takes a turn of its own.
"""

MEMORY_FACTOR: Final = 6
"""Bytes allocated per request byte until it is decided."""

MEMORY_SLACK_BYTES: Final = 1024 * 1024
"""Bytes allocated per request regardless of size: MOST_ELEMENTS objects have 30 times their wire size and
more.
"""

STEPS_PER_TURN: Final = 500
"""Steps of a Walk per turn, 20 us each."""

BYTES_PER_STEP: Final = 8 * 1024
"""Bytes per step of a Walk that searches: 2 us per name."""

Steps = Generator[None, None, bytes | None]
"""Work on one response, which yields after each element.

Returns the replacement, framed, or None if unchanged.
"""

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Run steps without yielding, outside the event loop's traffic; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Walk:
    """Steps that run in turns."""

    __slots__ = ("_steps", "result")

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.result: bytes | None = None

    def go_on(self) -> bool:
        """Work for one turn; return whether more is left. Raises as the steps do."""
        steps = self._steps
        try:
            for _ in range(STEPS_PER_TURN):
                next(steps)
        except StopIteration as end:
            self.result = end.value
            return False
        return True

    def finish(self) -> bytes | None:
        """Run all remaining steps, outside the event loop's traffic; return the result."""
        self.result = at_once(self._steps)
        return self.result
