"""What enforcing would have refused, out of events: against waits that were computed by hand, and a real quota."""

from __future__ import annotations

from datetime import UTC
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pidgate.cli.promote import in_words
from pidgate.cli.would_refuse import Bucket, History, NewId, waits_ms, would_refuse
from pidgate.gateway.config.loading import parse
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.settings import Mode, ProducerIdSettings
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

SETTINGS = parse(
    "cluster: {bootstrap_servers: [127.0.0.1:19092]}\nquotas: {default: {producer_ids_rate: 60}}\n"
)
IDS = ProducerIdSettings()
MINUTE_MS = 60_000


def new(at_ms: int, producer_id: int = 1, *, transactional: bool = False) -> NewId:
    return NewId(at_ms, producer_id, "etl", "10.0.0.1", transactional, False)


def at_once(count: int, at_ms: int = 0) -> list[NewId]:
    return [new(at_ms, number) for number in range(count)]


def history_of(stream: Stream, user: str = "alice", from_ms: int = START_MS) -> History:
    """Of records as two partitions deliver them."""
    history = History(user, from_ms)
    values = stream.values()
    for partition in (1, 0):
        history.take(
            EventRecord(partition, offset, START_MS, value)
            for offset, value in enumerate(values)
            if offset % 2 == partition
        )
    return history


# ---- the replay ----------------------------------------------------------------------------------------


def test_who_finds_no_token_waits_its_turn() -> None:
    # 60 an hour: 61 pass at once (the balance ends at -1), then one every minute.
    assert waits_ms(at_once(63), 60_000, IDS, None) == [0] * 61 + [MINUTE_MS, 2 * MINUTE_MS]


def test_tokens_come_back_between_them() -> None:
    # The 62nd comes half a minute later, and waits the other half; the next has the line to itself.
    ids = [*at_once(61), new(30_000), new(2 * MINUTE_MS + 1)]
    assert waits_ms(ids, 60_000, IDS, None) == [0] * 61 + [30_000, 0]


def test_the_balance_that_was_told_is_where_it_begins() -> None:
    first = Bucket(0, 2 * IDS.window_ms * 1000, IDS.window_ms * 1000)
    assert waits_ms(at_once(5), 60_000, IDS, first) == [0, 0, 0, MINUTE_MS, 2 * MINUTE_MS]


def test_without_a_limit_nobody_waits_and_a_blocked_one_for_ever() -> None:
    assert waits_ms(at_once(2), None, IDS, None) == [0, 0]
    assert waits_ms(at_once(2), 0, IDS, None) == [None, None]


def test_transactional_ids_spend_tokens_and_are_refused_only_when_that_is_set() -> None:
    ids = [new(0, transactional=True) for _ in range(100)] + [new(0)]
    enforced = ProducerIdSettings(transactional=Mode.ENFORCE)

    # However many there were, they leave a debt of one token at most.
    assert waits_ms(ids, 60_000, IDS, None) == [0] * 100 + [MINUTE_MS]
    assert waits_ms(ids, 60_000, enforced, None)[-1] == 40 * MINUTE_MS
    assert waits_ms(ids, 0, IDS, None) == [0] * 100 + [None]


@given(st.lists(st.integers(0, 7_200_000), max_size=60), st.integers(1, 40_000))
def test_turns_are_never_closer_than_the_rate_allows(times: list[int], rate_milli: int) -> None:
    ids = [new(at_ms) for at_ms in sorted(times)]
    waits = waits_ms(ids, rate_milli, IDS, None)
    turns = [one.at_ms + (wait or 0) for one, wait in zip(ids, waits, strict=True)]

    assert all(before <= after for before, after in pairwise(turns))
    for number, turn in enumerate(turns):
        # Of the strict bucket: within any hour at most burst + rate, and one more.
        within = sum(1 for other in turns[: number + 1] if turn - other < HOUR_MS)
        assert within <= 2 * rate_milli / 1000 + 1


# ---- the events ----------------------------------------------------------------------------------------


def crowd(count: int, *, flagged: int = 0) -> Stream:
    """As many producers in one second."""
    stream = Stream()
    stream.config(START_MS, 60)
    for number in range(count):
        stream.producer(Client(), START_MS + number, would_refuse=number >= count - flagged)
    return stream


def test_only_new_ids_of_the_user_count() -> None:
    stream = crowd(2)
    stream.producer(Client(user="bob"), START_MS + 5)
    stream.decide(Client(), START_MS + 6, 77, reason="refresh")
    stream.decide(Client(), START_MS + 7, 78, "refuse", "first_seen")
    stream.decide(Client(), START_MS - 1, 79)
    history = history_of(stream)

    assert [one.at_ms - START_MS for one in history.new_ids(HOUR_MS)] == [20, 21]
    assert history.refused == 1
    assert history.config is not None


def test_an_id_that_two_gateways_let_in_at_once_is_one() -> None:
    stream, other = Stream(), Stream(gateway_id="gw-b:9290", incarnation="run2")
    for each in (stream, other):
        each.decide(Client(), START_MS + 10, 4_711)
        each.decide(Client(), START_MS + 10 + HOUR_MS, 4_711)
    history = history_of(stream)
    history.take([EventRecord(0, 99, START_MS, value) for value in other.values()])

    assert len(history.new_ids(24 * HOUR_MS)) == 1
    assert len(history.new_ids(HOUR_MS)) == 2, "it was forgotten in between"
    assert len(history.gateways) == 2


def test_names_that_need_escaping_are_found() -> None:
    stream = Stream()
    stream.producer(Client(user='Jürgen "J"'), START_MS)
    assert len(history_of(stream, 'Jürgen "J"').new_ids(HOUR_MS)) == 1


def test_sums_by_hour_and_by_place() -> None:
    ids = [
        NewId(number // 100 * HOUR_MS, number, "ab"[number % 2], "::1", False, True) for number in range(200)
    ]
    outcome = would_refuse(ids, 60_000, IDS, None)

    # 61 pass at once and leave -1; 39 wait for a minute each, and leave -1 after 39 minutes. 21 minutes later the
    # balance is 20: 21 pass at once, 79 wait.
    assert [(count.new_ids, count.refused) for count in outcome.by_hour.values()] == [(100, 39), (100, 79)]
    assert outcome.by_hour[0].longest_ms == 39 * MINUTE_MS
    assert sum(count.refused for count in outcome.by_place.values()) == outcome.all.refused == 118
    assert outcome.gave_up == 118 - 2 - 2, "the first two of each hour wait for a minute or two"
    assert outcome.flagged == 200


# ---- what is said --------------------------------------------------------------------------------------


def test_it_is_told_in_words() -> None:
    lines = list(in_words("alice", SETTINGS, history_of(crowd(64, flagged=3)), 24 * HOUR_MS, UTC))

    assert lines == [
        "User alice, quota 60 new producer ids per 1h (as gw-a:9290 told last).",
        "In the last 24h: 64 new producer ids; enforcing would have refused 3 of them at first (5 %).",
        "The longest wait would have been 3 min, if all had gone on trying; 1 would have waited for more than 2m, "
        "after which Java gives up.",
        "  hour                 new ids   refused  longest wait",
        "  2026-11-21 13:00          64         3         3 min",
        "  client id, address   new ids   refused  longest wait",
        "  etl, 10.0.3.7             64         3         3 min",
    ]


def test_what_gateways_counted_is_told_when_it_is_another_number() -> None:
    said = "\n".join(in_words("alice", SETTINGS, history_of(crowd(64)), HOUR_MS, UTC))
    assert "(The gateways themselves counted 0:" in said


def test_the_quota_that_gateways_told_last_holds_over_the_file() -> None:
    stream = crowd(64)
    stream.config(START_MS + 5_000, 60, alice=63)
    lines = list(in_words("alice", SETTINGS, history_of(stream), HOUR_MS, UTC))

    assert lines[0].startswith("User alice, quota 63 new producer ids per 1h")
    assert "would have refused 0 of them" in lines[1]


def test_without_events_the_file_tells_the_quota() -> None:
    lines = list(in_words("alice", SETTINGS, History("alice", 0), HOUR_MS, UTC))

    assert lines == [
        "User alice, quota 60 new producer ids per 1h (as the file says).",
        "In the last 1h: no new producer id was seen; enforcing would have refused nothing.",
    ]


def test_names_from_outside_do_not_move_the_cursor() -> None:
    stream = Stream()
    stream.config(START_MS, 0)
    stream.producer(Client(client_id="\x1b[2Jevil"), START_MS)
    lines = list(in_words("alice", SETTINGS, history_of(stream), HOUR_MS, UTC))

    assert "blocked: enforcing refuses every new producer id" in lines[0]
    assert any("\\x1b[2Jevil" in line and "for ever" in line for line in lines)
    assert "\x1b" not in "".join(lines)
