"""Several processes that own connections, and one state: they admit exactly what one process does.

The processes and the state are the real ones; what is between them is the real bytes, carried at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.process import wire
from pidgate.quota.admission import Admission
from pidgate.quota.entities import unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.refused_ids import RefusedIds
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.state import Answer, AskedId, PendingDecision, Question, complete
from pidgate.quota.verdicts import Bound, Decision, Forward, ProducerBatch, Reason, Refuse, Session

_T = TypeVar("_T")
SETTINGS = ProducerIdSettings(window_ms=60_000, max_throttle_ms=5_000)
QUOTAS = Quotas(Mode.ENFORCE, SETTINGS, default=UserQuota.per_window(4))


class StateOwner:
    """The one state, and who has to be told of refusals."""

    def __init__(self) -> None:
        self.state = ProducerIdQuota(QUOTAS, lambda: 1, 0)
        self.workers: list[Admission] = []

    def ask(self, asked: PendingDecision, by: Admission) -> None:
        question = _over_the_wire(asked.question)
        complete(question, self.state.table.refusals, asked.asked_ms)
        answer = self.state.decide(question, asked.asked_ms)
        refused = [one.producer_id for one in question.ids] if answer.refused else []
        asked.answer = _over_the_wire(answer)
        for worker in self.workers:
            if worker is not by:
                for producer_id in refused:
                    worker.sticky.refused_elsewhere(question.user, producer_id, asked.asked_ms)


def _over_the_wire(body: _T) -> _T:
    (message,) = wire.Decoder().feed(wire.encoded(wire.Kind.ASK, body))
    assert type(message.body) is type(body)
    decoded: _T = message.body
    return decoded


class Elsewhere(ProducerIdQuota):
    """A state that is asked over the wire. Nothing that it holds itself is ever looked at."""

    def decide(self, question: Question, now_ms: int) -> Answer | None:  # type: ignore[override]
        return None


@dataclass
class World:
    """`processes` admissions; a client's connection belongs to one of them."""

    processes: list[Admission]
    state_owner: StateOwner | None
    now_ms: int = 0
    admitted: list[int] = field(default_factory=list)

    @classmethod
    def of_one(cls) -> World:
        return cls([Admission(QUOTAS, lambda: 1, 0)], None)

    @classmethod
    def of_workers(cls, number: int) -> World:
        state_owner = StateOwner()
        state_owner.workers = [
            Admission(QUOTAS, lambda: 1, 0, state=Elsewhere(QUOTAS, lambda: 1, 0)) for _ in range(number)
        ]
        return cls(state_owner.workers, state_owner)

    def judge(self, process: int, session: Session, batch: ProducerBatch) -> str:
        admission = self.processes[process % len(self.processes)]
        asked: PendingDecision | None = None
        while True:
            verdict = admission.judge(
                session, [batch], transactional=False, now_ms=self.now_ms, pending=asked
            )
            if not isinstance(verdict, PendingDecision):
                break
            assert self.state_owner is not None
            self.state_owner.ask(verdict, admission)
            asked = verdict
        if isinstance(verdict, Forward):
            self.admitted.append(batch[0])
            return "forward"
        assert isinstance(verdict, Refuse)
        return f"refuse {verdict.reason} {verdict.throttle_time_ms}"


# Each arrival: after how long, which id, over which worker. A connection is made anew for each: the hard case,
# because nothing that a process knows of a connection helps.
arrivals = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 100, 900, 5_000, 15_000, 16_000]), st.integers(0, 12), st.integers(0, 3)
    ),
    max_size=60,
)


@given(arrivals, st.integers(2, 4))
def test_workers_admit_what_one_process_does(schedule: list[tuple[int, int, int]], workers: int) -> None:
    one, several = World.of_one(), World.of_workers(workers)
    connections = count(1)
    for after_ms, producer_id, process in schedule:
        connection_id = next(connections)
        said = []
        for world in (one, several):
            world.now_ms += after_ms
            session = Session("alice", "app", "10.0.0.1", connection_id)
            said.append(world.judge(process, session, (producer_id, 0, 0, b"t", 0)))
            for admission in world.processes:
                admission.connection_closed(connection_id, world.now_ms)
        assert said[0] == said[1], (after_ms, producer_id, process)
    assert one.admitted == several.admitted


def test_without_shared_refusals_another_worker_would_shed_the_throttle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail: a mutant that keeps nothing."""

    def said() -> list[str]:
        world = World.of_workers(2)
        said = []
        for number, producer_id in enumerate([1, 2, 3, 4, 5, 6, 6]):
            session = Session("alice", "app", "10.0.0.1", number)
            said.append(world.judge(number, session, (producer_id, 0, 0, b"t", 0)))
            for admission in world.processes:
                admission.connection_closed(number, world.now_ms)
        return said

    kept = said()
    monkeypatch.setattr(RefusedIds, "waiting", lambda *_args: None)
    assert kept[-1].startswith("refuse deadline")
    assert said() != kept


def test_a_refusal_elsewhere_makes_the_first_batch_above_0_wait_whatever_the_mode() -> None:
    world = World.of_workers(2)
    for producer_id in range(5):
        session = Session("alice", "app", "10.0.0.1", producer_id + 1)
        assert world.judge(0, session, (producer_id, 0, 0, b"t", 0)) == "forward"
    assert world.judge(0, Session("alice", "app", "10.0.0.1", 20), (9, 0, 0, b"t", 0)).startswith(
        "refuse first"
    )
    for process in world.processes:
        process.set_quotas(Quotas(Mode.OBSERVE, SETTINGS), world.now_ms)
    above = world.judge(1, Session("alice", "app", "10.0.0.1", 21), (9, 0, 7, b"t", 0))
    assert above == "refuse established 100"


def test_a_question_and_an_answer_survive_the_wire() -> None:
    question = Question(
        unidentified("GSSAPI"),
        "10.0.0.1",
        "app",
        True,
        2,
        [AskedId(7, 1, 2, b"\x00" + bytes(range(240, 256)), 3, True, False, 9, 8)],
    )
    assert _over_the_wire(question) == question
    decision = Decision("ü", 7, 1, True, b"\x00\xff", 3, 2, 1, False, Reason.QUEUE, -5, -5, 100, 3, 8, True)
    answer = Answer(True, (decision,), Bound.CLUSTER)
    assert _over_the_wire(answer) == answer


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=40)), max_size=5), st.integers(1, 7))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(
    events: list[tuple[str, bytes]], step: int
) -> None:
    sent = b"".join(wire.encoded(wire.Kind.EVENT, event) for event in events)
    decoder = wire.Decoder()
    got = [message.body for at in range(0, len(sent), step) for message in decoder.feed(sent[at : at + step])]
    assert got == events


def test_what_is_no_message_ends_the_connection() -> None:
    for wrong in (b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x02\x63x", b"\x00\x00\x00\x02\x02x"):
        with pytest.raises(wire.WireError):
            next(wire.Decoder().feed(wrong))
