"""The order of answers on one connection: requests in flight, with the gateway's own answers in between."""

import pytest

from pidgate.gateway.proxy.apis.api import COUNTED_IN_FLIGHT, Api, InFlightRequest, InFlightRequests
from pidgate.protocol.errors import MalformedFrame

API = Api()


def asked(correlation_id: int) -> InFlightRequest:
    return InFlightRequest(API, 3, 1, correlation_id)


def in_flight(*those: int | bytes) -> InFlightRequests:
    """Requests by their correlation ids, and own answers."""
    made = InFlightRequests()
    for one in those:
        if isinstance(one, int):
            made.add(asked(one))
        else:
            assert made.add_own_answer(one)
    return made


def test_their_number_has_to_be_counted_now_and_then() -> None:
    requests = InFlightRequests()
    counted = [number for number in range(1, 3 * COUNTED_IN_FLIGHT) if requests.add(asked(number))]
    assert counted == [COUNTED_IN_FLIGHT, 2 * COUNTED_IN_FLIGHT]


def test_own_answers_leave_in_order_up_to_the_next_request() -> None:
    requests = in_flight(1, b"first", b"second", 2, b"third")
    assert requests.own_bytes == len(b"firstsecondthird")
    assert requests.remove_answered() == [b"first", b"second"]
    assert requests.own_bytes == len(b"third")
    assert requests.expect(2).correlation_id == 2
    assert requests.remove_answered() == [b"third"]
    assert (len(requests), requests.own_bytes) == (0, 0)


def test_own_answers_wait_behind_a_request_that_is_next() -> None:
    assert in_flight(1, 2, b"own").remove_answered() == []
    assert in_flight(1, b"own", 2).remove_answered() == [b"own"]


def test_an_answer_can_be_sent_alone_unless_an_own_one_follows_at_once() -> None:
    def alone(*those: int | bytes) -> int | None:
        head = in_flight(*those).next_alone()
        return None if head is None else head.correlation_id

    assert [alone(), alone(1, b"own"), alone(1, b"own", 2)] == [None] * 3
    assert [alone(1), alone(1, 2), alone(1, 2, b"own")] == [1, 1, 1]


def test_dropped_own_answers_count_no_more_and_their_requests_stay() -> None:
    requests = in_flight(1, b"own", 2, b"other")
    requests.drop_own_answers()
    assert (len(requests), requests.own_bytes) == (2, 0)
    assert requests.remove_answered() == []
    assert requests.expect(2).correlation_id == 2


def test_an_own_answer_with_nothing_in_flight_does_not_wait() -> None:
    requests = in_flight()
    assert not requests.add_own_answer(b"own")
    assert (len(requests), requests.own_bytes) == (0, 0)


@pytest.mark.parametrize("those", [(), (1,), (1, 2)])
def test_an_answer_to_another_request_than_the_next_is_refused(those: tuple[int, ...]) -> None:
    """Frame boundaries are lost, and no client may get the answer of another request."""
    with pytest.raises(MalformedFrame, match="the broker answered 2"):
        in_flight(*those).expect(2)
