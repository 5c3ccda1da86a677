"""The clients that a replay adds to the bucket: with and without retries, and where the line is full."""

from __future__ import annotations

from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome, QuotaReplay

SETTINGS = ProducerIdSettings(window_ms=60_000, queue=2)
"""At a rate of 1,000 thousandths: two ids pass at first, then one a minute."""


def replayed(retries: list[bool]) -> tuple[Outcome, QuotaReplay]:
    quota, outcome = QuotaReplay(1_000, SETTINGS, 0), Outcome()
    for one in retries:
        quota.add_arrival(0, outcome, retries=one)
    return outcome, quota


def test_a_refused_id_that_does_not_retry_is_counted_once_and_takes_no_token() -> None:
    outcome, quota = replayed([True, True, False, False, True])
    quota.finish()
    assert outcome == Outcome(admitted=2, refused=3, gave_up=0, longest_wait_ms=60_000)
    assert outcome.new_ids == 5


def test_a_client_that_finds_the_line_full_gives_up() -> None:
    outcome, quota = replayed([True] * 5)
    assert outcome == Outcome(admitted=2, refused=3, gave_up=1, longest_wait_ms=GIVES_UP_AFTER_MS)
    quota.finish()
    assert (outcome.admitted, outcome.gave_up) == (2, 1)


def test_waiting_clients_are_served_before_the_next_arrival_and_before_an_unrefused_one() -> None:
    outcome, quota = replayed([True, True, True])
    later = Outcome()
    quota.add_unrefused(60_000, later)
    assert outcome.longest_wait_ms == 60_000
    quota.add_arrival(60_001, later)
    quota.finish()
    # Two tokens are owed: of the client that waited, and of the unrefused id.
    assert later == Outcome(admitted=1, refused=1, gave_up=0, longest_wait_ms=59_999)


def test_outcomes_add_up() -> None:
    outcome = Outcome(1, 2, 1, 500)
    outcome.add(Outcome(3, 4, 0, 700))
    assert outcome == Outcome(4, 6, 1, 700)


def test_an_unrefused_id_is_charged_where_nobody_waits() -> None:
    quota, outcome = QuotaReplay(1_000, SETTINGS, 0), Outcome()
    quota.add_unrefused(0, outcome)
    quota.add_unrefused(0, outcome)
    assert not quota.admit_id(0, 0)
    assert outcome == Outcome(admitted=2)


def test_a_client_whose_turn_comes_too_late_gives_up() -> None:
    quota, outcome = QuotaReplay(100, SETTINGS, 0), Outcome()  # an id in ten minutes
    for _ in range(3):
        quota.add_arrival(0, outcome)
    quota.finish()
    assert (outcome.gave_up, outcome.longest_wait_ms) == (2, GIVES_UP_AFTER_MS)
