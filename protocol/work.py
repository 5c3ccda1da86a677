"""The most work that one frame may cause before others have their turn. PURE.

A callback of the event loop works for 10 ms of its thread's CPU at most: everybody else waits for so long. Three rules
keep that, and tests count the steps of the dearest frames that are still taken (tests/support/steps.py):

* A request may count so many elements, below; the numbers in a frame are compared with them before anything is made of
  it. They are above what Kafka's own clients send within their max.request.size of 1 MiB.
* An answer may be as long as the cluster is large. Where every element of it has to be looked at, that is a Walk, which
  goes on for ELEMENTS_PER_TURN and then lets the others go first.
* Of what one read brought, MOST_FRAMES_PER_TURN are handled; the rest waits for the next turn.

Memory: what is made of a request is at most six times its size and 64 KiB: a refusal is the largest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MOST_PARTITIONS: Final = 3_000
"""Topics and partitions of one Produce, and batches of it. A producer sends a broker one batch at most for each
partition that it leads, and a broker is advised to hold 4,000 partitions, replicas included."""

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

MOST_FRAMES_PER_TURN: Final = 512
"""A read of 256 KiB could hold 20,000."""

ELEMENTS_PER_TURN: Final = 500
"""Of a Walk."""


class Walk:
    """Work on one answer that is done in turns. `steps` yields after each element, and its last value is the result:
    the frame that takes the answer's place.
    """

    __slots__ = ("_steps", "result")

    def __init__(self, steps: Iterator[bytes | None]) -> None:
        self._steps = steps
        self.result: bytes | None = None

    def go_on(self) -> bool:
        """Work for one turn; return whether there is more to do. Raises what the steps raise."""
        for _ in range(ELEMENTS_PER_TURN):
            try:
                self.result = next(self._steps)
            except StopIteration:
                return False
        return True

    def finish(self) -> bytes | None:
        """Do it all at once, for those who are in nobody's way; return the result."""
        while self.go_on():
            pass
        return self.result
