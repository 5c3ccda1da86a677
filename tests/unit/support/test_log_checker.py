"""The checker must catch each fault in logs made by hand, and only those."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.load.journal import Label, Outcome, ProducerJournal, read_value, record_value
from tests.support.log_checks import LogCheckFailed, raise_if_bad
from tools.sandbox.log_checker import LogRecord, Verdict, check

FAULTS = ("missing", "doubled", "out_of_order", "misplaced", "never_sent", "damaged", "unexpected")


def journal_of(acknowledged: int, producer: str = "p") -> ProducerJournal:
    journal = ProducerJournal(producer, "t")
    for n in range(acknowledged):
        journal.sent(0, n)
        journal.acknowledged(0, n)
    return journal


def log_of(*numbers: int, producer: str = "p", partition: int = 0) -> list[LogRecord]:
    return [
        LogRecord(partition, offset, record_value(producer, partition, n)) for offset, n in enumerate(numbers)
    ]


def faults(verdict: Verdict) -> dict[str, int]:
    return {fault: len(getattr(verdict, fault)) for fault in FAULTS if getattr(verdict, fault)}


def test_what_was_acknowledged_and_lies_there_once_and_in_order_is_good() -> None:
    verdict = check([journal_of(3)], log_of(0, 1, 2))
    raise_if_bad(verdict)
    assert verdict.is_good
    assert (verdict.acknowledged, verdict.in_log) == (3, 3)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (log_of(0, 2), {"missing": 1}),
        (log_of(), {"missing": 3}),
        (log_of(0, 1, 1, 2), {"doubled": 1}),
        (log_of(0, 1, 2, 0, 1, 2), {"doubled": 3}),
        (log_of(0, 2, 1), {"out_of_order": 1}),
        (log_of(2, 1, 0), {"out_of_order": 2}),
        (log_of(0, 1, 2, 3), {"never_sent": 1}),
        (log_of(2, 0, 0), {"missing": 1, "doubled": 1, "out_of_order": 1}),
        # The same number in another partition is another record, that nobody sent.
        (
            [*log_of(0, 1, 2), LogRecord(1, 0, record_value("p", 0, 1))],
            {"never_sent": 1, "misplaced": 1},
        ),
    ],
)
def test_each_fault_is_found(log: list[LogRecord], expected: dict[str, int]) -> None:
    verdict = check([journal_of(3)], log)
    assert faults(verdict) == expected
    with pytest.raises(LogCheckFailed, match=next(iter(expected)).replace("_", " ")):
        raise_if_bad(verdict)


@given(st.lists(st.integers(0, 5), max_size=9))
def test_exactly_the_whole_log_in_order_is_good(numbers: list[int]) -> None:
    assert check([journal_of(6)], log_of(*numbers)).is_good == (numbers == [0, 1, 2, 3, 4, 5])


def test_an_offset_that_differs_from_the_acknowledged_one_is_found() -> None:
    journal = ProducerJournal("p", "t")
    journal.acknowledged(0, 0, 0)
    journal.acknowledged(0, 1, 7)
    assert faults(check([journal], log_of(0, 1))) == {"misplaced": 1}
    assert check([journal], log_of(0, 1), same_offsets=False).is_good


def test_what_was_raised_may_have_been_written_unless_the_caller_says_no() -> None:
    journal = journal_of(2)
    journal.failed(0, 2, TimeoutError("no answer"))
    journal.failed(0, 3, "refused")
    verdict = check([journal], log_of(0, 1, 2))
    raise_if_bad(verdict)
    assert [str(found) for found in verdict.raised_but_written] == ["p #2 in partition 0 at 2 (no answer)"]
    assert faults(check([journal], log_of(0, 1, 2), raised_may_be_written=False)) == {"unexpected": 1}


def test_a_doubled_record_is_a_fault_though_its_producer_gave_up() -> None:
    journal = journal_of(1)
    journal.failed(0, 1, "gave up")
    assert faults(check([journal], log_of(0, 1, 1))) == {"doubled": 1}


def test_only_acknowledged_records_are_held_to_the_order() -> None:
    journal = ProducerJournal("p", "t")
    journal.failed(0, 0, "gave up")
    journal.acknowledged(0, 1)
    raise_if_bad(check([journal], log_of(1, 0)))


def test_sent_without_an_outcome_is_unknown_in_the_log_or_not() -> None:
    journal = journal_of(1)
    journal.sent(0, 1)
    journal.sent(0, 2)
    verdict = check([journal], log_of(0, 1))
    raise_if_bad(verdict)
    assert [found.note for found in verdict.unknown] == ["in the log", "not in the log"]


def test_producers_and_partitions_do_not_mix() -> None:
    log = log_of(0, producer="a") + log_of(0, producer="b") + log_of(0, producer="stranger")
    verdict = check([journal_of(1, "a"), journal_of(1, "b")], log)
    raise_if_bad(verdict)
    assert (verdict.in_log, verdict.others_in_log) == (2, 1)
    assert faults(check([journal_of(2, "a"), journal_of(1, "b")], log)) == {"missing": 1}


def test_foreign_values_are_faults_only_in_a_topic_of_ours() -> None:
    log = [*log_of(0), LogRecord(0, 1, b"something else")]
    assert check([journal_of(1)], log).is_good
    assert faults(check([journal_of(1)], log, only_ours=True)) == {"damaged": 1}


def test_a_changed_byte_in_the_padding_is_damage() -> None:
    value = bytearray(record_value("p", 0, 0, 100))
    value[60] ^= 1
    damaged = [LogRecord(0, 0, bytes(value))]
    assert faults(check([journal_of(1)], damaged, only_ours=True)) == {"missing": 1, "damaged": 1}


class TestJournal:
    def fill(self, journal: ProducerJournal) -> None:
        for n in range(4):
            journal.sent(n % 2, n, at_ms=10 * n)
        journal.acknowledged(0, 0, 17, at_ms=25)
        journal.acknowledged(1, 1, None, at_ms=26)
        journal.failed(0, 2, ValueError(), at_ms=27)

    def test_survives_a_file(self, tmp_path: Path) -> None:
        written = ProducerJournal.to_file(tmp_path / "p.jsonl", "p", "t")
        self.fill(written)
        written.close()
        read = ProducerJournal.load(tmp_path / "p.jsonl")
        assert read.entries == written.entries
        assert (read.producer, read.topic, read.knows_sent) == ("p", "t", True)

    def test_is_readable_after_a_kill_in_the_middle_of_a_line(self, tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        written = ProducerJournal.to_file(path, "p", "t")
        self.fill(written)
        written.close()
        path.write_text(path.read_text()[:-5])
        read = ProducerJournal.load(path)
        assert read.entries[0, 2].outcome is Outcome.SENT
        assert read.count(Outcome.ACKNOWLEDGED) == 2

    @pytest.mark.parametrize(
        "again",
        [
            lambda journal: journal.sent(0, 0),
            lambda journal: journal.acknowledged(0, 0),
            lambda journal: journal.failed(0, 0, "x"),
        ],
    )
    def test_an_outcome_is_told_once(self, again: Callable[[ProducerJournal], None]) -> None:
        journal = ProducerJournal("p", "t")
        self.fill(journal)
        with pytest.raises(ValueError):
            again(journal)


@given(
    st.text("abc-_.0123456789", min_size=1), st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 200)
)
def test_values_say_whose_they_are(producer: str, partition: int, n: int, size_bytes: int) -> None:
    value = record_value(producer, partition, n, size_bytes)
    assert len(value) >= size_bytes
    assert read_value(value) == Label(producer, partition, n)
