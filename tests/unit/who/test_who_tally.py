"""Sums over events: duplicates, losses, coverage, and tables that stay small."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.definitions import ConnectionEvent, Event, InitProducerIdEvent
from pidgate.events.writing import to_json
from pidgate.findings.patterns import Pattern
from pidgate.gateway.topics.follower import EventRecord
from pidgate.who.bounded import Names, Sample
from pidgate.who.coverage import Coverage, Gap
from pidgate.who.findings import findings
from pidgate.who.id_marks import Mark
from pidgate.who.intake import Intake
from pidgate.who.painting import coverage_of, user_pictures
from pidgate.who.picture import UserPicture, Window
from pidgate.who.sequences import Lost, Sequences
from pidgate.who.span import Span
from pidgate.who.tally import Tally
from pidgate.who.user_tally import IDS_KEPT, PLACE_IDS_KEPT
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

WINDOW = Window(START_MS, START_MS + HOUR_MS, START_MS)


def tallied(events: Iterable[Event], only_user: str | None = None, ids_kept: int = IDS_KEPT) -> Tally:
    tally = Tally(only_user, ids_kept)
    for event in events:
        tally.add(event)
    return tally


def picture(tally: Tally, user: str = "alice") -> UserPicture:
    return next(one for one in user_pictures(tally, WINDOW, None) if one.user == user)


# Bounded tables


def test_a_full_table_of_names_counts_what_it_leaves_out() -> None:
    names = Names(2)
    for name in ("a", "b", "b", "c", "c", "c", "a"):
        names.add(name)

    assert names.top(5) == [("a", 2), ("b", 2)]
    assert (len(names), names.unnamed) == (2, 3)


@given(st.sets(st.integers(0, 2**63 - 1), max_size=300), st.integers(1, 40))
def test_a_sample_is_bounded_and_keeps_what_belongs_to_its_share(keys: set[int], limit: int) -> None:
    sample: Sample[int] = Sample(limit)
    for key in keys:
        sample.put(key, key)

    assert len(sample) <= limit
    assert set(sample) == {key for key in keys if sample.takes(key)}
    assert (sample.one_in == 1) == (len(keys) <= limit)


# Marks of ids


def test_ids_are_counted_once_however_often_they_are_told() -> None:
    stream = Stream()
    producer_id = stream.allocate(Client(), START_MS)
    for retry in range(5):
        stream.decide(Client(), START_MS + 100 * retry, producer_id, "refuse", "first_seen")
        stream.decide(Client(), START_MS + 100 * retry + 1, producer_id, "refuse", "sticky")
    refused = picture(tallied(stream.events()))
    stream.decide(Client(), START_MS + 9_000, producer_id, "admit", "queue", waited_ms=9_000)
    stream.decide(Client(), START_MS + 9_500, producer_id, "admit", "refresh")
    admitted = picture(tallied(stream.events()))

    assert (refused.new_ids, refused.refused_ids, refused.never_admitted_ids) == (1, 1, 1)
    assert (admitted.new_ids, admitted.refused_ids, admitted.never_admitted_ids) == (1, 1, 0)
    assert (admitted.admitted_ids, admitted.used_ids, admitted.allocated_ids) == (1, 1, 1)


def test_what_keeps_the_order_of_batches_is_no_refusal_of_the_quota() -> None:
    stream = Stream()
    stream.decide(Client(), START_MS, 7, "refuse", "established")
    stream.decide(Client(), START_MS + 1, 8, "refuse", "sticky")
    told = picture(tallied(stream.events()))

    assert (told.new_ids, told.refused_ids, told.used_ids) == (0, 0, 2)


def test_a_hold_says_nothing_of_an_id_yet() -> None:
    stream = Stream()
    stream.decide(Client(), START_MS, 7, "hold", "held")
    stream.decide(Client(), START_MS + 1, 8)
    told = picture(tallied(stream.events()))

    assert (told.new_ids, told.refused_ids, told.used_ids) == (1, 0, 1)


def test_would_be_refusals_and_graces_are_new_ids() -> None:
    stream = Stream()
    stream.decide(Client(), START_MS, 7, would_refuse=True)
    stream.decide(Client(), START_MS, 8)
    stream.decide(Client(), START_MS, 9, reason="grace")
    told = picture(tallied(stream.events()))

    assert (told.new_ids, told.admitted_ids, told.would_refuse_ids, told.refused_ids) == (3, 3, 1, 0)


def test_only_one_user_but_the_coverage_of_all() -> None:
    stream = Stream()
    stream.producer(Client(user="bob"), START_MS)
    stream.producer(Client(), START_MS + 1)
    stream.producer(Client(user="bob"), START_MS + 2)
    tally = tallied(stream.events(), "alice")

    assert [user.user for user in user_pictures(tally, WINDOW, None)] == ["alice"]
    assert coverage_of(tally) == Coverage(START_MS, 1, 3, 0, 0)


# Duplicates and losses


def test_events_that_come_twice_are_taken_once() -> None:
    stream = Stream()
    for number in range(30):
        stream.producer(Client(), START_MS + number, life_ms=5, requests=2)
    events = stream.events()
    tally = tallied(events + events[10:40])

    assert (tally.events, tally.duplicates) == (90, 30)
    told = picture(tally)
    assert told.requests is not None
    assert told.requests.total == 60
    assert tally.sequences.lost() == []


@given(st.sets(st.integers(1, 300), max_size=100), st.randoms(use_true_random=False))
def test_what_is_missing_between_first_and_last_is_lost_in_whatever_order_the_rest_comes(
    missing: set[int], chance: random.Random
) -> None:
    came = [seq for seq in range(1, 301) if seq not in missing]
    chance.shuffle(came)
    sequences = Sequences()
    for seq in came:
        assert sequences.is_new("gw", "run1", seq, judged=True)
    expected = max(came) - min(came) + 1 - len(came)

    assert sequences.lost() == ([Lost("gw", "run1", expected)] if expected else [])


def test_losses_are_those_of_each_incarnation() -> None:
    sequences = Sequences()
    for incarnation, gone in (("run1", {5, 6}), ("run2", set[int]()), ("run3", {9})):
        for seq in range(1, 20):
            if seq not in gone:
                sequences.is_new("gw", incarnation, seq, judged=True)

    assert sequences.lost() == [Lost("gw", "run1", 2), Lost("gw", "run3", 1)]


def test_beside_the_edges_of_what_was_read_nothing_is_lost() -> None:
    sequences = Sequences()
    for seq in (1, 4, 5, 6, 7, 8, 11):
        sequences.is_new("gw", "run1", seq, judged=4 <= seq <= 8)

    assert sequences.lost() == []


# Coverage


def coverage_with(missing: set[int], seen: range = range(5_100, 5_400), **changed: object) -> Coverage | None:
    stream = Stream()
    for number, producer_id in enumerate(seen):
        stream.next_id = producer_id
        if producer_id not in missing:
            stream.allocate(Client(), START_MS + number, **changed)
    return coverage_of(tallied(stream.events()))


def test_ids_that_no_gateway_saw_went_around() -> None:
    told = coverage_with({5_150, 5_151, 5_399})

    # The last one may not have been allocated at all.
    assert told == Coverage(START_MS, 1, 299, 2, 0, (Gap(5_100, 5_398, 2),))
    assert told.around == 2
    assert round(told.share, 4) == 0.9933


def test_blocks_are_judged_one_by_one() -> None:
    # Between two blocks there are ids that another broker hands out.
    stream = Stream()
    for start in (5_000, 9_000, 40_000):
        for number in range(10):
            stream.next_id = start + 2 * number
            stream.allocate(Client(), START_MS)
    told = coverage_of(tallied(stream.events()))

    assert told is not None
    assert (told.blocks, told.allocated, told.missing) == (3, 57, 27)


def test_an_id_that_produced_through_a_gateway_did_not_go_around() -> None:
    stream = Stream()
    for producer_id in (5_500, 5_502):
        stream.next_id = producer_id
        stream.allocate(Client(), START_MS)
    stream.decide(Client(), START_MS, 5_501)

    assert coverage_of(tallied(stream.events())) == Coverage(START_MS, 1, 3, 0, 0)


def test_storms_and_lost_events_may_hide_what_passed() -> None:
    stream = Stream()
    for producer_id, count in ((5_000, 1), (5_005, 4), (5_020, 1)):
        stream.next_id = producer_id
        stream.allocate(Client(), START_MS + producer_id, count=count)
    events = stream.events()
    tally = tallied(events)
    told = coverage_of(tally)

    assert told is not None
    assert (told.missing, told.hidden, told.around) == (18, 3, 15)

    stream.alive(START_MS + 9_000)
    stream.alive(START_MS + 9_001)
    *_, lost, _last = stream.events()
    tally = tallied(event for event in stream.events() if event.seq != lost.seq)
    told = coverage_of(tally)
    assert told is not None
    assert (told.missing, told.hidden) == (18, 4)


def test_an_answer_that_is_an_error_allocates_nothing() -> None:
    stream = Stream()
    stream.allocate(Client(), START_MS, error=14, answered_producer_id=-1, answered_epoch=-1)
    tally = tallied(stream.events())

    assert isinstance(stream.events()[0], InitProducerIdEvent)
    assert coverage_of(tally) is None
    assert user_pictures(tally, WINDOW, None) == ()


# Bounds


def test_a_user_with_very_many_ids_is_told_exactly_and_by_a_sample() -> None:
    stream = Stream()
    for number in range(3_000):
        stream.producer(Client(), START_MS + 1_000 * number, life_ms=500, requests=1 + number % 3)
    tally = tallied(stream.events(), ids_kept=100)
    told = picture(tally)

    assert (told.new_ids, told.admitted_ids, told.allocated_ids) == (3_000, 3_000, 3_000)
    assert told.one_in == 32
    assert told.requests is not None
    assert told.requests.count <= 100
    assert told.requests.median == 2
    assert Mark.NEW & tally.marks.of(5_000)


def test_a_place_of_few_ids_is_judged_by_all_of_them_beside_one_of_very_many() -> None:
    stream, small, large = Stream(), Client(client_id="loop"), Client(client_id="batch", address="10.0.0.9")
    for number in range(3_000):
        stream.producer(large, START_MS + 1_000 * number, life_ms=500, requests=1)
        if not number % 47:
            stream.producer(small, START_MS + 1_000 * number, life_ms=20_000, requests=40)
    told = picture(tallied(stream.events(), ids_kept=100))

    assert told.one_in > 16
    places = {place.client_ids: place for place in told.places}
    assert [life.one_in for life in places["loop"].lives] == [1] * 64
    assert {life.one_in for life in places["batch"].lives} == {told.one_in}
    assert len(places["batch"].starts) == PLACE_IDS_KEPT
    assert {one.kind for one in findings(told, WINDOW)} == {Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_BATCH}


def test_all_users_together_keep_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.who.tally.MOST_KEPT", 1_000)
    monkeypatch.setattr("pidgate.who.tally.MOST_KEPT_IN_PLACES", 2_000)
    stream = Stream()
    for number in range(5_000):
        client = Client(user=f"user-{number % 20}")
        stream.decide(client, START_MS + number, number, connection_id=number)
    tally = tallied(stream.events())

    assert sum(len(user.ids) for user in tally.users.values()) <= 1_000
    assert sum(len(user.connections) for user in tally.users.values()) <= 1_000
    assert all(len(user.ids) for user in tally.users.values())
    places = [place for user in tally.users.values() for place in user.places.values()]
    assert sum(len(place.ids) for place in places) <= 2_000
    assert [user.new_ids for user in user_pictures(tally, WINDOW, None)] == [250] * 20


def test_users_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.who.tally.MOST_USERS", 3)
    stream = Stream()
    for number in range(8):
        stream.decide(Client(user=f"user-{number % 4}"), START_MS + number, number)
    tally = tallied(stream.events())

    assert set(tally.users) == {"user-0", "user-1", "user-2"}
    assert tally.users_beyond == 2


def test_further_addresses_of_a_family_are_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.who.tally.MOST_PLACES", 5)
    stream = Stream()
    for number in range(20):
        stream.producer(Client(address=f"10.0.0.{number}"), START_MS + number)
    for number in range(10):
        stream.producer(
            Client(address="10.0.1.1", client_id=f"{chr(97 + number)}-app"), START_MS + 30 + number
        )
    told = picture(tallied(stream.events()))

    assert (told.new_ids, told.addresses.names) == (30, 21)
    counts = {(place.address, place.family): place.new_ids for place in told.places}
    of_first = Client().client_id
    assert counts["", of_first] == 15
    assert sorted(counts.values()) == [*[1] * 9, 6, 15], (
        "five places, the rest of a family, four families, all others"
    )
    assert sum(counts.values()) == 30


def test_a_job_in_a_new_pod_each_time_is_known_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.who.tally.MOST_PLACES", 12)
    stream = Stream()
    for number in range(60):
        client = Client(address=f"10.0.0.{number}", client_id="nightly-job")
        stream.producer(client, START_MS + number * 60_000, life_ms=20_000)
    (user,) = user_pictures(tallied(stream.events()), WINDOW, None)
    found = findings(user, WINDOW)

    assert [(one.kind, one.ids) for one in found] == [(Pattern.CRON_JOB, 60)], found
    assert "" not in found[0].addresses


def test_open_connections_are_counted_from_events_that_are_not_parsed() -> None:
    stream, tally = Stream(), Tally()
    at = {"node_id": 1, "close_reason": ""}
    for number in range(5):
        stream.make(ConnectionEvent, START_MS + number, Client(user="al-ice"), phase="open", **at)
    stream.make(ConnectionEvent, START_MS + 9, Client(user="al-ice"), phase="close", count=3, **at)
    stream.make(ConnectionEvent, START_MS + 10, Client(user="bob"), phase="close", **at)
    records = [EventRecord(0, n, one.wall_time_ms, to_json(one)) for n, one in enumerate(stream.events())]

    Intake(tally, Span(START_MS, START_MS + HOUR_MS, START_MS, 0)).take([*records, records[0]])

    assert {name: user.connections_open for name, user in tally.users.items()} == {"al-ice": 2, "bob": -1}
    assert (tally.events, tally.duplicates) == (7, 1)


@pytest.mark.parametrize("closes_first", [False, True])
def test_a_process_ends_with_its_connection_in_whatever_order_it_is_read(closes_first: bool) -> None:
    """Two crash side by side; a third connection has two ids, so its end is nobody's."""
    stream, tally = Stream(), Tally()
    at_ms = {}
    for number in range(3):
        connection = stream.connection()
        for _ in range(1 + number // 2):
            one = stream.producer(Client(), START_MS + number, life_ms=2_000, connection=connection)
            at_ms[one] = (START_MS + 9_000 + number) if number < 2 else START_MS + number + 2_020
        told = {"node_id": 1, "close_reason": "reset" if number else "client", "connection_id": connection}
        stream.make(ConnectionEvent, START_MS + 9_000 + number, Client(), phase="close", **told)
    records = [EventRecord(0, n, one.wall_time_ms, to_json(one)) for n, one in enumerate(stream.events())]
    is_close = [b'"type":"connection"' in one.value for one in records]
    records.sort(key=lambda one: (b'"type":"connection"' in one.value) is not closes_first)
    assert sum(is_close) == 3
    Intake(tally, Span(START_MS, START_MS + HOUR_MS, START_MS, 0)).take(records)

    lives = [life for place in picture(tally).places for life in place.lives]
    assert sorted(life.gone_ms for life in lives) == sorted(at_ms.values())
    assert [life.was_cut for life in sorted(lives, key=lambda one: one.seen_ms)] == [False, True, None, None]
