"""Events that wait to be written: bounded, in order, one queue for each partition."""

import pytest

from pidgate.gateway.state import record_accumulator
from pidgate.gateway.state.record_accumulator import (
    LARGEST_EVENT_BYTES,
    MOST_BYTES,
    MOST_EVENTS,
    Held,
    RecordAccumulator,
)
from tests.support.rules import rule


def by_first_byte(key: bytes, partitions: int) -> int:
    return key[0] % partitions


def shaped(partitions: int = 3) -> RecordAccumulator:
    made = RecordAccumulator(by_first_byte)
    made.shape(partitions)
    return made


def waiting(made: RecordAccumulator) -> dict[int, list[bytes]]:
    return {queue.partition: [event.value for event in queue.events] for queue in made.ready()}


def test_events_are_dealt_out_by_key_and_keep_their_order() -> None:
    made = shaped()
    for number in range(4):
        made.put("a", b"a%d" % number)
        made.put("b", b"b%d" % number)
    assert waiting(made) == {97 % 3: [b"a0", b"a1", b"a2", b"a3"], 98 % 3: [b"b0", b"b1", b"b2", b"b3"]}
    assert (made.events, made.size_bytes, made.dropped) == (8, 16, 0)


def test_an_event_leaves_only_when_it_is_done_with() -> None:
    made = shaped()
    for value in (b"1", b"22", b"333"):
        made.put("a", value)
    (queue,) = made.ready()
    queue.is_busy = True
    assert [event.value for event in queue.first()] == [b"1", b"22", b"333"]
    assert made.ready() == []
    made.leave(queue, 2)
    queue.is_busy = False
    assert waiting(made) == {1: [b"333"]}
    assert (made.events, made.size_bytes) == (1, 3)


@rule("Publishing an event never blocks a request; a dropped event leaves a gap in `seq`.", "fleet")
def test_the_newest_is_dropped_when_a_user_has_too_many() -> None:
    made, most = shaped(), MOST_EVENTS // 2
    for number in range(most + 3):
        made.put("a", b"%d" % number)
    (queue,) = made.ready()
    assert (len(queue.events), queue.events[-1].value) == (most, b"%d" % (most - 1))
    assert (made.dropped, made.last_drop) == (3, "the buffer is full, or its user has no room in it")
    made.leave(queue, 1)
    made.put("a", b"again")
    assert made.dropped == 3


def test_all_users_together_fill_the_buffer_and_no_more() -> None:
    made = shaped()
    for number in range(MOST_EVENTS + 3):
        made.put(f"user-{number % 1_000}", b"")
    # Each holds what it leaves free: a thousand users hold 1,000 of 1,001 parts.
    assert made.events == MOST_EVENTS + 3 - made.dropped
    assert MOST_EVENTS - 50 <= made.events < MOST_EVENTS
    for queue in made.ready():
        made.leave(queue, len(queue.events))
    assert (made.events, made.size_bytes, made._held) == (0, 0, {})


def test_bytes_are_bounded_too() -> None:
    made = shaped()
    value = bytes(800_000)
    fit = MOST_BYTES // len(value) // 2
    for key in ("a", "b", "b", "c", "d"):
        for _ in range(fit):
            made.put(key, value)
    assert made.size_bytes <= MOST_BYTES
    assert made.dropped > 0


class _OneQueueForAll(RecordAccumulator):
    def _has_room(self, held: Held, size: int) -> bool:
        """Mutant: the first to come takes what there is."""
        return self.events < MOST_EVENTS and self.size_bytes + size <= MOST_BYTES


@rule("A user's flood of events drops no event of another user.", "fleet")
@pytest.mark.parametrize(("kind", "arrive"), [(RecordAccumulator, 27), (_OneQueueForAll, 0)])
def test_a_flood_of_one_user_leaves_room_for_the_events_of_another(
    kind: type[RecordAccumulator], arrive: int
) -> None:
    """An observed user makes 114,000 events more than are written; another has 27 ids admitted."""
    made = kind(by_first_byte)
    made.shape(3)
    for number in range(MOST_EVENTS + 114_000):
        made.put("flooder", b"%d" % number)
    assert made.dropped >= 114_000
    dropped = made.dropped
    for number in range(27):
        made.put("healthy", b"%d" % number)
    assert made.dropped - dropped == 27 - arrive


def test_three_floods_leave_room_for_the_next_user() -> None:
    made = shaped()
    for flooder in ("a", "b", "c"):
        for _ in range(MOST_EVENTS):
            made.put(flooder, b"")
    dropped = made.dropped
    for _ in range(3_000):
        made.put("d", b"")
    assert made.dropped == dropped


def test_an_event_that_no_broker_would_take_is_dropped_alone() -> None:
    made = shaped()
    made.put("a", bytes(LARGEST_EVENT_BYTES + 1))
    made.put("a", bytes(LARGEST_EVENT_BYTES))
    assert (made.events, made.dropped, made.last_drop) == (1, 1, "the event is too large")


def test_other_partitions_deal_out_what_waits_anew_in_order() -> None:
    made = shaped(1)
    for number in range(3):
        made.put("a", b"a%d" % number)
        made.put("b", b"b%d" % number)
    (queue,) = made.ready()
    queue.is_busy = True
    made.put("a", b"a3")
    made.shape(2)
    assert waiting(made) == {1: [b"a0", b"a1", b"a2", b"a3"], 0: [b"b0", b"b1", b"b2"]}
    assert made.events == 7


def test_the_same_partitions_free_what_a_lost_session_held() -> None:
    made = shaped()
    made.put("a", b"1")
    (queue,) = made.ready()
    queue.is_busy, queue.most = True, 1
    made.shape(3)
    assert waiting(made) == {1: [b"1"]}
    assert queue.most == MOST_EVENTS


def test_the_memory_of_keys_is_bounded() -> None:
    asked = []

    def counted(key: bytes, partitions: int) -> int:
        asked.append(key)
        return 0

    made = RecordAccumulator(counted)
    made.shape(1)
    for _ in range(2):
        for number in range(record_accumulator._REMEMBERED_KEYS + 1):
            made.put(f"user-{number}", b"")
        (queue,) = made.ready()
        made.leave(queue, len(queue.events))
    # The second round finds most keys only if all were kept.
    assert len(asked) > record_accumulator._REMEMBERED_KEYS + 1
    assert len(made._queue_of) <= record_accumulator._REMEMBERED_KEYS
