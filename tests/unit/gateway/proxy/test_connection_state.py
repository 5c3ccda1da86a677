"""The states of a connection: the tables, what the conversation makes of them, and their diagram in the docs."""

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN
from pidgate.gateway.proxy.connection_state import INTAKE, LIFE, Intake, IntakeEvent, Life, LifeEvent, diagram
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.import_graph import ROOT


@pytest.mark.parametrize(
    ("first", "states", "events", "transitions"),
    [(Intake.OPEN, Intake, IntakeEvent, INTAKE), (Life.ACCEPTED, Life, LifeEvent, LIFE)],
    ids=["intake", "life"],
)
def test_every_state_can_be_reached_and_every_event_does_something(
    first: IntEnum,
    states: type[IntEnum],
    events: type[IntEnum],
    transitions: dict[tuple[IntEnum, IntEnum], IntEnum],
) -> None:
    reached, todo = {first}, [first]
    while todo:
        state = todo.pop()
        following = {after for (before, _), after in transitions.items() if before is state}
        todo += following - reached
        reached |= following
    assert reached == set(states)
    assert {event for _, event in transitions} == set(events)
    assert all(before is not after for (before, _), after in transitions.items())


def test_no_life_goes_back_and_every_life_ends() -> None:
    assert all(before < after for (before, _), after in LIFE.items())
    assert {before for before, event in LIFE if event is LifeEvent.LOST} == set(Life) - {Life.CLOSED}


def test_the_diagram_in_the_docs_is_this_one() -> None:
    assert f"```mermaid\n{diagram()}```" in (ROOT / "docs" / "architecture.md").read_text("utf-8")


METADATA = raw.request(3, 1, {"topics": []}, correlation_id=1)
SASL = raw.request(17, 1, {"mechanism": "PLAIN"}, correlation_id=1)


def produce(producer_id: int) -> bytes:
    return framed(produce_request(9, [("orders", [(0, record_batch(producer_id, 0, 0))])], correlation_id=1))


FRAMES = {"metadata": METADATA, "sasl": SASL, "known": produce(1), "new": produce(2)}


@given(
    st.lists(st.sampled_from([*FRAMES, "answer", "a second passes", "release", "mute", "drop"]), max_size=40)
)
def test_the_intake_is_what_the_facts_say(steps: list[str]) -> None:
    """Whatever came before: the state is that of what is held, of SASL in flight, and of the deadline."""
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(1))
    talk = Conversation(Admission(quotas, lambda: 1, 0), Client("alice", "", "10.0.0.1", 1))
    now_ms, sasl = 0, list[bool]()
    for step in steps:
        if step in FRAMES:
            frame = FRAMES[step]
            taken = talk.request(frame, 4, len(frame), now_ms)
            assert taken in (FORWARD, TAKEN)
            if taken is FORWARD:
                sasl.append(step == "sasl")
        elif step == "answer" and sasl:
            talk.expect(1)
            talk.answered()
            sasl.pop(0)
        elif step == "a second passes":
            now_ms += 1_000
        elif step == "mute":
            talk.mute(now_ms + 500)
        elif step == "drop":
            talk.drop_held()
        elif step == "release":
            frames, must_close = talk.release(now_ms)
            assert not must_close
            sasl += [frame == SASL for frame in frames]
        is_muted, is_authenticating = now_ms < talk.muted_until_ms, any(sasl)
        if talk.held:
            expected = Intake.HOLDING
        elif is_authenticating:
            expected = Intake.MUTED_AUTHENTICATING if is_muted else Intake.AUTHENTICATING
        else:
            expected = Intake.MUTED if is_muted else Intake.OPEN
        assert talk.intake(now_ms) is expected
