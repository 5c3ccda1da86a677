"""The recorded day of a user replayed at other rates: a process of its own that a gateway starts for its page.

`python -m pidgate.cli.what_if` reads the question from its standard input, and writes the answer as JSON. The events
topic is read; without one, the events that come with the question.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pidgate.cli.arrivals import History, NewId, in_json, may_be_of, outcomes
from pidgate.events.definitions import IdUsageEvent
from pidgate.events.reading import EventUnreadable, from_json
from pidgate.events.redaction import UserNames
from pidgate.gateway.present.question import Question
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.records import EventRecord
from pidgate.units import about_duration, counted
from pidgate.who.reading import CannotRead, read
from pidgate.who.span import Span

JsonObject = dict[str, Any]

MOST_RECORDS: Final = 150_000
"""Read within some seconds. Of a busier day the latest hours are replayed."""
LEAST_MS: Final = 3_600_000
"""Less record than that says little; a window of the quota at least."""
REPLICAS: Final = 3


class TooMany(Exception):
    """The topic has more records of that time than can be read."""

    def __init__(self, records: int) -> None:
        super().__init__(records)
        self.records = records


class Usage:
    """Requests, records and partitions of each id of a user."""

    def __init__(self, user: str) -> None:
        self._in_json = in_json(user)
        self._by_id: dict[int, list[int]] = {}

    def add_records(self, records: Iterable[EventRecord]) -> None:
        for record in records:
            if not may_be_of(record, "id_usage", self._in_json):
                continue
            try:
                event = from_json(record.value)
            except EventUnreadable:
                continue
            if isinstance(event, IdUsageEvent):
                known = self._by_id.setdefault(event.producer_id, [0, 0, 1])
                known[0] += event.requests
                known[1] += event.records
                known[2] = max(known[2], event.partitions)

    def of(self, ids: Iterable[NewId]) -> tuple[int, int, int]:
        """Return the requests, records and partitions of these ids in sum. An id of unknown use has one partition."""
        sums = [0, 0, 0]
        for new in ids:
            for place, number in enumerate(self._by_id.get(new.producer_id, (0, 0, 1))):
                sums[place] += number
        return sums[0], sums[1], sums[2]


async def _read(question: Question, history: History, usage: Usage) -> int:
    """Read the record; return where it begins (wall clock)."""
    if question.events is not None:
        records = [EventRecord(0, number, *event) for number, event in enumerate(question.events)]
        history.add_records(records)
        usage.add_records(records)
        return question.whole_from_wall_ms
    settings, to_ms = question.settings, question.wall_ms
    found = [question.from_wall_ms]

    def begin(span: Span) -> None:
        if span.records > MOST_RECORDS:
            raise TooMany(span.records)
        found[0] = span.from_ms

    def take(records: list[EventRecord]) -> None:
        history.add_records(records)
        usage.add_records(records)

    kafka = OwnClient.from_settings(settings)
    while True:
        try:
            await read(kafka, settings.events.topic, found[0], to_ms, begin, take)
        except TooMany as many:
            found[0] = to_ms - round((to_ms - found[0]) * 0.8 * MOST_RECORDS / many.records)
        else:
            return found[0]


def answer(question: Question) -> JsonObject:
    """Return what each rate would have refused."""
    name = UserNames(question.settings.events.redact).in_events(question.user)
    history, usage = History(name, question.from_wall_ms), Usage(name)
    try:
        from_ms = asyncio.run(_read(question, history, usage))
    except CannotRead as error:
        return {"error": f"the record cannot be read: {error.cause}; {error.remedy}"}
    settings = question.producer_ids
    ids = history.new_ids(settings.remember_ms)
    length_ms = max(0, question.wall_ms - from_ms)
    needed_ms = max(LEAST_MS, settings.window_ms)
    not_enough = ""
    if length_ms < needed_ms:
        held, needed = about_duration(length_ms), about_duration(needed_ms)
        not_enough = f"Not enough record: it holds {held}, and needs {needed}"
    elif not ids:
        not_enough = "Not enough record: it holds no new id of this user"
    return {
        "user": question.user,
        "from_wall_ms": from_ms,
        "wall_ms": question.wall_ms,
        "new_ids": len(ids),
        "recorded": f"{counted(len(ids), 'new id')} in the last {about_duration(length_ms)}",
        "not_enough": not_enough,
        "rows": [_row(rate, ids, history, usage, question) for rate in question.rates],
    }


def _row(rate: float, ids: Sequence[NewId], history: History, usage: Usage, question: Question) -> JsonObject:
    parts = outcomes(ids, round(rate * 1_000), question.producer_ids, history.first)
    lost = [new for new, part in zip(ids, parts, strict=True) if part.gave_up]
    kept = [new for new, part in zip(ids, parts, strict=True) if not part.gave_up]
    requests, records, _ = usage.of(lost)
    since_ms = question.wall_ms - question.producer_ids.remember_ms
    _, _, partitions = usage.of(new for new in kept if new.at_ms >= since_ms)
    brokers = max(1, question.brokers)
    return {
        "rate": rate,
        "refused_ids": sum(part.refused for part in parts),
        "lost_ids": len(lost),
        "lost_requests": requests,
        "lost_records": records,
        "longest_wait_ms": max((part.longest_wait_ms for part in parts), default=0),
        "states_per_broker": round(partitions * min(REPLICAS, brokers) / brokers),
    }


def main() -> None:
    os.nice(19)  # clients before it
    question = pickle.load(sys.stdin.buffer)
    assert isinstance(question, Question)
    print(json.dumps(answer(question)))


if __name__ == "__main__":
    main()
