"""What a broker did not take of a Produce has not passed, for each of the request's ids."""

from __future__ import annotations

import pytest

from pidgate.gateway.proxy.apis import produce
from pidgate.gateway.proxy.apis.api import FORWARD
from pidgate.gateway.proxy.apis.produce import MOST_BATCHES_NOTED
from pidgate.gateway.proxy.apis.responses import Response
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.protocol.work import Walk
from pidgate.quota.admission import Admission
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.sticky import Look
from pidgate.quota.verdicts import Session
from tests.support import raw
from tests.support.frames import produce_request, record_batch

NOT_LEADER = 6


def looks_after(ids: list[int]) -> list[Look]:
    """How the next batch of each id is looked at when the broker has taken none of a request with a batch for each."""
    admission = Admission(Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(100)), lambda: 1, 0)
    talk = Conversation(admission, Session("alice", "", "10.0.0.1", 1))
    parts: list[tuple[int, bytes | None]] = [(at, record_batch(one, 2, 0)) for at, one in enumerate(ids)]
    frame = produce_request(9, [("t", parts)], correlation_id=1)
    assert talk.request(len(frame).to_bytes(4, "big") + frame, 4, 4 + len(frame), 1_000) is FORWARD
    outcome: dict[str, object] = {
        **{"error_code": NOT_LEADER, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": 0},
        **{"record_errors": [], "error_message": None},
    }
    answered = [{"index": at, **outcome} for at in range(len(ids))]
    body = {"responses": [{"name": "t", "partition_responses": answered}], "throttle_time_ms": 0}
    response = Response()
    response.buf = bytearray(raw.response(0, 9, body, correlation_id=1))
    response.start, response.end = 4, len(response.buf)
    asked = talk.expect(1)
    walk = asked.api.response(talk, asked, response)
    assert isinstance(walk, Walk)
    walk.finish()
    return [admission.sticky.look("alice", (one, 2, 2, b"t", at), 1, 1_001) for at, one in enumerate(ids)]


@pytest.mark.parametrize("batches", [2, MOST_BATCHES_NOTED, MOST_BATCHES_NOTED + 1, 100])
@pytest.mark.parametrize("distinct", [1, 2, 8])
def test_none_of_its_batches_counts_as_passed(batches: int, distinct: int) -> None:
    ids = [1 + at % min(distinct, batches) for at in range(batches)]
    assert Look.PASSED not in looks_after(ids)


def test_mutant_of_many_batches_the_first_id_alone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_noted", lambda batches: batches[0][0])
    assert looks_after([1] * MOST_BATCHES_NOTED + [2])[-1] is Look.PASSED
