"""Batches into tables: what is written where, and that a batch handed over again is not taken again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pidgate.client_settings import BadClientSettings, read_client_settings
from pidgate.events.definitions import Event, LifecycleEvent
from pidgate.events.writing import to_json
from pidgate.pipeline.commands.common import duration_ms
from pidgate.pipeline.errors import BadOption, TopicLostData, TopicMissing, raised_in_task
from pidgate.pipeline.ingest import seqs
from pidgate.pipeline.ingest.batches import Batches, How, Taken, losses_between, settle
from pidgate.pipeline.ingest.columns import Place, Reason, Record
from pidgate.pipeline.ingest.commits import CommitLog, Position
from pidgate.pipeline.ingest.compaction import SMALL_BYTES, compact, small_files
from pidgate.pipeline.ingest.loop import waiting
from pidgate.pipeline.ingest.topic import Offsets, Span, Topic, lost_data, spans, unreadable
from tests.unit.events.made_up import a_decision

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables


NOW_MS = 1_763_733_600_000
HOUR_MS = 3_600_000


def decision(seq: int, **changes: Any) -> Event:
    return a_decision(seq=seq, wall_time_ms=NOW_MS - 30_000 + seq, **changes)


def lifecycle(seq: int) -> Event:
    told = {
        name: value
        for name, value in asdict(decision(seq)).items()
        if name in ("cluster", "gateway_id", "incarnation", "seq", "wall_time_ms", "decision_time_ms")
    }
    return LifecycleEvent(**told, phase="alive", mode="enforce", window_ms=1, remember_ms=1)


class Stream:
    """What Spark does: hands batches over, whose offsets follow each other."""

    def __init__(self, tables: Tables, how: How = How(), topic_id: str = "t1") -> None:  # noqa: B008 - frozen
        self.tables = tables
        self.how = how
        self.topic_id = topic_id
        self.first = 0

    def log(self) -> CommitLog:
        return CommitLog(self.tables.files)

    def batches(self, values: Sequence[Event | bytes], offset: int, now: Offsets) -> Batches:
        """As after a start: nothing is known but what lies on the disk."""
        held = {
            offset + number: value if isinstance(value, bytes) else to_json(value)
            for number, value in enumerate(values)
        }

        def read(wanted: Sequence[Span]) -> list[Record]:
            return [
                (held[at], Place(int(span.partition), at, NOW_MS))
                for span in wanted
                for at in span.offsets
                if at in held
            ]

        return Batches(self.tables, self.log(), self.how, self.topic_id, lambda: now, read)

    def take(self, values: Sequence[Event | bytes], offset: int) -> Taken:
        end = offset + len(values)
        batches = self.batches(values, offset, Offsets({"0": self.first}, {"0": end + 7}))
        return batches.take_batch({"0": range(offset, end)}, NOW_MS)

    def seqs(self, word: str = "decision") -> list[int]:
        return sorted(row["seq"] for row in self.tables.query_events(word, "from found"))


@pytest.fixture
def stream(tables: Tables) -> Stream:
    return Stream(tables)


def test_a_batch_becomes_tables_and_the_next_one_leaves_out_what_is_known(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.first = 100
    late = a_decision(seq=4, wall_time_ms=NOW_MS - 25 * HOUR_MS)
    first: list[Event | bytes] = [decision(1), lifecycle(2), decision(3), decision(3), late, b"hello"]
    taken = stream.take(first, 100)
    assert (taken.events, taken.duplicates, taken.behind) == ({"decision": 2, "lifecycle": 1}, 1, 7)
    assert taken.dead == {Reason.LATE: 1, Reason.MALFORMED: 1}

    # What was committed is not asked for again, and is not taken again if it comes; an option was changed meanwhile.
    assert coming(stream, Offsets({"0": 100}, {"0": 110})) == {"0": range(106, 110)}
    stream.how = How(late_after_ms=30 * HOUR_MS)
    taken = stream.take([decision(3), late, decision(5), decision(9)], 106)
    assert (taken.events, taken.duplicates) == ({"decision": 2}, 2)

    rows = stream.tables.query_events("decision", "from found order by seq")
    assert [row["seq"] for row in rows] == [1, 3, 5, 9]
    told = rows[0]
    assert told == asdict(decision(1)) | {
        "schema_version": 1,
        "kafka_partition": 0,
        "kafka_offset": 100,
        "append_time_ms": NOW_MS,
        "day": "2025-11-21",
        "bucket": "7",
    }
    assert stream.seqs("lifecycle") == [2]
    dead = stream.tables.query_at("dead_letters", "from found order by kafka_offset")
    assert [(row["reason"], row["seq"], bytes(row["value"])) for row in dead] == [
        (Reason.LATE, 4, to_json(late)),
        (Reason.MALFORMED, None, b"hello"),
    ]
    check_what_becomes_of_gaps(stream, monkeypatch)


def check_what_becomes_of_gaps(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """6, 7 and 8 never came; a late 7, after compaction, closes a part of the gap."""
    tables, files = stream.tables, stream.tables.files
    account = settle(files, stream.log(), How(gap_after_ms=60_000), NOW_MS + 60_000)
    assert (account.gaps, account.missing, account.lost_offsets) == (1, 3, 100)

    folder = "events/decision/day=2025-11-21/bucket=7"
    assert compact(tables, stream.log()) == 0
    assert compact(tables, stream.log(), at_least=2) == 2
    assert [path.rpartition("/")[2] for path in files.data_files(folder)] == [
        "compacted-0000000004-0.parquet"
    ]
    assert stream.seqs() == [1, 3, 5, 9]
    # Names do not meet: the next batch has a file of its own beside it.
    taken = stream.take([decision(7), decision(3)], 110)
    assert taken.duplicates == 1
    assert stream.seqs() == [1, 3, 5, 7, 9]

    # There are so many processes that it is forgotten; its gaps stay.
    monkeypatch.setattr(seqs, "MOST_INTERVALS", 0)
    assert settle(files, stream.log(), How(gap_after_ms=0), NOW_MS).gaps == 2
    gaps = stream.tables.query_at("gaps", "from found order by first_seq")
    assert [(row["first_seq"], row["last_seq"], row["missing"]) for row in gaps] == [(6, 6, 1), (8, 8, 1)]
    # And without the numbers seen an event would be there twice.
    stream.take([decision(3)], 112)
    assert stream.seqs() == [1, 3, 3, 5, 7, 9]


def coming(stream: Stream, offsets: Offsets, topic_id: str = "t1") -> dict[str, range]:
    return waiting(stream.log().position, topic_id, offsets)


def test_a_partition_of_which_nothing_came_is_passed_only_when_nothing_was_there(stream: Stream) -> None:
    """Transactions leave numbers without records; retention leaves some that are told as lost."""
    stream.take([decision(1)], 0)
    for first_held, following in ((1, 5), (7, 5)):
        batches = stream.batches([], 0, Offsets({"0": first_held}, {"0": 9}))
        start = stream.log().position.next_offsets["0"]
        batches.take_batch({"0": range(start, following + first_held // 7)}, NOW_MS)
        assert stream.log().position.next_offsets == {"0": following}


def test_the_next_batch_is_what_comes_next_and_no_more_than_asked_for() -> None:
    position = Position(topic_id="t1", next_offsets={"0": 10, "1": 20})
    offsets = Offsets({"0": 0, "1": 30, "2": 0}, {"0": 10, "1": 130, "2": 900})

    def batch(most: int, topic_id: str = "t1", until: dict[str, int] | None = None) -> dict[str, range]:
        return Topic("127.0.0.1:1", "t", {}).share(waiting(position, topic_id, offsets, until), most)

    assert batch(1_000) == {"1": range(30, 130), "2": range(0, 900)}
    assert batch(100) == {"1": range(30, 40), "2": range(0, 90)}
    assert batch(1) == {"1": range(30, 31), "2": range(0, 1)}, "each partition goes on"
    assert batch(1_000, until={"0": 10, "1": 30, "2": 7}) == {"2": range(0, 7)}
    assert batch(10_000, "made anew") == {"0": range(0, 10), "1": range(30, 130), "2": range(0, 900)}
    shortened = waiting(position, "t1", Offsets({"0": 0, "1": 0}, {"0": 3, "1": 21}))
    assert shortened == {"0": range(3), "1": range(20, 21)}


def test_events_at_the_offsets_of_a_shortened_topic_are_taken_and_none_twice(stream: Stream) -> None:
    stream.take([decision(1), decision(2), decision(3)], 0)
    held = Offsets({"0": 0}, {"0": 2})  # the last two are gone, and a new one has come in their place
    (again,) = coming(stream, held).values()
    assert again == range(2)
    stream.take([decision(1), decision(4)], 0)
    assert stream.seqs() == [1, 2, 3, 4]
    assert coming(stream, held) == {}
    assert coming(stream, Offsets({"0": 0}, {"0": 5})) == {"0": range(2, 5)}


def test_what_was_lost_between_batches() -> None:
    rows = [(0, 11, 600), (0, 10, 500), (1, 3, 510), (None, 5, 0)]
    columns = ("kafka_partition", "kafka_offset", "seen_ms")
    came = pa.table({name: pa.array(of) for name, of in zip(columns, zip(*rows, strict=True), strict=True)})

    def lost(expected: dict[str, int], first_held: dict[str, int]) -> list[tuple[int, int, int, int]]:
        found = losses_between(expected, came, first_held, "t1")
        return [(one.kafka_partition, one.first_offset, one.last_offset, one.resumed_ms) for one in found]

    assert lost({"0": 10, "1": 3}, {"0": 10, "1": 3}) == []
    assert lost({"0": 7, "1": 3}, {"0": 10, "1": 3}) == [(0, 7, 9, 500)]
    # A hole that retention did not make: transactions leave some.
    assert lost({"0": 7, "1": 3}, {"0": 5, "1": 3}) == []
    assert lost({"0": 7, "1": 3}, {"0": 8, "1": 3}) == [(0, 7, 7, 500)]
    # Removed after it was read.
    assert lost({"0": 10, "1": 3}, {"0": 15, "1": 3}) == []
    # Before the first run.
    assert lost({}, {"0": 10, "1": 0}) == [(0, 0, 9, 500)]


def test_what_the_topic_no_longer_holds_is_told_with_partition_and_offsets() -> None:
    position = Position(topic_id="t1", next_offsets={"0": 10, "1": 20})
    assert lost_data("events", position, "t1", Offsets({"0": 10, "1": 0}, {"0": 10, "1": 99})) is None
    assert lost_data("events", Position(), "t1", Offsets({"0": 10}, {"0": 10})) is None
    told = {
        r"partition 1: offsets 20 to 29 \(10 records\)": (
            "t1",
            Offsets({"0": 0, "1": 30}, {"0": 10, "1": 99}),
        ),
        "partition 0 ends at offset 3, before 10": ("t1", Offsets({"0": 0, "1": 0}, {"0": 3, "1": 99})),
        r"recreated or is a different one \(its id is t2, was t1\)": (
            "t2",
            Offsets({"0": 0, "1": 0}, {"0": 99, "1": 99}),
        ),
    }
    for words, now in told.items():
        with pytest.raises(TopicLostData, match=words):
            raise lost_data("events", position, *now) or AssertionError("no loss was seen")
    assert replace(position, topic_id="") != position


def test_tasks_get_equal_shares_of_the_offsets_each_once() -> None:
    wanted = {"0": range(10, 70), "1": range(0, 1), "2": range(5, 100)}
    for most, sizes in ((1_000, [156]), (100, [78, 78]), (50, [39] * 4), (1, [1] * 156)):
        tasks = spans(wanted, most)
        assert [sum(len(span.offsets) for span in task) for task in tasks] == sizes
        told = [(span.partition, offset) for task in tasks for span in task for offset in span.offsets]
        assert told == [(partition, offset) for partition, offsets in wanted.items() for offset in offsets]
    assert [[span.partition for span in task] for task in spans(wanted, 100)] == [["0", "1", "2"], ["2"]]
    assert spans({}) == []


def test_small_files_of_a_folder_are_merged_up_to_a_size() -> None:
    half = SMALL_BYTES // 2
    sizes = {"a/1": 5, "a/2": SMALL_BYTES, "a/3": half, "a/4": half, "a/5": 7, "a/6": 7, "b/1": 1, "b/2": 1}
    assert small_files(sizes | {"b/_SUCCESS": 0}, 2) == [
        ["a/1", "a/3", "a/4"],
        ["a/5", "a/6"],
        ["b/1", "b/2"],
    ]
    assert small_files(sizes, 3) == [["a/1", "a/3", "a/4"]]


def test_files_of_which_all_is_there_twice_are_left_out(stream: Stream) -> None:
    """The same batch of two hours and types, then again with one event more."""
    first: list[Event | bytes] = [decision(1), lifecycle(2), decision(3), b"hello"]
    stream.take(first, 0)
    taken = stream.take([*first[:3], decision(4)], 4)
    assert (taken.events, taken.duplicates) == ({"decision": 1}, 3)
    assert (stream.seqs(), stream.seqs("lifecycle")) == ([1, 3, 4], [2])
    assert len(list(stream.tables.files.data_files("events/lifecycle"))) == 1


def test_the_driver_has_the_error_of_a_task_and_not_a_stack_of_sparks(stream: Stream) -> None:
    def never_made(_: Sequence[Span]) -> list[Record]:
        raise unreadable("never-made", "broker:9092", "no such topic")

    batches = replace(stream.batches([], 0, Offsets({"0": 0}, {"0": 9})), read=never_made)
    with pytest.raises(Exception, match="TopicMissing") as told:
        batches.take_batch({"0": range(9)}, NOW_MS)
    raised = raised_in_task(told.value)
    assert isinstance(raised, TopicMissing)
    assert str(raised).startswith("topic 'never-made' at broker:9092 cannot be read: no such topic. ")
    assert raised_in_task(ValueError("anything")) is None


def test_settings_of_java_are_said_in_those_of_librdkafka(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    said = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": 'al"ice',
        "sasl.password": "secret=1",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
    }
    begins = "# comment\nsecurity.protocol=SASL_SSL\nkafka.sasl.mechanism = PLAIN\n"
    file.write_text(
        f'{begins}sasl.username=al"ice\nsasl.password=secret=1\nssl.ca.location={tmp_path}/ca.pem\n'
    )
    assert read_client_settings(str(file)) == said
    file.write_text(
        f"{begins}request.timeout.ms=900\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="al\\"ice" password="secret=1";\n'
        "ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\nssl.truststore.type=PEM\n"
    )
    assert read_client_settings(str(file)) == said
    file.write_text("ssl.endpoint.identification.algorithm=")
    assert read_client_settings(str(file)) == {"ssl.endpoint.identification.algorithm": "none"}
    refused = {
        "auto.offset.reset=latest": "auto.offset.reset",
        "nonsense": "line 1",
        "ssl.truststore.location=/a.jks": r"ssl\.truststore\.location is for Java alone",
        'sasl.jaas.config=X required clientSecret="secret";': "has no username and password",
        "sasl.password=secret": "go together",
    }
    for line, words in refused.items():
        file.write_text(line)
        with pytest.raises(BadClientSettings, match=words) as told:
            read_client_settings(str(file))
        assert "secret" not in str(told.value)


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    key, file = tmp_path / "client.key", tmp_path / "client.properties"
    file.write_text(f"ssl.key.location={key}")
    key.write_text("a key")
    key.chmod(0o644)
    with pytest.raises(BadClientSettings, match="chmod 640"):
        read_client_settings(str(file))
    key.chmod(0o640)
    assert read_client_settings(str(file)) == {"ssl.key.pem": "a key"}


def test_durations() -> None:
    assert [duration_ms(text, "--x") for text in ("500ms", "30s", "15m", "24h", "7d")] == [
        500,
        30_000,
        900_000,
        86_400_000,
        604_800_000,
    ]
    with pytest.raises(BadOption, match="--x: '30' is not a duration"):
        duration_ms("30", "--x")
