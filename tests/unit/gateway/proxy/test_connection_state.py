"""The table of a connection's life with its diagram, and which requests a session lets pass at once."""

from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.proxy.apis.api import FORWARD, TAKEN
from pidgate.gateway.proxy.connection_state import LIFE, Life, LifeEvent, diagram
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.import_graph import ROOT
from tests.support.talk import Talk


def test_every_state_can_be_reached_and_every_event_does_something() -> None:
    reached, todo = {Life.ACCEPTED}, [Life.ACCEPTED]
    while todo:
        state = todo.pop()
        following = {after for (before, _), after in LIFE.items() if before is state}
        todo += following - reached
        reached |= following
    assert reached == set(Life)
    assert {event for _, event in LIFE} == set(LifeEvent)
    assert all(before is not after for (before, _), after in LIFE.items())


def test_no_life_goes_back_and_every_life_ends() -> None:
    assert all(before < after for (before, _), after in LIFE.items())
    assert {before for before, event in LIFE if event is LifeEvent.LOST} == set(Life) - {Life.CLOSED}


def test_the_diagram_in_the_docs_is_this_one() -> None:
    assert f"```mermaid\n{diagram()}```" in (ROOT / "docs" / "explanation" / "architecture.md").read_text(
        "utf-8"
    )


METADATA = raw.request(3, 1, {"topics": []}, correlation_id=1)
SASL = raw.request(17, 1, {"mechanism": "PLAIN"}, correlation_id=1)


def produce(producer_id: int) -> bytes:
    return framed(produce_request(9, [("orders", [(0, record_batch(producer_id, 0, 0))])], correlation_id=1))


FRAMES = {"metadata": METADATA, "sasl": SASL, "known": produce(1), "new": produce(2)}


@given(
    st.lists(st.sampled_from([*FRAMES, "answer", "a second passes", "release", "mute", "drop"]), max_size=40)
)
def test_a_request_passes_only_where_nothing_waits(steps: list[str]) -> None:
    """Whatever came before: nothing passes held requests, a mute, or (SASL apart) a SASL request in flight."""
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(1))
    talk = Talk(Admission(quotas, lambda: 1, 0), Client("alice", "", "10.0.0.1", 1))
    now_ms, sasl = 0, list[bool]()
    for step in steps:
        must_wait = bool(talk.held) or now_ms < talk.muted_until_ms or (any(sasl) and step != "sasl")
        if step in FRAMES:
            frame = FRAMES[step]
            taken = talk.request(frame, 4, len(frame), now_ms)
            assert taken in (FORWARD, TAKEN)
            assert taken is TAKEN or not must_wait
            assert taken is FORWARD or must_wait or step == "new"
            if taken is FORWARD:
                sasl.append(step == "sasl")
        elif step == "answer" and sasl:
            if sasl.pop(0):
                talk.broker_answers(
                    raw.response(17, 1, {"error_code": 0, "mechanisms": []}, correlation_id=1)
                )
            else:
                talk.answered()
        elif step == "a second passes":
            now_ms += 1_000
        elif step == "mute":
            talk.context.mute(now_ms + 500)
        elif step == "drop":
            talk.session.drop_held()
        elif step == "release":
            frames, must_close = talk.release(now_ms)
            assert not must_close
            assert not frames or now_ms >= talk.muted_until_ms or talk.refused
            sasl += [frame == SASL for frame in frames]
