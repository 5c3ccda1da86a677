"""What became of each producer id, written line by line and read back."""

import io
import json
from pathlib import Path
from typing import Any

from tools.sandbox.journal import whole_lines
from tools.sandbox.producers.batch_journal import BatchJournal, JournalWriter


def read_back(file: io.StringIO) -> BatchJournal:
    journal = BatchJournal()
    journal.replay(whole_lines(io.StringIO(file.getvalue())))
    return journal


def test_an_id_that_was_refused_and_then_admitted() -> None:
    file = io.StringIO()
    writer = JournalWriter(file, "mallory", "clicks")
    writer.note("began", producer_id=7, producer="etl-1", address="127.0.0.66:5")
    writer.note("refused", producer_id=7, error_code=19, throttle_time_ms=9000, message="7 is new")
    writer.note("acknowledged", producer_id=7, partitions=200)

    journal = read_back(file)

    life = journal.lives[7]
    assert (journal.user, journal.topic) == ("mallory", "clicks")
    assert (life.producer, life.address, life.partitions) == ("etl-1", "127.0.0.66:5", 200)
    assert [(it.error_code, it.throttle_time_ms, it.message) for it in life.refusals] == [
        (19, 9000, "7 is new")
    ]
    assert life.is_acknowledged
    assert life.is_settled
    assert journal.acknowledged == journal.refused == [life]
    assert journal.waiting == journal.given_up == []


def test_each_end_is_told_from_the_others() -> None:
    file = io.StringIO()
    writer = JournalWriter(file, "mallory", "clicks")
    for producer_id in (1, 2, 3, 4):
        writer.note("began", producer_id=producer_id, producer="etl-1", address="127.0.0.66:5")
    for producer_id in (1, 2):
        writer.note("refused", producer_id=producer_id, error_code=19, throttle_time_ms=100, message="")
    writer.note("gave_up", producer_id=1)
    writer.note("lost", producer_id=3)

    journal = read_back(file)

    assert [life.producer_id for life in journal.given_up] == [1]
    assert [life.producer_id for life in journal.waiting] == [2]
    assert [life.producer_id for life in journal.lost] == [3]
    assert not journal.lives[4].is_settled


def test_waiting_is_counted_from_the_first_batch_to_the_end_of_refused_ids_only() -> None:
    lines: list[dict[str, Any]] = [
        {"event": "journal", "user": "mallory", "topic": "clicks"},
        {"event": "began", "producer_id": 1, "producer": "p", "address": "a:1", "at_ms": 1_000},
        {
            "event": "refused",
            "producer_id": 1,
            "error_code": 19,
            "throttle_time_ms": 5,
            "message": "",
            "at_ms": 1_010,
        },
        {"event": "gave_up", "producer_id": 1, "at_ms": 4_000},
        {"event": "began", "producer_id": 2, "producer": "p", "address": "a:1", "at_ms": 1_000},
        {"event": "acknowledged", "producer_id": 2, "partitions": 1, "at_ms": 1_020},
    ]
    journal = BatchJournal()
    journal.replay(lines)

    assert (journal.lives[1].waited_ms, journal.lives[2].waited_ms) == (3_000, 0)


def test_connections_that_could_not_be_had_are_counted_by_error() -> None:
    file = io.StringIO()
    writer = JournalWriter(file, "mallory", "clicks")
    writer.note("trouble", error="refused")
    writer.note("trouble", error="refused")
    writer.note("trouble", error="TimeoutError")

    assert read_back(file).troubles == {"refused": 2, "TimeoutError": 1}


def test_a_line_cut_off_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    began = {"event": "began", "producer_id": 1, "producer": "p", "address": "a:1", "at_ms": 0}
    path = tmp_path / "journal"
    path.write_text(json.dumps(began) + "\n" + '{"event": "acknowl')

    assert not BatchJournal.load(path).lives[1].is_settled
