"""What a broker did not take of a Produce has not passed, for each of the request's ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from pidgate.gateway.proxy.apis.api import FORWARD
from pidgate.gateway.proxy.apis.produce import MOST_BATCHES_NOTED
from pidgate.protocol.work import Walk
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.quota.sticky import Position
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.rules import rule
from tests.support.talk import Talk, whole

NOT_LEADER = 6


class Script:
    """A connection of alice, whose broker takes nothing of what it is sent."""

    def __init__(self, error_code: int = NOT_LEADER) -> None:
        self.error_code = error_code
        self.admission = Admission(Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(100)), lambda: 1, 0)
        self.conversation = Talk(self.admission, Client("alice", "", "10.0.0.1", 1))

    def answered(self, topics: dict[str, list[int]]) -> Walk:
        """The answer to a request with a batch of each of these ids, in one partition after the other."""
        asked_of: list[tuple[str | UUID, list[tuple[int, bytes | None]]]] = [
            (name, [(at, record_batch(one, 2, 0)) for at, one in enumerate(ids)])
            for name, ids in topics.items()
        ]
        frame = produce_request(9, asked_of, correlation_id=1)
        request = framed(frame)
        assert self.conversation.request(request, 4, len(request), 1_000) is FORWARD
        outcome: dict[str, object] = {
            **{
                "error_code": self.error_code,
                "base_offset": -1,
                "log_append_time_ms": -1,
                "log_start_offset": 0,
            },
            **{"record_errors": [], "error_message": None},
        }
        answered = [
            {"name": name, "partition_responses": [{"index": at, **outcome} for at in range(len(ids))]}
            for name, ids in topics.items()
        ]
        body = {"responses": answered, "throttle_time_ms": 0}
        asked, answer = self.conversation.expect(1), whole(raw.response(0, 9, body, correlation_id=1))
        walk = asked.api.handle_response(self.conversation.context, asked, answer)
        assert isinstance(walk, Walk)
        return walk

    def look(self, producer_id: int, topic: bytes, partition: int) -> Position:
        return self.admission.sticky.locate_batch("alice", (producer_id, 2, 2, topic, partition), 1, 1_001)


def looks_after(ids: list[int]) -> list[Position]:
    """How the next batch of each id is looked at when the broker has taken none of a request with a batch for each."""
    talk = Script()
    talk.answered({"t": ids}).finish()
    return [talk.look(one, b"t", at) for at, one in enumerate(ids)]


@rule("A batch that a broker answered with an error has not passed.", "order")
@pytest.mark.parametrize("batches", [2, MOST_BATCHES_NOTED, MOST_BATCHES_NOTED + 1, 100])
@pytest.mark.parametrize("distinct", [1, 2, 8])
def test_none_of_its_batches_counts_as_passed(batches: int, distinct: int) -> None:
    ids = [1 + at % min(distinct, batches) for at in range(batches)]
    assert Position.PASSED not in looks_after(ids)


@rule("A batch that a broker answered with an error has not passed.", "order")
@pytest.mark.parametrize("ids", [[1], [1, 5]])
def test_a_refused_id_waits_again_for_the_batch_that_its_broker_has_not_taken(ids: list[int]) -> None:
    """Batches 0 and 2 were refused, and 0 was sent anew: 2 has to wait until 0 is taken."""
    talk = Script()
    for sequence in (0, 2):
        talk.admission.sticky.record_refusal("alice", (1, 2, sequence, b"t", 0), 1, 0)
    walk = talk.answered({"t": ids})
    assert talk.look(1, b"t", 0) is Position.SAME
    walk.finish()
    assert talk.look(1, b"t", 0) is Position.ABOVE


JUDGED = (2, 10, 29, 45, 46, 47, 87)
NOT_JUDGED = (-1, 3, 5, 6, 7, 13, 19, 20, 56, 74, 100, 999)


@rule(
    "An error of a leader that has judged the batch leaves the partition's note; after any other it is forgotten.",
    "order",
)
@pytest.mark.parametrize("error_code", JUDGED + NOT_JUDGED)
def test_which_errors_forget_that_a_partition_has_passed(error_code: int) -> None:
    talk = Script(error_code)
    sticky = talk.admission.sticky
    sticky.watch_new_id("alice", 1, 1_000)
    talk.answered({"t": [1]}).finish()
    expected = Position.PASSED if error_code in JUDGED else Position.FIRST_SIGHT
    assert talk.look(1, b"t", 0) is expected


def test_a_stale_epoch_is_left_to_the_broker() -> None:
    """It answers INVALID_PRODUCER_EPOCH, which a client has to see; NOT_ENOUGH_REPLICAS would be tried again."""
    sticky = Script().admission.sticky
    sticky.watch_new_id("alice", 1, 1_000)
    assert sticky.locate_batch("alice", (1, 2, 5, b"t", 0), 1, 1_001) is Position.FIRST_SIGHT
    sticky.record_forwarded("alice", [(1, 3, 0, b"t", 0)], 7)
    assert sticky.locate_batch("alice", (1, 2, 5, b"t", 0), 1, 1_001) is Position.PASSED
    assert sticky.locate_batch("alice", (1, 2, 5, b"t", 1), 1, 1_001) is Position.FIRST_SIGHT
