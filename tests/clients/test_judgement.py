"""The matrix' own judgement: a refusal that went wrong is told from one that went well, and cells say what happened."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pidgate.load.journal import ProducerJournal, record_value
from tests.clients.refusal import PARTITIONS, Result, assert_good
from tests.clients.roster import LONG, NO_ID_SHORT, SHORT, TOO_LONG, Client
from tools.sandbox.log_checker import LogRecord, check

RECORDS = SHORT.records
JAVA = Client("java")
AIOKAFKA = Client("aiokafka")
KAFKA_PYTHON = Client("kafka-python")


def _result(raised: int = 0, error: str = "KafkaTimeoutError()", lost: int = 0, unheard: int = 0) -> Result:
    journal = ProducerJournal("p")
    log = []
    for n in range(RECORDS):
        partition, offset = n % PARTITIONS, n // PARTITIONS
        journal.sent(partition, n)
        if n < unheard:
            continue
        if n >= RECORDS - raised:
            journal.failed(partition, n, error)
            continue
        journal.acknowledged(partition, n, offset)
        if n < RECORDS - raised - lost:
            log.append(LogRecord(partition, offset, record_value("p", partition, n)))
    return Result(
        verdict=check([journal], sorted(log, key=lambda record: (record.partition, record.offset))),
        journal=journal,
        records=RECORDS,
        refused={"first_seen": 1, "sticky": 12},
        admitted_after_waiting=1,
        gave_up=0,
        failed_open=0,
        waited_s=40.4,
        told_s=41.0,
        done_s=42.0,
        brokers_written_to={1, 5, 102},
        brokers={1, 5, 102},
        tokens_back_s=6.0,
        inits_refused=0,
        ids_taken=1,
    )


def _started_late() -> Result:
    return replace(_result(), inits_refused=4, refused={}, admitted_after_waiting=0, told_s=6.5, done_s=9.0)


def test_a_good_refusal_passes() -> None:
    assert_good(JAVA, LONG, _result())


def test_only_aiokafka_may_raise_and_only_a_time_out() -> None:
    assert_good(AIOKAFKA, LONG, _result(raised=6))
    for client, trial, error in ((JAVA, LONG, "KafkaTimeoutError()"), (AIOKAFKA, LONG, "UnknownError()")):
        with pytest.raises(AssertionError):
            assert_good(client, trial, _result(raised=6, error=error))
    with pytest.raises(AssertionError):
        assert_good(AIOKAFKA, SHORT, _result(raised=6))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda result: replace(result, refused={}),
        lambda result: replace(result, admitted_after_waiting=0),
        lambda result: replace(result, admitted_after_waiting=2),
        lambda result: replace(result, gave_up=1),
        lambda result: replace(result, failed_open=1),
        lambda result: replace(result, waited_s=0.0),
        lambda result: replace(result, told_s=38.9),
        lambda result: replace(result, done_s=71.0),
        lambda result: replace(result, brokers_written_to={1, 5}),
        lambda result: replace(result, verdict=_result(lost=1).verdict),
    ],
)
def test_each_fault_is_seen(spoil: Callable[[Result], Result]) -> None:
    with pytest.raises(AssertionError):
        assert_good(JAVA, LONG, spoil(_result()))


def test_a_start_without_an_id_passes_once_there_is_one() -> None:
    assert_good(JAVA, NO_ID_SHORT, _started_late())
    assert str(_started_late()) == (
        "4 refusals; begins 0.5 s after tokens were back; 240 of 240 acknowledged, last told after 9.0 s"
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda result: replace(result, inits_refused=0),
        lambda result: replace(result, ids_taken=2),
        lambda result: replace(result, refused={"first_seen": 1}),
        lambda result: replace(result, failed_open=1),
        lambda result: replace(result, told_s=5.4),
        lambda result: replace(result, told_s=22.0, done_s=23.0),
        lambda result: replace(result, done_s=27.0),
        lambda result: replace(result, brokers_written_to={1, 5}),
        lambda result: replace(result, verdict=_result(lost=1).verdict),
        lambda result: replace(result, verdict=_result(raised=1).verdict),
    ],
)
def test_each_fault_of_a_start_is_seen(spoil: Callable[[Result], Result]) -> None:
    with pytest.raises(AssertionError):
        assert_good(JAVA, NO_ID_SHORT, spoil(_started_late()))


def test_who_gives_up_tells_the_application_of_every_record() -> None:
    gave_up = _result(raised=70, error="TimeoutException: Expiring 2 record(s)")
    assert_good(JAVA, TOO_LONG, gave_up)
    for spoiled in (
        _result(),
        _result(raised=70, error="OutOfOrderSequenceNumberError()"),
        _result(raised=70, unheard=1),
        replace(gave_up, told_s=3.0),
        replace(gave_up, verdict=_result(raised=70, lost=1).verdict),
    ):
        with pytest.raises(AssertionError):
            assert_good(JAVA, TOO_LONG, spoiled)


def test_kafka_python_may_hang_after_giving_up_but_only_then() -> None:
    hung = _result(raised=70, unheard=20)
    assert_good(KAFKA_PYTHON, TOO_LONG, hung)
    assert ", 20 never told: it hangs" in str(hung)
    with pytest.raises(AssertionError):
        assert_good(KAFKA_PYTHON, LONG, _result(unheard=20))
