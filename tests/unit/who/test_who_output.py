"""What `pidgate who` prints: the table at width 100, the JSON, and words for times and names."""

from __future__ import annotations

import io
import json
from datetime import UTC
from typing import Any

import pytest
from rich.console import Console

from pidgate import units
from pidgate.events.writing import to_json
from pidgate.gateway.topics.follower import EventRecord
from pidgate.quota.settings import Mode, Quotas, UserQuota
from pidgate.who import words
from pidgate.who.coverage import Coverage
from pidgate.who.findings import findings
from pidgate.who.intake import Intake
from pidgate.who.painting import picture_of
from pidgate.who.picture import Picture
from pidgate.who.report import report
from pidgate.who.span import MARGIN_MS, Edge, Span, span_of
from pidgate.who.table import coverage_in_words, show
from pidgate.who.tally import Tally
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

END_MS = START_MS + HOUR_MS
SPAN = Span(START_MS, END_MS, START_MS, 0)
MINUTE_MS = 60_000

GOLDEN = """\
New producer ids from 2026-11-21 13:40 to 14:40 (924 events of 1 gateway, cluster MkU3OEVBNTcwNTJENDM2Qg)
user             new ids   from                             median (p90) per id      quota
────────────────────────────────────────────────────────────────────────────────────────────────────
ingest               150   client ingest                    life 20 ms (20 ms)       100 per 1h
                           Java 3.7.0                       requests 1 (1)           observe
                           10.0.3.7                         ids/connection 75 (75)   would refuse 49
etl                  120   client etl                       life 1.3 s (1.3 s)       100 per 1h
                           Java 3.7.0                       requests 4 (4)           observe
                           10.0.3.8                         ids/connection 1 (1)
                                                            1 in use
payments              40   40 clients: pay-7d9f-0,          life 57 min (58 min)     1,000 per 1h
                           pay-7d9f-1 ...                   ids/connection 1 (1)     observe
                           librdkafka 2.3.0                 40 in use
                           40 addresses: 10.4.1.0,
                           10.4.1.1 ...
(unidentified)         3   client x\\x1b[31m[bold]           life 1 h (1 h)           no limit
                           Java 3.7.0                       3 in use
                           10.6.0.1
quiet                  3   Java 3.7.0                                                blocked
                    0 in   10.0.3.7                                                  observe
                   3 out                                                             refused 3
quiet-too              1   client etl                       life 1 ms (1 ms)         100 per 1h
                           Java 3.7.0                       ids/connection 1 (1)     observe
                           10.0.3.7                         1 in use

ingest: client ingest at 10.0.3.7 (Java 3.7.0) opens a producer per batch: 150 new ids in 42 min,
100 % of them sent one request, 100 % lived under a second, 75 ids per connection
    -> Open one producer when the process starts, share it between all threads, and close it when
    the process ends; flush() after a batch instead. Producers are thread-safe; opening one per
    message or per batch costs a producer id each time.
etl: client etl at 10.0.3.8 (Java 3.7.0) is in a restart loop: 120 starts, one after the other,
every 4 s, 120 new ids in 1 h, each in use for about 1.3 s
    -> Find out why the process ends (its log, exit code, out of memory, a liveness probe that is
    too strict), and let the supervisor wait longer after each crash. A job that runs so often
    should keep one process with one producer.
payments: clients pay-*-* at several addresses (librdkafka 2.3.0) are steady: 40 long-lived
producers, 40 new ids
payments: librdkafka 2.3.0 (40 new ids): a refused batch of many records ends an idempotent
producer: FATAL, Unable to reconstruct MessageSet (librdkafka#4736); use librdkafka 2.5.0 or newer
(unidentified): client x\\x1b[31m[bold] at 10.6.0.1 (Java 3.7.0) is steady: 3 long-lived producers, 3
new ids
quiet: too little is known, 3 new ids
quiet: Java 3.7.0 gives up a refused record after 120 s by its default (delivery.timeout.ms); after
30 s with retries 3
quiet-too: too little is known, 1 new id
1 id of 312 allocated since 13:40 was not seen; lost events or summed-up storms account for that.
2 events were lost (dropped by a gateway, of gw-a:9290).
"""


def hour() -> Stream:
    """One of each sort of people."""
    stream = Stream()
    stream.config(START_MS, 100, payments=1_000, quiet=0)
    pools = [stream.connection() for _ in range(2)]
    for number in range(150):
        stream.producer(
            Client(user="ingest", client_id="ingest"),
            START_MS + 17_000 * number + 3_000 * (number % 5),
            life_ms=0,
            connection=pools[number % 2],
            would_refuse=number > 100,
        )
    for start in range(120):
        stream.producer(
            Client(user="etl", address="10.0.3.8"), START_MS + 4_000 * start, life_ms=1_280, requests=4
        )
    for pod in range(40):
        client = Client(
            user="payments",
            client_id=f"pay-7d9f-{pod}",
            address=f"10.4.1.{pod}",
            software=("librdkafka", "2.3.0"),
        )
        stream.producer(client, START_MS + 2 * MINUTE_MS + 2_000 * pod)
    for number in range(3):
        stream.decide(
            Client(user="", client_id="x\x1b[31m[bold]", address="10.6.0.1"), START_MS, 900 + number
        )
    for retry in range(30):
        stream.decide(
            Client(user="quiet", client_id=""), START_MS + retry, 2_000 + retry % 3, "refuse", "blocked"
        )
    stream.next_id += 1
    stream.producer(Client(user="quiet-too"), START_MS + HOUR_MS - 1)
    return stream


def picture(stream: Stream, quotas: Quotas | None = None, missing: frozenset[int] = frozenset()) -> Picture:
    tally = Tally()
    intake = Intake(tally, SPAN)
    values = [
        EventRecord(0, number, event.wall_time_ms, to_json(event))
        for number, event in enumerate(stream.events())
        if event.seq not in missing
    ]
    intake.take(values)
    return picture_of(tally, "__pidgate_events", SPAN, START_MS, intake.unreadable, quotas)


def printed(told: Picture, top: int = 20, width: int = 100) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False, emoji=False)
    users = told.users[:top]
    show(console, told, users, {user.user: findings(user, told.window) for user in users}, UTC)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_the_table_at_width_100() -> None:
    told = picture(hour(), missing=frozenset({40, 41}))

    assert printed(told) == GOLDEN


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_gets_lines_with_whole_names(width: int) -> None:
    told = picture(hour())

    shown = printed(told, width=width)

    assert "from                 40 clients: pay-7d9f-0, pay-7d9f-1 ...\n" in shown
    assert "median (p90) per id  life 57 min (58 min)\n" in shown
    assert max(map(len, shown.splitlines()[1:])) <= width
    assert "\u2026" not in shown


def test_the_json_is_stable() -> None:
    told = picture(hour(), missing=frozenset({40, 41}))
    found = {user.user: findings(user, told.window) for user in told.users}
    text = json.dumps(report(told, told.users, found))
    read: dict[str, Any] = json.loads(text)

    assert list(read) == [
        "schema_version",
        "cluster",
        "topic",
        "window",
        "events",
        "lost_events",
        "lost",
        "gateways",
        "users",
        "users_not_shown",
        "coverage",
        "left_out",
        "notes",
        "shared_ids",
    ]
    assert list(read["users"][0]) == [
        "user",
        "new_ids",
        "admitted_ids",
        "would_refuse_ids",
        "refused_ids",
        "never_admitted_ids",
        "gave_up",
        "after_refusal_ids",
        "open_connections",
        "used_ids",
        "returned_ids",
        "open_ids",
        "long_lived_ids",
        "allocated_ids",
        "unused_ids",
        "transactional_ids",
        "bumped_ids",
        "client_ids",
        "software",
        "addresses",
        "libraries",
        "ids_per_connection",
        "life_ms",
        "requests_per_id",
        "records_per_id",
        "partitions_per_id",
        "sampled_one_in",
        "quota",
        "findings",
    ]
    assert (read["schema_version"], read["lost_events"]) == (1, 2)
    assert read["lost"] == [{"gateway_id": "gw-a:9290", "incarnation": "run1", "events": 2}]
    assert list(read["users"][0]["findings"][0]) == ["kind", "text", "remedy", "ids", "addresses", "evidence"]
    quiet = next(user for user in read["users"] if user["user"] == "quiet")
    assert quiet["quota"] == {
        "producer_ids_rate": 0.0,
        "window_ms": HOUR_MS,
        "mode": "observe",
        "exempt": False,
        "source": "gw-a:9290",
    }
    assert (quiet["refused_ids"], quiet["never_admitted_ids"]) == (3, 3)


def test_the_quotas_of_gateways_go_before_those_of_the_file() -> None:
    file = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(7))
    stream = Stream()
    stream.producer(Client(), START_MS)
    [from_file] = picture(stream, file).users
    stream.config(START_MS, 30)
    stream.config(START_MS + 5, 40)
    [from_gateway] = picture(stream, file).users

    assert from_file.quota is not None
    assert (from_file.quota.effective.rate_milli, from_file.quota.source) == (7_000, "file")
    assert from_gateway.quota is not None
    assert (from_gateway.quota.effective.rate_milli, from_gateway.quota.source) == (40_000, "gw-a:9290")


# Coverage in words


@pytest.mark.parametrize(
    ("coverage", "words"),
    [
        (
            Coverage(START_MS, 2, 1_000, 31, 0),
            "About 96.9 % of the ids allocated since 13:40 passed the gateway; 31 did not: some producers "
            "bypass it.",
        ),
        (
            Coverage(START_MS, 2, 100_000, 31, 30),
            "About 99.9 % of the ids allocated since 13:40 passed the gateway; 1 did not (and 30 more may not "
            "have): some producers bypass it.",
        ),
        (
            Coverage(START_MS, 2, 1_000, 31, 31),
            "31 ids of 1,000 allocated since 13:40 were not seen; lost events or summed-up storms account for "
            "that.",
        ),
        (Coverage(START_MS, 2, 1_000, 0, 0), "All of the 1,000 ids allocated since 13:40 passed a gateway."),
    ],
)
def test_coverage_in_words(coverage: Coverage, words: str) -> None:
    assert coverage_in_words(coverage, UTC) == words


# Which records count


def test_an_event_of_the_margin_is_not_told_but_not_lost_either() -> None:
    stream = Stream()
    for number in range(10):
        stream.alive(START_MS - 3_000 + 1_000 * number)
    records = [EventRecord(0, event.seq, event.wall_time_ms, to_json(event)) for event in stream.events()]
    tally = Tally()
    # Partitions are read at different speeds: later ones may come first.
    Intake(tally, SPAN).take([*records[5:], *records[:5]])

    assert tally.events == 7
    assert tally.sequences.lost() == []


def test_beside_the_end_nothing_is_lost_yet() -> None:
    stream = Stream()
    for number in range(30):
        stream.alive(END_MS - MARGIN_MS - 15_000 + 1_000 * number)
    missing = {5, 20, 25}
    tally = Tally()
    Intake(tally, SPAN).take(
        EventRecord(0, event.seq, event.wall_time_ms, to_json(event))
        for event in stream.events()
        if event.seq not in missing
    )

    assert [lost.events for lost in tally.sequences.lost()] == [1]


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        # The topic reaches back further than asked.
        ([Edge(0, 10, START_MS + 5, 20)], (START_MS, START_MS)),
        # It was made within the window.
        ([Edge(0, 0, START_MS + 500, 20), Edge(0, 0, START_MS + 900, 9)], (START_MS + 500, START_MS + 500)),
        # Retention cut one partition within the window, the other one reaches back.
        ([Edge(7, 7, START_MS + 500, 20), Edge(0, 3, START_MS + 9, 9)], (START_MS, START_MS + 500)),
        # Both are cut.
        ([Edge(7, 7, START_MS + 500, 20), Edge(4, 4, START_MS + 900, 9)], (START_MS + 500, START_MS + 900)),
        # Nothing in it.
        ([Edge(0, 0, None, 0)], (START_MS, START_MS)),
    ],
)
def test_how_far_back_the_topic_reaches(edges: list[Edge], expected: tuple[int, int]) -> None:
    span = span_of(edges, START_MS, END_MS)

    assert (span.from_ms, span.whole_from_ms) == expected
    assert span.records == sum(edge.end - edge.start for edge in edges)


# Words


def test_names_from_outside_move_no_cursor_and_have_an_end() -> None:
    assert units.printable("a\x1b[2Jb\n\u202e\udc80") == "a\\x1b[2Jb\\n\\u202e\\udc80"
    assert len(units.printable("x" * 32_000)) == units.MOST_CHARACTERS
    assert words.software("apache-kafka-java 3.7.0") == "Java 3.7.0"
    assert words.software("librdkafka 2.3.0") == "librdkafka 2.3.0"
    assert words.user("") == "(unidentified)"
