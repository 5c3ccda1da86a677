"""What a quota would have refused, from recorded events: compared with waits that were computed by hand."""

from __future__ import annotations

from dataclasses import astuple
from datetime import UTC

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


def test_transactional_ids_spend_tokens_and_are_refused_only_where_that_is_set() -> None:
    ids = [new(0, transactional=True) for _ in range(100)] + [new(0)]
    enforced = ProducerIdSettings(transactional=Mode.ENFORCE)

    # However many there were, they leave a debt of one token at most.
    assert outcome(ids, 60_000) == (100, 1, 0, MINUTE_MS)
    assert outcome(ids, 60_000, enforced) == (61, 40, 38, 2 * MINUTE_MS)
    assert outcome(ids, 0) == (100, 1, 1, GIVES_UP_AFTER_MS)


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
