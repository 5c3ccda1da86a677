"""Names and ids are learnt from Metadata answers a slice at a time, and from each answer once."""

from collections.abc import Callable

import pytest

from pidgate.gateway.cluster import topic_names
from pidgate.gateway.cluster.seen_answers import hash_of
from pidgate.gateway.cluster.topic_names import WAITING_LIMIT, TopicNames
from pidgate.protocol.frames import encode_string, uvarint
from pidgate.protocol.work import at_once

VERSION = 12


def metadata(names: list[str], correlation_id: int = 7) -> memoryview:
    """A Metadata v12 answer without brokers; each topic's id is its place in the list."""
    topics = b"".join(
        bytes(2) + encode_string(name, flexible=True) + (place + 1).to_bytes(16, "big") + b"\0\x01" + bytes(5)
        for place, name in enumerate(names)
    )
    head = correlation_id.to_bytes(4, "big") + b"\0" + bytes(4) + b"\x01\0" + bytes(4)
    return memoryview(head + uvarint(len(names) + 1) + topics + b"\0")


class Turns:
    """An event loop's turns, taken one by one."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.taken = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def take_all(self) -> None:
        while self.waiting:
            self.taken += 1
            self.waiting.pop(0)()


def learner() -> tuple[Turns, TopicNames, dict[bytes, bytes]]:
    turns, learnt = Turns(), dict[bytes, bytes]()
    return turns, TopicNames(turns, learnt.__setitem__), learnt  # type: ignore[arg-type]


def offer(names: TopicNames, answer: memoryview, version: int) -> None:
    names.queue_answer(answer, version, at_once(hash_of(answer)))


def test_a_topic_is_learnt_in_the_form_it_has_in_a_batch() -> None:
    turns, names, learnt = learner()
    offer(names, metadata(["orders", "clicks"]), VERSION)
    turns.take_all()
    assert learnt == {
        b"orders": b"\0" + (1).to_bytes(16, "big"),
        b"clicks": b"\0" + (2).to_bytes(16, "big"),
    }


def test_a_large_answer_takes_several_turns() -> None:
    turns, names, learnt = learner()
    offer(names, metadata([f"topic-{n}" for n in range(20_000)]), VERSION)
    turns.take_all()
    assert len(learnt) == 20_000
    assert turns.taken > 1


def test_a_damaged_answer_does_not_stop_those_behind_it() -> None:
    turns, names, learnt = learner()
    offer(names, metadata(["orders", "clicks"])[:-20], VERSION)
    offer(names, metadata(["views"]), VERSION)
    turns.take_all()
    assert b"views" in learnt


def test_answers_that_wait_are_bounded_and_older_versions_are_left_alone() -> None:
    turns, names, learnt = learner()
    for n in range(WAITING_LIMIT + 10):
        offer(names, metadata([f"topic-{n}"]), VERSION)
    offer(names, metadata(["old"]), 9)
    turns.take_all()
    assert len(learnt) == WAITING_LIMIT
    assert b"old" not in learnt


def test_answers_that_wait_hold_so_much_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, names, learnt = learner()
    answers = [metadata([f"topic-{n}"]) for n in range(10)]
    monkeypatch.setattr(topic_names, "MOST_WAITING_BYTES", 3 * len(answers[0]))
    for answer in answers:
        offer(names, answer, VERSION)
    turns.take_all()
    assert len(learnt) == 3
    monkeypatch.setattr(topic_names, "MOST_WAITING_BYTES", 1)
    offer(names, answers[5], VERSION)  # it was left out before, not forgotten; nothing waits now
    turns.take_all()
    assert len(learnt) == 4
