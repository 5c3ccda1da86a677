"""Records of the topic -> tally: which of them belong to the window, and which cannot be read. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from events import Event
from events.reading import EventUnreadable, fields_of, from_json
from gateway.event_log.follower import EventRecord
from gateway.who.span import Span
from gateway.who.tally import Tally


class Intake:
    """Feeds a tally with the records of a span. `unreadable`: records that are no event known here."""

    def __init__(self, tally: Tally, span: Span) -> None:
        self.tally = tally
        self.unreadable = 0
        self._span = span

    def take(self, records: Iterable[EventRecord]) -> None:
        """Records of one partition, in order; partitions in any order."""
        for record in records:
            judged = self._span.judges(record.append_ms)
            try:
                event = from_json(record.value)
            except EventUnreadable:
                self.unreadable += self._span.holds(record.append_ms)
                self._tick(record.value, judged)
                continue
            if self._span.holds(record.append_ms):
                self.tally.add(event, judged=judged)
            else:
                self._tick_event(event)

    def _tick_event(self, event: Event) -> None:
        self.tally.tick(event.gateway_id, event.incarnation, event.seq, judged=False)

    def _tick(self, value: bytes, judged: bool) -> None:
        """A type of a newer gateway cannot be read, but it is not lost."""
        try:
            found = fields_of(value)
        except EventUnreadable:
            return
        names = found.get("gateway_id"), found.get("incarnation")
        seq = found.get("seq")
        if isinstance(names[0], str) and isinstance(names[1], str) and type(seq) is int:
            self.tally.tick(names[0], names[1], seq, judged=judged)
