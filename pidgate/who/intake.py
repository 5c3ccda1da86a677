"""Filter between the topic's records and the tally: records of the window, readable or not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pidgate.events.reading import EventUnreadable, fields_of, from_json
from pidgate.gateway.topics.records import EventRecord
from pidgate.who.span import Span
from pidgate.who.tally import Tally

# Only the number of these types is needed. The fields are in the order of events/writing.py; events of any
# other layout are parsed like all others.
_ONLY_TICKED: Final = re.compile(
    rb'\{"schema_version":[0-9]+,"type":"(?:connection|topology)","cluster":"[^"\\]*",'
    rb'"gateway_id":"([^"\\]*)","incarnation":"([^"\\]*)","seq":([0-9]{1,18}),'
)

_CONNECTION: Final = re.compile(
    rb'"wall_time_ms":([0-9]{1,18}),.*"connection_id":([0-9]{1,18}|null),.*"user":"([^"\\]*)","client_id":.*'
    rb'"phase":"(open|close)","node_id":.*"close_reason":"([a-z0-9_]*)",.*"count":([0-9]{1,9})\}$'
)
_BY_CLIENT: Final = (b"client", b"reset")
"""Reasons of closes by clients; all others say nothing of them."""


class Intake:
    """Feeds a tally with the records of a span. `unreadable`: records that are no known event."""

    def __init__(self, tally: Tally, span: Span) -> None:
        self.tally = tally
        self.unreadable = 0
        self._span = span

    def take(self, records: Iterable[EventRecord]) -> None:
        """Process records of one partition in order. Partitions may come in any order."""
        for record in records:
            judged = self._span.judges(record.append_ms)
            ticked = _ONLY_TICKED.match(record.value)
            if ticked is not None and self._span.holds(record.append_ms):
                gateway_id, incarnation = (ticked[part].decode("utf-8", "replace") for part in (1, 2))
                is_new = self.tally.count_unread(gateway_id, incarnation, int(ticked[3]), judged=judged)
                connection = _CONNECTION.search(record.value, ticked.end()) if is_new else None
                if connection is not None:
                    self._connection(incarnation, connection)
                continue
            try:
                event = from_json(record.value)
            except EventUnreadable:
                self.unreadable += self._span.holds(record.append_ms)
                self._tick(record.value, judged)
                continue
            if self._span.holds(record.append_ms):
                self.tally.add(event, judged=judged)
            else:
                self.tally.tick(event.gateway_id, event.incarnation, event.seq, judged=False)

    def _connection(self, incarnation: str, told: re.Match[bytes]) -> None:
        at_ms, connection_id, name, phase, reason, count = told.groups()
        user, many = name.decode("utf-8", "replace"), int(count)
        self.tally.count_connections(user, many if phase == b"open" else -many)
        if reason in _BY_CLIENT and connection_id != b"null":
            was_cut = reason == b"reset"
            self.tally.add_close(incarnation, int(connection_id), int(at_ms), was_cut=was_cut)

    def _tick(self, value: bytes, judged: bool) -> None:
        """Record the number of an event with a newer gateway's type: it cannot be read, but it is not lost."""
        try:
            found = fields_of(value)
        except EventUnreadable:
            return
        names = found.get("gateway_id"), found.get("incarnation")
        seq = found.get("seq")
        if isinstance(names[0], str) and isinstance(names[1], str) and type(seq) is int:
            self.tally.tick(names[0], names[1], seq, judged=judged)
