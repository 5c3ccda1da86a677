"""What waits for the state owner's acknowledgement, in which order it leaves, and what goes when there is no room."""

from __future__ import annotations

import pytest

from pidgate.gateway.process import event_outbox, wire
from pidgate.gateway.process.event_outbox import EventOutbox
from pidgate.gateway.process.wire import Kind


def written(outbox: EventOutbox, most: int = 1_000) -> list[tuple[bytes, bool]]:
    """Write up to so many; return what they are, and whether they are marked as made before the connection."""
    found: list[tuple[bytes, bool]] = []
    while len(found) < most and (event := outbox.next()) is not None:
        (message,) = wire.Decoder().feed(event)
        found.append((message.body[1], message.kind is Kind.EVENT_AGAIN))
    return found


def put(outbox: EventOutbox, *values: bytes) -> None:
    for value in values:
        outbox.put("alice", value)


def connected() -> EventOutbox:
    outbox = EventOutbox()
    outbox.connected()
    return outbox


def test_what_is_acknowledged_is_forgotten_and_all_else_is_written_again_in_order() -> None:
    outbox = connected()
    put(outbox, b"1", b"2", b"3")
    assert written(outbox) == [(b"1", False), (b"2", False), (b"3", False)]
    outbox.acknowledged(1)
    assert len(outbox) == 2
    put(outbox, b"4")
    outbox.connected()
    put(outbox, b"5")
    assert written(outbox) == [(b"2", True), (b"3", True), (b"4", True), (b"5", False)]
    outbox.acknowledged(4)
    outbox.acknowledged(4)
    assert len(outbox) == 0
    outbox.connected()
    assert written(outbox) == []


def test_a_connection_that_is_lost_in_between_begins_with_the_same() -> None:
    outbox = connected()
    put(outbox, b"1", b"2", b"3")
    written(outbox)
    outbox.connected()
    assert written(outbox, 1) == [(b"1", True)]
    outbox.connected()
    assert written(outbox) == [(b"1", True), (b"2", True), (b"3", True)]


def test_of_a_full_one_the_oldest_written_goes_and_then_the_newest_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_outbox, "MOST_KEPT_EVENTS", 3)
    outbox = connected()
    put(outbox, b"1", b"2")
    written(outbox)
    put(outbox, b"3", b"4", b"5")
    assert (len(outbox), outbox.dropped) == (3, 0)
    outbox.acknowledged(2)  # those that went are among them
    assert len(outbox) == 3
    put(outbox, b"6")
    assert (len(outbox), outbox.dropped) == (3, 1)
    assert written(outbox) == [(b"3", False), (b"4", False), (b"5", False)]
    outbox.acknowledged(5)
    assert len(outbox) == 0
