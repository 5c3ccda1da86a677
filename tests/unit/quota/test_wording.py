"""What a refused client reads."""

from __future__ import annotations

import pytest

from pidgate.quota.decisions import Bound, Reason, Refuse, error_message, names_too_many_ids


def refusal(reason: Reason, *, rate_milli: int | None = 100_000, bound: Bound = Bound.USER) -> Refuse:
    return Refuse(9_000, reason, 4711, True, "alice", rate_milli, 3_600_000, bound)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (
            refusal(Reason.QUEUE),
            "producer_ids_rate quota of user alice exceeded (100 per 1h): producer id 4711 is new; "
            "retry in 9000 ms",
        ),
        (
            refusal(Reason.FIRST_SEEN, rate_milli=2_500, bound=Bound.CLUSTER),
            "producer_ids_rate quota of the cluster exceeded (2.5 per 1h): producer id 4711 is new; "
            "retry in 9000 ms",
        ),
        (
            refusal(Reason.BLOCKED, rate_milli=0),
            "user alice may not bring new producer ids: producer id 4711 is new; retry in 9000 ms",
        ),
        (
            refusal(Reason.STICKY),
            "an earlier batch of producer id 4711 was refused and has to be sent first; retry in 9000 ms",
        ),
        (
            refusal(Reason.ESTABLISHED),
            "producer id 4711 of user alice is not known here and starts above sequence 0; retry in 9000 ms",
        ),
        (
            refusal(Reason.FAIL_OPEN),
            "the gateway could not decide about producer id 4711 of user alice; retry in 9000 ms",
        ),
    ],
)
def test_it_says_what_happened_and_what_follows(refused: Refuse, text: str) -> None:
    assert error_message(refused) == text
    assert error_message(refused, "https://help.example/ids") == text + "; see https://help.example/ids"


def test_a_client_names_no_more_ids_than_eight() -> None:
    assert not names_too_many_ids([(one % 8, 0, 0, b"t", one) for one in range(20)])
    assert names_too_many_ids([(one, 0, 0, b"t", 0) for one in range(9)])
