"""Queue of one user's producer ids that were refused and came back. PURE.

A client that crashes never comes back with the same id; one with data to lose does. Served round-robin over addresses,
within one over client ids, in order of arrival within that, so that a process with many waiting ids does not keep
another machine of the same user waiting. For the same reason the longest lane loses its last place when there is no
room for a shorter one. An id whose throttle has been over for a while is late: the queue serves the next id that comes,
and the late one keeps its place for its return. Must not know tokens.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FORGOTTEN_AFTER_MS = 30_000
"""Beyond max_throttle: longer than any client's back-off between retries."""

LATE_AFTER_MS: Final = 2_000
"""Time after its throttle at which an id is late. Clients come back within a second or two."""


@dataclass(slots=True)
class Waiting:
    """One id in line. `first_refused_ms`: when its wait began; `attempts`: how often it was refused so far.

    told_until_ms   end of its latest throttle
    patience_ms     how long its client's library sends a refused record by default. None: unknown
    is_passed_over  it is late, and not in its lane
    """

    producer_id: int
    address: str
    client_id: str
    arrival: int
    first_refused_ms: int
    last_seen_ms: int
    attempts: int
    told_until_ms: int = 0
    is_passed_over: bool = False
    patience_ms: int | None = None

    @property
    def gives_up_ms(self) -> int | None:
        """Return when its client gives up. None: unknown."""
        return None if self.patience_ms is None else self.first_refused_ms + self.patience_ms


_Line = list[int]  # arrival numbers, ascending: places within are found by bisection


class _Lane:
    """The lines of one address by client id, in order of service, and how many ids they hold together."""

    __slots__ = ("lines", "size")

    def __init__(self) -> None:
        self.lines: OrderedDict[str, _Line] = OrderedDict()
        self.size = 0


class RetryQueue:
    """At most `limit` ids. `waiting`, read-only outside, has the id that was not seen for longest at its front."""

    __slots__ = ("_arrivals", "_id_of_arrival", "_lanes", "limit", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()
        self._id_of_arrival: dict[int, int] = {}
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        self._arrivals = 0

    def enqueue(
        self,
        producer_id: int,
        address: str,
        client_id: str,
        *,
        first_refused_ms: int,
        now_ms: int,
        patience_ms: int | None = None,
    ) -> bool:
        """Put the id in line, if there is room; return whether it is in line."""
        waiting = self.waiting.get(producer_id)
        if waiting is not None:
            waiting.last_seen_ms = now_ms
            waiting.attempts += 1
            self.waiting.move_to_end(producer_id)
            if waiting.is_passed_over:
                waiting.is_passed_over = False
                self._enter(waiting)
            return True
        if len(self.waiting) >= self.limit and not self._make_room(address, client_id):
            return False
        self._arrivals += 1
        self._id_of_arrival[self._arrivals] = producer_id
        waiting = self.waiting[producer_id] = Waiting(
            producer_id,
            address,
            client_id,
            self._arrivals,
            first_refused_ms,
            now_ms,
            attempts=2,
            patience_ms=patience_ms,
        )
        self._enter(waiting)
        return True

    def note_throttle(self, producer_id: int, until_ms: int) -> None:
        """Note until when the id is throttled."""
        self.waiting[producer_id].told_until_ms = until_ms

    def pass_over_late(self, now_ms: int) -> None:
        """Take the ids that are late out of their lanes."""
        for waiting in self.waiting.values():
            if waiting.last_seen_ms > now_ms - LATE_AFTER_MS:
                break
            if not waiting.is_passed_over and now_ms - waiting.told_until_ms >= LATE_AFTER_MS:
                self._leave(waiting)
                waiting.is_passed_over = True

    def place_of(self, producer_id: int) -> int:
        """Return how many ids are served before this one (0 = next). In O(addresses + client ids), not in O(ids)."""
        waiting = self.waiting[producer_id]
        lane = self._lanes[waiting.address]
        round_in_lane = bisect_left(lane.lines[waiting.client_id], waiting.arrival)
        clients = ((client, len(line)) for client, line in lane.lines.items())
        turn = _served_before(clients, waiting.client_id, round_in_lane)
        addresses = ((address, other.size) for address, other in self._lanes.items())
        return _served_before(addresses, waiting.address, turn)

    def remove(self, producer_id: int) -> None:
        """Take out an admitted id. Its client and its address go to the end of their rotations."""
        waiting = self._take_out(producer_id)
        lane = self._lanes.get(waiting.address)
        if lane is not None:
            if waiting.client_id in lane.lines:
                lane.lines.move_to_end(waiting.client_id)
            self._lanes.move_to_end(waiting.address)

    def drop_unseen_since(self, before_ms: int) -> list[Waiting]:
        """Take out the ids last seen before that time: they gave up."""
        gone: list[Waiting] = []
        while self.waiting:
            waiting = next(iter(self.waiting.values()))
            if waiting.last_seen_ms >= before_ms:
                break
            gone.append(self._take_out(waiting.producer_id))
        return gone

    def oldest_first_refused_ms(self) -> int | None:
        """Return when the longest wait began, None when no id waits."""
        return min((waiting.first_refused_ms for waiting in self.waiting.values()), default=None)

    def next_gives_up_ms(self) -> int | None:
        """Return when the first waiting client with a known library gives up. None: no library is known."""
        ends = (waiting.gives_up_ms for waiting in self.waiting.values())
        return min((end_ms for end_ms in ends if end_ms is not None), default=None)

    def _make_room(self, address: str, client_id: str) -> bool:
        """Take out a late id, or the last id of the longest lane for one of a shorter lane. Returns success.

        The lane must be shorter by at least two, or the two lanes would push each other out in turn. The same holds
        for the lines of client ids within a lane.
        """
        unseen = next(iter(self.waiting.values()), None)
        if unseen is not None and unseen.is_passed_over:
            self._take_out(unseen.producer_id)
            return True
        longest = max(self._lanes.values(), key=_size, default=None)
        own = self._lanes.get(address)
        if longest is None:
            return False
        own_size = 0 if own is None else own.size
        if longest.size > own_size + 1:
            line = max(longest.lines.values(), key=len)
        else:
            lines = {} if own is None else own.lines
            line = max(lines.values(), key=len, default=[])
            if len(line) <= len(lines.get(client_id, ())) + 1:
                return False
        self._take_out(self._id_of_arrival[line[-1]])
        return True

    def _take_out(self, producer_id: int) -> Waiting:
        waiting = self.waiting.pop(producer_id)
        del self._id_of_arrival[waiting.arrival]
        if not waiting.is_passed_over:
            self._leave(waiting)
        return waiting

    def _enter(self, waiting: Waiting) -> None:
        lane = self._lanes.get(waiting.address)
        if lane is None:
            lane = self._lanes[waiting.address] = _Lane()
        insort(lane.lines.setdefault(waiting.client_id, []), waiting.arrival)
        lane.size += 1

    def _leave(self, waiting: Waiting) -> None:
        lane = self._lanes[waiting.address]
        line = lane.lines[waiting.client_id]
        del line[bisect_left(line, waiting.arrival)]
        lane.size -= 1
        if not line:
            del lane.lines[waiting.client_id]
        if not lane.lines:
            del self._lanes[waiting.address]


def _size(lane: _Lane) -> int:
    return lane.size


def _served_before(queues: Iterable[tuple[str, int]], own: str, own_round: int) -> int:
    """Round-robin over queues of these sizes: how many are served before `own`'s turn number `own_round`
    (0 = first).

    Queues ahead of ours in the rotation have had one turn more than those behind; none has more turns than
    entries.
    """
    before, turns = own_round, own_round + 1
    for name, size in queues:
        if name == own:
            turns = own_round
        else:
            before += size if size < turns else turns
    return before
