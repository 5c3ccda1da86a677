"""A Produce names at most eight producer ids, in every mode; else the connection is closed."""

from __future__ import annotations

import pytest

from pidgate.gateway.proxy.apis.api import CLOSE, FORWARD, SIZE_PREFIX_BYTES
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode
from tests.support.frames import BY_ID, NAMED, produce_frame
from tests.support.rules import rule
from tests.support.talk import Talk
from tests.unit.quota.world import enforcing, seeds


def talk(mode: Mode) -> Talk:
    return Talk(Admission(enforcing(mode=mode), seeds(), 0), Client("alice", "app", "10.0.0.1", 1))


def produce(ids: int, version: int, *, partitions: int = 20) -> bytes:
    batches = tuple((partition, partition % ids, 0, 0, 1, b"x") for partition in range(partitions))
    return produce_frame(version, 1, "app", batches)


@rule("More than eight ids in one Produce close the connection.", "cost")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("version", [NAMED, BY_ID])
@pytest.mark.parametrize(("ids", "step"), [(1, FORWARD), (8, FORWARD), (9, CLOSE), (20, CLOSE)])
def test_more_than_eight_ids_close_the_connection(mode: Mode, version: int, ids: int, step: int) -> None:
    conversation, frame = talk(mode), produce(ids, version)
    assert conversation.request(frame, SIZE_PREFIX_BYTES, len(frame), 0) is step
    if step is CLOSE:
        assert conversation.close_cause == "limit"
        assert "more than 8 producer ids" in conversation.close_reason


def test_behind_a_mute_too() -> None:
    conversation, frame = talk(Mode.ENFORCE), produce(9, NAMED)
    conversation.context.mute(1_000)
    assert conversation.request(frame, SIZE_PREFIX_BYTES, len(frame), 0) is CLOSE


def nobody_names_many_ids_at_once() -> bool:
    """The rule, for the first request of a connection and behind a mute: it is closed before anything is judged."""
    closed = []
    for mode in Mode:
        for is_muted in (False, True):
            conversation, frame = talk(mode), produce(20, NAMED)
            if is_muted:
                conversation.context.mute(1_000)
            step = conversation.request(frame, SIZE_PREFIX_BYTES, len(frame), 0)
            closed.append(step is CLOSE and list(conversation.context.admission.user_snapshots(0)) == [])
    return all(closed)


def test_whoever_names_many_ids_has_none_of_them_judged() -> None:
    assert nobody_names_many_ids_at_once()
