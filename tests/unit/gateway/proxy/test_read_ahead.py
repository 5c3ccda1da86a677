"""Read-ahead of one connection: what it counts in the budget, when it pauses reading, and when it resumes."""

import pytest

from pidgate.gateway.proxy.apis.api import MOST_IN_FLIGHT, Api, InFlightRequest
from pidgate.gateway.proxy.buffers import BudgetShare, BufferBudget
from pidgate.gateway.proxy.read_ahead import (
    HELD_LIMIT_BYTES,
    OWN_ANSWERS_LIMIT_BYTES,
    ReadAhead,
)
from pidgate.gateway.proxy.reading import Pause, ReadGate
from pidgate.gateway.proxy.session import HELD_OVERHEAD_BYTES
from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.settings import Quotas
from tests.support.payer import Payer
from tests.support.scene import MiB, frame_of
from tests.support.talk import Talk

ROOMY, SCARCE = 1024 * MiB, 0
API = Api()


class Reading:
    """One connection, muted until 1,000 ms; `budget_bytes` SCARCE: its user has no room for another read."""

    def __init__(self, budget_bytes: int = ROOMY) -> None:
        self.talk = Talk(Admission(Quotas(), lambda: 1, 0), Client("alice", "", "10.0.0.1", 1))
        self.budget = BufferBudget(budget_bytes)
        self.gate = ReadGate()
        self.ahead = ReadAhead(self.talk.session, BudgetShare(self.budget, Payer("alice")), self.gate)
        self.talk.context.mute(1_000)

    def hold(self, total_bytes: int, now_ms: int = 0) -> None:
        """Hold a request that takes so many bytes."""
        frame = frame_of(total_bytes - HELD_OVERHEAD_BYTES)
        self.talk.request(frame, 4, len(frame), now_ms)
        self.ahead.bound(now_ms)

    def answer(self, own_bytes: int) -> None:
        """Let an own answer of this size wait behind a request in flight."""
        in_flight = self.talk.context.in_flight
        in_flight.add(InFlightRequest(API, 3, 1, 1))
        in_flight.add_own_answer(bytes(own_bytes))
        self.ahead.bound(0)

    @property
    def pauses(self) -> int:
        return self.gate.reasons


def test_held_requests_count_until_they_go_on() -> None:
    reading = Reading()
    reading.hold(5_000)
    assert (reading.budget.large.used_bytes, reading.pauses) == (5_000, 0)
    reading.talk.release(1_000)
    reading.ahead.bound(1_000)
    assert reading.budget.used_bytes == 0


def test_reading_pauses_at_the_limit_of_held_requests_and_resumes_after_the_mute() -> None:
    reading = Reading()
    reading.hold(HELD_LIMIT_BYTES - 1_000)
    assert reading.pauses == 0
    reading.hold(1_000)
    assert reading.pauses == Pause.HELD_FULL
    reading.talk.release(1_000)
    reading.ahead.bound(1_000)
    assert reading.pauses == 0


def test_held_requests_have_room_as_long_as_their_user_holds_no_more_than_stays_free() -> None:
    reading = Reading(MiB)
    large = reading.budget.large
    reading.hold(5_000)
    assert reading.ahead.is_scarce
    assert reading.ahead.bound(0)
    large.hold("somebody else", large.limit_bytes - large.used_bytes - 5_000)
    assert reading.ahead.bound(0)
    large.hold("somebody else", 1)
    assert not reading.ahead.bound(0)
    assert reading.pauses == Pause.HELD_FULL


def test_reads_are_small_only_on_a_muted_channel_without_room() -> None:
    reading, roomy = Reading(SCARCE), Reading()
    assert not reading.ahead.is_scarce, "nothing was read yet"
    for each in (reading, roomy):
        each.ahead.bound(999)
    assert (reading.ahead.is_scarce, roomy.ahead.is_scarce) == (True, False)
    reading.ahead.bound(1_000)
    assert not reading.ahead.is_scarce


def test_reads_are_small_while_a_request_is_held_after_the_mute_too() -> None:
    reading = Reading(SCARCE)
    reading.hold(5_000)
    reading.ahead.bound(1_000)
    assert reading.ahead.is_scarce


@pytest.mark.parametrize(("budget_bytes", "limit_bytes"), [(ROOMY, OWN_ANSWERS_LIMIT_BYTES), (SCARCE, 1)])
def test_reading_pauses_at_the_limit_of_own_answers_and_resumes_when_they_leave(
    budget_bytes: int, limit_bytes: int
) -> None:
    reading = Reading(budget_bytes)
    reading.talk.context.muted_until_ms = 0
    reading.answer(limit_bytes - 1)
    assert (reading.budget.large.used_bytes, reading.pauses) == (limit_bytes - 1, 0)
    reading.answer(1)
    assert reading.pauses == Pause.MANY_IN_FLIGHT
    reading.talk.answered()
    reading.talk.answered()
    reading.ahead.bound_answers()
    assert reading.pauses == 0


def test_reading_pauses_when_too_many_requests_are_in_flight() -> None:
    reading = Reading()
    for number in range(MOST_IN_FLIGHT):
        reading.ahead.bound(0)
        assert reading.pauses == 0
        reading.talk.context.in_flight.add(InFlightRequest(API, 3, 1, number))
    reading.ahead.bound(0)
    assert reading.pauses == Pause.MANY_IN_FLIGHT


def test_all_memory_is_given_back_when_the_client_goes() -> None:
    reading = Reading()
    reading.hold(5_000)
    reading.answer(7_000)
    assert reading.budget.used_bytes == 12_000
    reading.ahead.drop_held()
    assert (reading.budget.used_bytes, reading.talk.held) == (7_000, [])
    reading.ahead.drop_answers()
    assert reading.budget.used_bytes == reading.talk.context.in_flight.own_bytes == 0
    reading.talk.answered()
    assert reading.talk.out == []
