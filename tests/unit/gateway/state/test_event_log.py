"""Whether the topic has all events decides how often a snapshot is taken."""

from __future__ import annotations

from typing import Any

from pidgate.gateway.state.event_log import EventLog
from pidgate.gateway.state.record_accumulator import RecordAccumulator
from pidgate.gateway.topics.own_client import OwnClient
from tests.simulator.gateway import configured
from tests.support.rules import rule


def log_of(**config: Any) -> EventLog:
    settings = configured("gw", "broker:1", **config)
    return EventLog(settings, OwnClient.from_settings(settings), lambda _topic_id: None)


def test_without_a_topic_every_event_is_missing_there() -> None:
    log = log_of()
    log.publish("alice", b"{}")
    assert log.lacks_events()
    assert log.lacks_events()


def written(log: EventLog) -> RecordAccumulator:
    """Return the events that wait, with two partitions to go to: "a" to the first, "b" to the second."""
    assert log.publisher is not None
    log.publisher._waiting = RecordAccumulator(lambda key, _partitions: key[0] % 2 ^ 1)
    log.publisher._waiting.shape(2)
    return log.publisher._waiting


@rule("An admission is on the topic within 200 ms, or in a snapshot within 5 s.", "fleet")
def test_an_event_is_missing_once_it_waits_from_one_look_to_the_next() -> None:
    log = log_of(events={"enabled": True})
    waiting = written(log)
    assert not log.lacks_events()
    log.publish("a", b"1")
    assert not log.lacks_events(), "it is on its way"
    assert log.lacks_events()
    (first,) = waiting.ready()
    waiting.leave(first, 1)
    assert not log.lacks_events()


def test_events_of_another_partition_that_arrive_do_not_hide_it() -> None:
    log = log_of(events={"enabled": True})
    waiting = written(log)
    log.publish("a", b"stuck")
    log.lacks_events()
    for _ in range(3):
        log.publish("b", b"passes")
        _, second = waiting.ready()
        waiting.leave(second, 1)
        assert log.lacks_events()


def test_nor_does_another_number_of_partitions() -> None:
    log = log_of(events={"enabled": True})
    waiting = written(log)
    for key in "ba":
        log.publish(key, b"old")
    waiting.ready()
    log.lacks_events()
    waiting.shape(1)
    assert waiting.oldest == 0
    log.publish("a", b"new")
    waiting._partition_of = lambda _key, _partitions: 0
    (queue,) = waiting.ready()
    waiting.leave(queue, 1)
    assert log.lacks_events()
    waiting.leave(queue, 2)
    assert not log.lacks_events()
