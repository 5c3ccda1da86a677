"""Bounds on events that a crash loop makes by the thousand: sums and counts. PURE.

Connections and InitProducerId requests: each (user, client id, address) may publish ten events of a kind per
second. Further ones are summed into one event with a count, published when the second is over. Refusals:
attempts are counted per refused id.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from pidgate.events.definitions import ConnectionEvent, InitProducerIdEvent
from pidgate.quota.decisions import Client
from pidgate.quota.entities import User

Summed = ConnectionEvent | InitProducerIdEvent

PER_SECOND: Final = 10
MOST_CLIENTS: Final = 2_000
"""Clients distinguished within one second. Above it client ids are ignored; above twice as many, all clients
count as one. A client with a new client id each time is therefore sampled too."""
MOST_REFUSED_IDS: Final = 20_000
"""About 6 MB. Attempts of further ids are not counted."""

_Key = tuple[str, str | int, str, str, str]


class _Alike:
    """Events of one kind from one client within this second."""

    __slots__ = ("published", "sum")

    def __init__(self) -> None:
        self.published = 0
        self.sum: Summed | None = None


class EventSampler:
    """Sampling of connection and InitProducerId events: published individually, or summed."""

    def __init__(self) -> None:
        self._second = -1
        self._alike: dict[_Key, _Alike] = {}
        self._over: list[Summed] = []

    def sum_of(self, event_type: str, kind: str | int, client: Client, now_ms: int) -> Summed | None:
        """Return the sum to which an event of this kind would be added. None: make the event.

        Of a fleet that reconnects most events are only counted, and making one costs as much as all else about it.
        """
        self._turn(now_ms)
        alike = self._alike.get((event_type, kind, client.user, client.client_id, client.address))
        return None if alike is None else alike.sum

    def may_publish(self, event: Summed, now_ms: int) -> bool:
        """Return whether the event is published individually; otherwise it has been added to a sum."""
        self._turn(now_ms)
        key = self._key_of(event)
        alike = self._alike.setdefault(key, _Alike())
        if alike.published < PER_SECOND:
            alike.published += 1
            return True
        if alike.sum is None:
            event.connection_id = None
            _, _, event.user, event.client_id, event.address = key
            alike.sum = event
        else:
            _add(alike.sum, event)
        return False

    def sums(self, now_ms: int) -> list[Summed]:
        """Return the sums of past seconds, each once."""
        self._turn(now_ms)
        over, self._over = self._over, []
        return over

    def all_sums(self) -> list[Summed]:
        """Return all sums, including the current second. Nothing may follow."""
        self._second = -1
        self._end_second()
        over, self._over = self._over, []
        return over

    def _turn(self, now_ms: int) -> None:
        if now_ms // 1000 != self._second:
            self._end_second()
            self._second = now_ms // 1000

    def _end_second(self) -> None:
        self._over += [alike.sum for alike in self._alike.values() if alike.sum is not None]
        self._alike.clear()

    def _key_of(self, event: Summed) -> _Key:
        kind = event.phase if isinstance(event, ConnectionEvent) else event.error
        key: _Key = (event.type, kind, event.user, event.client_id, event.address)
        if key not in self._alike:
            if len(self._alike) >= MOST_CLIENTS:
                key = (event.type, kind, event.user, "", event.address)
            if len(self._alike) >= 2 * MOST_CLIENTS:
                key = (event.type, kind, "", "", "")
        return key


def count(total: Summed, wall_ms: int, decision_ms: int, events: int = 1) -> None:
    """Count one more event at this time in a sum."""
    total.count += events
    total.wall_time_ms = wall_ms
    total.decision_time_ms = decision_ms


def _add(total: Summed, event: Summed) -> None:
    """Add `event` to `total`: times become the latest ones, numbers are summed."""
    count(total, event.wall_time_ms, event.decision_time_ms, event.count)
    if isinstance(total, ConnectionEvent) and isinstance(event, ConnectionEvent):
        total.seconds += event.seconds
        total.bytes_in += event.bytes_in
        total.bytes_out += event.bytes_out
        total.requests += event.requests


class Refused(NamedTuple):
    """A refused id that has not been admitted."""

    attempts: int
    client_id: str
    address: str


class RefusedIds:
    """Bounded table of refused ids and their attempts. The id refused longest ago is dropped first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[User, int], Refused] = OrderedDict()

    def refused(self, user: User, producer_id: int, client_id: str, address: str) -> None:
        """Count one more attempt of this id."""
        key = (user, producer_id)
        known = self._ids.pop(key, None)
        self._ids[key] = Refused(known.attempts + 1 if known else 1, client_id, address)
        if len(self._ids) > MOST_REFUSED_IDS:
            self._ids.popitem(last=False)

    def ended(self, user: User, producer_id: int) -> Refused | None:
        """Remove and return the id after its admission or its last attempt. None when it is unknown."""
        return self._ids.pop((user, producer_id), None)
