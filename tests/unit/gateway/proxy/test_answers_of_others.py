"""The answer to the question about one held request decides about no other request."""

from __future__ import annotations

import pytest

from pidgate.gateway.proxy.apis.api import TAKEN
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.quota.admission import Admission
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.state import Answer, Question, complete
from pidgate.quota.verdicts import Reason, Session
from tests.support.frames import produce_request, record_batch

NOW_MS = 20_000
KNOWN, UNKNOWN = 1, range(1_000, 1_008)
LATER_BASE = 0x7FFF_FFFB
"""Base sequence of a batch that base sequence 0 comes behind."""


class Elsewhere(ProducerIdQuota):
    """Whoever answers is in another process."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:  # type: ignore[override]
        return None


class Worker:
    """Connections of alice, who may bring so many new ids, and the state owner that is asked about them."""

    def __init__(self, rate: int = 1) -> None:
        quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(rate))
        self.owner = ProducerIdQuota(quotas, lambda: 1, 0)
        self.admission = Admission(quotas, lambda: 1, 0, remote=Elsewhere(quotas, lambda: 1, 0))
        self.connections = 0

    def connect(self) -> Conversation:
        self.connections += 1
        return Conversation(self.admission, Session("alice", "c", "10.0.0.1", self.connections))

    def answer(self, talk: Conversation) -> Answer:
        asked = talk.pending
        assert asked is not None
        complete(asked.question, self.owner.table.refusals, NOW_MS)
        asked.answer = self.owner.decide(asked.question, NOW_MS)
        talk.counted(asked)  # as the channel does with every answer, before it looks who waits
        return asked.answer

    @property
    def admitted(self) -> dict[Reason, int]:
        return self.admission.counters.of("alice", NOW_MS).admitted


def produce(batches: list[tuple[int, int, int]], correlation_id: int = 1) -> bytes:
    """Of (producer id, partition, base sequence)."""
    parts: list[tuple[int, bytes | None]] = [(at, record_batch(one, 2, base)) for one, at, base in batches]
    frame = produce_request(9, [("t", parts)], correlation_id=correlation_id)
    return len(frame).to_bytes(4, "big") + frame


def send(talk: Conversation, frame: bytes) -> int:
    return talk.request(frame, 4, len(frame), NOW_MS)


def left_behind_a_mute(worker: Worker) -> Conversation:
    """A connection whose first request was decided about, and refused before the decision counted; behind it are ids
    that nobody knows.
    """
    talk, other = worker.connect(), worker.connect()
    assert send(talk, produce([(KNOWN, 1, 0)])) is TAKEN
    behind = [(one, at + 3, 0) for at, one in enumerate(UNKNOWN)]
    assert send(talk, produce(behind, 2)) is TAKEN
    # Over another connection a batch is refused that stands before it; then the answer comes, and a mute.
    worker.admission.sticky.refused(
        "alice", (KNOWN, 2, LATER_BASE, b"t", 1), other.session.connection_id, NOW_MS
    )
    worker.answer(talk)
    talk.mute(NOW_MS + 1_000)
    assert talk.release(NOW_MS) == ([], False)
    assert (len(talk.out), len(talk.held)) == (1, 1), "the first is refused behind the mute"
    return talk


def test_who_was_not_asked_about_is_asked_about() -> None:
    worker = Worker()
    talk = left_behind_a_mute(worker)
    assert talk.pending is None
    assert talk.is_quiet
    assert talk.release(NOW_MS + 1_000) == ([], False)
    assert worker.answer(talk).refused
    assert talk.release(NOW_MS + 1_000) == ([], False)
    assert len(talk.out) == 2
    assert talk.session.admitted == {}


@pytest.mark.parametrize("rate", [1, 0], ids=["admitted", "refused"])
def test_what_was_admitted_is_counted(rate: int) -> None:
    worker = Worker(rate)
    assert left_behind_a_mute(worker).pending is None
    assert worker.admitted == ({Reason.FIRST_SEEN: 1} if rate else {})


def test_mutant_an_answer_that_stays_lets_ids_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "_forget_question", lambda self: None)
    talk = left_behind_a_mute(Worker())
    frames, _ = talk.release(NOW_MS + 1_000)
    assert len(frames) == 1
    assert sorted(talk.session.admitted) == [*UNKNOWN]
