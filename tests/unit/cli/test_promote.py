"""What a quota would have refused, from recorded events: compared with waits that were computed by hand."""

from __future__ import annotations

from dataclasses import astuple
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from pidgate.cli.arrivals import Balance, History, NewId
from pidgate.cli.promote import in_words, replay
from pidgate.gateway.config.loading import parse
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.settings import Mode, ProducerIdSettings
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

SETTINGS = parse(
    "cluster: {bootstrap_servers: [127.0.0.1:19092]}\nquotas: {default: {producer_ids_rate: 60}}\n"
)
IDS = ProducerIdSettings()
MINUTE_MS = 60_000


def new(at_ms: int, producer_id: int = 1, *, transactional: bool = False) -> NewId:
    return NewId(at_ms, producer_id, "etl", "10.0.0.1", transactional)


def at_once(count: int, at_ms: int = 0) -> list[NewId]:
    return [new(at_ms, number) for number in range(count)]


def outcome(
    ids: list[NewId],
    rate_milli: int | None,
    ids_settings: ProducerIdSettings = IDS,
    first: Balance | None = None,
) -> tuple[int, int, int, int]:
    """Admitted, refused at first, given up, longest wait."""
    return astuple(replay(ids, rate_milli, ids_settings, first).all)


def history_of(stream: Stream, user: str = "alice", from_ms: int = START_MS) -> History:
    """Of records as two partitions deliver them."""
    history = History(user, from_ms)
    values = stream.values()
    for partition in (1, 0):
        history.add_records(
            EventRecord(partition, offset, START_MS, value)
            for offset, value in enumerate(values)
            if offset % 2 == partition
        )
    return history


# ---- the replay ----------------------------------------------------------------------------------------


def test_an_id_without_a_token_waits_for_its_turn() -> None:
    # 60 an hour: 61 pass at once (the balance ends at -1), then one a minute.
    assert outcome(at_once(63), 60_000) == (61, 2, 0, 2 * MINUTE_MS)


def test_a_client_that_gives_up_leaves_its_token_to_the_next() -> None:
    assert outcome(at_once(64), 60_000) == (61, 3, 1, 2 * MINUTE_MS)
    # Had the one that gave up been charged, this one would have waited for a minute.
    assert outcome([*at_once(64), new(3 * MINUTE_MS)], 60_000) == (62, 3, 1, 2 * MINUTE_MS)


def test_tokens_are_refilled_between_arrivals() -> None:
    # The 62nd comes half a minute later and waits the other half; the next one finds no line.
    ids = [*at_once(61), new(30_000), new(2 * MINUTE_MS + 1)]
    assert outcome(ids, 60_000) == (62, 1, 0, 30_000)


def test_the_recorded_balance_is_where_it_begins() -> None:
    first = Balance(0, 2 * IDS.window_ms * 1000, IDS.window_ms * 1000)
    assert outcome(at_once(5), 60_000, first=first) == (3, 2, 0, 2 * MINUTE_MS)


def test_no_limit_refuses_nothing_and_a_blocked_user_gives_up() -> None:
    assert outcome(at_once(2), None) == (2, 0, 0, 0)
    assert outcome(at_once(2), 0) == (0, 2, 2, GIVES_UP_AFTER_MS)
    assert outcome([], 60_000) == (0, 0, 0, 0)


def test_transactional_ids_spend_tokens_and_are_refused_only_where_that_is_set() -> None:
    ids = [new(0, transactional=True) for _ in range(100)] + [new(0)]
    enforced = ProducerIdSettings(transactional=Mode.ENFORCE)

    # However many there were, they leave a debt of one token at most.
    assert outcome(ids, 60_000) == (100, 1, 0, MINUTE_MS)
    assert outcome(ids, 60_000, enforced) == (61, 40, 38, 2 * MINUTE_MS)
    assert outcome(ids, 0) == (100, 1, 1, GIVES_UP_AFTER_MS)


@given(st.lists(st.integers(0, 7_200_000), max_size=60), st.integers(1, 40_000))
def test_every_refused_id_is_admitted_in_time_or_gives_up(times: list[int], rate_milli: int) -> None:
    admitted, refused, gave_up, longest_ms = outcome([new(at_ms) for at_ms in sorted(times)], rate_milli)

    assert admitted + refused == len(times)
    # Of the strict bucket, in two hours and the wait at their end.
    assert admitted + refused - gave_up <= (1 + 2 + 2 / 60) * rate_milli / 1000 + 1
    assert longest_ms == GIVES_UP_AFTER_MS if gave_up else longest_ms <= GIVES_UP_AFTER_MS


# ---- the events ----------------------------------------------------------------------------------------


def crowd(count: int) -> Stream:
    """As many producers in one second."""
    stream = Stream()
    stream.config(START_MS, 60)
    for number in range(count):
        stream.producer(Client(), START_MS + number)
    return stream


def test_only_new_ids_of_the_user_count() -> None:
    stream = crowd(2)
    stream.producer(Client(user="bob"), START_MS + 5)
    stream.decide(Client(), START_MS + 6, 77, reason="refresh")
    stream.decide(Client(), START_MS + 7, 78, "refuse", "first_seen")
    stream.decide(Client(), START_MS + 8, 78, "hold", "held")
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
    history.add_records([EventRecord(0, 99, START_MS, value) for value in other.values()])

    assert len(history.new_ids(24 * HOUR_MS)) == 1
    assert len(history.new_ids(HOUR_MS)) == 2, "it was forgotten in between"
    assert len(history.gateways) == 2


def test_names_that_need_escaping_are_found() -> None:
    stream = Stream()
    stream.producer(Client(user='Jürgen "J"'), START_MS)
    assert len(history_of(stream, 'Jürgen "J"').new_ids(HOUR_MS)) == 1


def test_sums_by_hour_and_by_place() -> None:
    ids = [NewId(number // 100 * HOUR_MS, number, "ab"[number % 2], "::1", False) for number in range(200)]
    found = replay(ids, 60_000, IDS, None)

    # 61 pass at once, two wait for a minute or two (the balance is -1 then), 37 give up. 58 minutes later it is 57.
    assert [(of.admitted, of.refused, of.gave_up) for of in found.by_hour.values()] == [
        (61, 39, 37),
        (58, 42, 40),
    ]
    assert sum(of.refused for of in found.by_place.values()) == found.all.refused == 81
    assert set(found.by_place) == {("a", "::1"), ("b", "::1")}


# ---- what is said --------------------------------------------------------------------------------------


def test_it_is_told_in_words() -> None:
    lines = list(in_words("alice", SETTINGS, history_of(crowd(64)), 24 * HOUR_MS, UTC))

    assert lines == [
        "User alice, quota 60 new producer ids per 1h (as gw-a:9290 told last).",
        "In the last 24h: 64 new producer ids; this quota would have refused 3 of them at first (5 %).",
        "1 would have waited for 2 min or more, after which Java producers give up.",
        "  hour                 new ids   refused   gave up  longest wait",
        "  2026-11-21 13:00          64         3         1         2 min",
        "  client id, address   new ids   refused   gave up  longest wait",
        "  etl, 10.0.3.7             64         3         1         2 min",
    ]


def test_a_quota_that_keeps_nobody_out_for_long_says_so() -> None:
    lines = list(in_words("alice", SETTINGS, history_of(crowd(62)), HOUR_MS, UTC))
    assert lines[2] == "All of these would have been admitted after 1 min at most."


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
        "In the last 1h: no new producer ids, so this quota would have refused none.",
    ]


def test_names_from_outside_do_not_move_the_cursor() -> None:
    stream = Stream()
    stream.config(START_MS, 0)
    stream.producer(Client(client_id="\x1b[2Jevil"), START_MS)
    lines = list(in_words("alice", SETTINGS, history_of(stream), HOUR_MS, UTC))

    assert "blocked: enforcing refuses every new producer id" in lines[0]
    assert any("\\x1b[2Jevil" in line and "2 min" in line for line in lines)
    assert "\x1b" not in "".join(lines)
