"""The replay of one cluster's events: every arrival decided once more, whatever the order in which events are given.

Knows no Spark. All of the events are held at once: it is a proof on recordings, not a job over a month.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pidgate.pipeline.errors import TableUnreadable
from pidgate.quota.decisions import Decision
from tests.support.replay.gateway import GatewayReplay
from tests.support.replay.recorded import RecordedEvent, by_process
from tests.support.replay.topic import Topic


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What an arrival comes to. The first three fields name its event; the others are as in `events`.

    decision: `admit`, `refuse`, or empty when nothing is to be decided (the id is known, or the connection is closed).
    waiting: ids in the user's queue once that is decided.
    """

    gateway_id: str
    incarnation: str
    seq: int
    decision: str = ""
    reason: str = ""
    would_refuse: bool = False
    tokens_before: int | None = None
    tokens_after: int | None = None
    throttle_time_ms: int = 0
    queue_position: int | None = None
    waited_ms: int | None = None
    waiting: int = 0


class _Process:
    """One process, and how far it has come."""

    def __init__(self, name: tuple[str, str], events: list[RecordedEvent], topic: Topic) -> None:
        self.name = name
        self._events = events
        self._arrivals = _next_arrivals(events)
        self._topic = topic
        self._gateway = GatewayReplay(name[1], topic)
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self._next >= len(self._events)

    def go_on(self) -> Iterator[Recomputed]:
        """As far as what it had heard of other gateways is known."""
        while not self.is_over:
            event, arrival = self._events[self._next], self._arrivals[self._next]
            if not self._topic.is_done_below(self._gateway.needs(event, arrival)):
                return
            decision = self._gateway.take(event, arrival)
            self._next += 1
            if event is arrival:
                self._topic.decided(event, decision, self._gateway.token_units)
                yield _recomputed(event, decision, self._gateway.waiting(event))


def _next_arrivals(events: list[RecordedEvent]) -> list[RecordedEvent | None]:
    """Of each event: itself if it is an arrival, or else the first after it."""
    found: list[RecordedEvent | None] = []
    arrival: RecordedEvent | None = None
    for event in reversed(events):
        if event["type"] == "decision":
            arrival = event
        found.append(arrival)
    return found[::-1]


def replayed(events: Iterable[RecordedEvent]) -> Iterator[Recomputed]:
    """Every arrival of one cluster, each decided after all that its gateway had heard by then.

    Columns of decisions are not looked at, and may be missing. Raises TableUnreadable when events contradict each
    other: one had been heard of before it can have happened.
    """
    told = by_process(events)
    topic = Topic(event for events_of in told.values() for event in events_of)
    waiting = [_Process(name, events_of, topic) for name, events_of in told.items()]
    while waiting:
        has_moved = False
        for process in waiting:
            for found in process.go_on():
                has_moved = True
                yield found
        still = [process for process in waiting if not process.is_over]
        if len(still) == len(waiting) and not has_moved:
            names = ", ".join("/".join(process.name) for process in still)
            raise TableUnreadable(f"the events of {names} wait for each other: offsets do not fit the events")
        waiting = still


def _recomputed(event: RecordedEvent, decision: Decision | None, waiting: int) -> Recomputed:
    name = event["gateway_id"], event["incarnation"], event["seq"]
    if decision is None:
        return Recomputed(*name)
    return Recomputed(
        *name,
        "admit" if decision.admitted else "refuse",
        decision.reason.value,
        decision.would_refuse,
        decision.tokens_before,
        decision.tokens_after,
        decision.throttle_time_ms,
        decision.queue_position,
        decision.waited_ms,
        waiting,
    )
