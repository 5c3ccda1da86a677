"""Events of which a crash loop makes thousands a second: the first few are told as they are, the rest in sums. PURE.

A storm is one (user, client id, address) that opens connections, closes them or asks for producer ids more than ten
times a second. What is beyond is added up, and leaves as one event with a count when the second is over.
"""

from __future__ import annotations

from typing import Final

from pidgate.events import ConnectionEvent, InitProducerIdEvent

Summed = ConnectionEvent | InitProducerIdEvent

PER_SECOND: Final = 10
MOST_CLIENTS: Final = 2_000
"""Told apart within one second; beyond it client ids no longer count, beyond twice as many nothing does: a client
that comes with a new client id each time is a storm, too."""

_Key = tuple[str, str | int, str, str, str]


class _Alike:
    """What came of one kind from one client within this second."""

    __slots__ = ("sum", "told")

    def __init__(self) -> None:
        self.told = 0
        self.sum: Summed | None = None


class EventSampler:
    """Asked about every such event before it is told."""

    def __init__(self) -> None:
        self._second = -1
        self._alike: dict[_Key, _Alike] = {}
        self._over: list[Summed] = []

    def may_tell(self, event: Summed, now_ms: int) -> bool:
        """Whether it is told by itself; False: it has been added to a sum."""
        self._turn(now_ms)
        key = self._key_of(event)
        alike = self._alike.setdefault(key, _Alike())
        if alike.told < PER_SECOND:
            alike.told += 1
            return True
        if alike.sum is None:
            event.connection_id = None
            _, _, event.user, event.client_id, event.address = key
            alike.sum = event
        else:
            _add(alike.sum, event)
        return False

    def sums(self, now_ms: int) -> list[Summed]:
        """Those of seconds that are over, once."""
        self._turn(now_ms)
        over, self._over = self._over, []
        return over

    def all_sums(self) -> list[Summed]:
        """The second that has begun included: nothing more will come."""
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


def _add(total: Summed, event: Summed) -> None:
    """The latest of them stands for all; what can be added is."""
    total.count += event.count
    total.wall_time_ms = event.wall_time_ms
    total.decision_time_ms = event.decision_time_ms
    if isinstance(total, ConnectionEvent) and isinstance(event, ConnectionEvent):
        total.seconds += event.seconds
        total.bytes_in += event.bytes_in
        total.bytes_out += event.bytes_out
        total.requests += event.requests
