"""The lanes of a process: who is lent to which thread, and what comes back.

Without the extension, or with `lanes: 0`, there are none, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pidgate.gateway.metrics.counters import Counters
from pidgate.protocol.fetch import FETCH
from pidgate.quota.grants import Cell, Grants

if TYPE_CHECKING:
    from pidgate.gateway.lane import _lane

COUNTED_AT_ONCE: Final = 256
"""Connections whose counts are taken in one turn of the loop: less than 1 ms."""


class Counted(NamedTuple):
    """What a lane has carried of one connection.

    last_ms            of the last Produce, monotonic
    other_requests     those of other APIs than Produce
    in_frame_since_ms  since when a Produce is under way; 0: none
    written            bits of the partitions written, 128 bytes, by topic as in the request
    """

    produce_requests: int
    produce_bytes: int
    batches: int
    records: int
    last_ms: int
    other_requests: int
    request_bytes: int
    answer_bytes: int
    in_frame_since_ms: int
    written: list[tuple[bytes, bytes]]


class Left(NamedTuple):
    """A connection that comes back.

    client_rest, broker_rest  read from that side, and not forwarded
    to_client, to_broker      forwarded, but not taken by the other side yet: they leave before all else
    in_flight                 as in _lane.InFlight
    request_left              bytes still to come of `under_way`
    under_way                 a Produce of which a part has been forwarded: correlation id, bytes, records, topic as in
                              the request, partition
    answer_left               bytes still to come of the answer that has begun to pass
    walk                      where in a Fetch answer that is: see EndpointsWalker.resume
    why                       Next in core.h
    """

    counted: _lane.Counted
    client_rest: bytes
    broker_rest: bytes
    to_client: bytes
    to_broker: bytes
    in_flight: list[tuple[int, int, int, int]]
    request_left: int
    under_way: tuple[int, int, int, bytes, int] | None
    answer_left: int
    walk: tuple[int, int, int, int, int] | None
    why: int


class Lender(Protocol):
    """Whose connection is lent."""

    def left(self, left: Left) -> None:
        """Go on with a connection that the lane gives back."""

    def counted(self, counted: Counted) -> None:
        """Count what passed since the last time."""


class Guarded(Protocol):
    """Gateway topics, which no request of a guarded API may name (cluster/gateway_topics.py)."""

    guarded: frozenset[int]

    @property
    def needles(self) -> tuple[bytes, ...]: ...


class LentTo(NamedTuple):
    """A lending."""

    lane: _lane.Lane
    handle: int

    def take_back(self) -> Left | None:
        """End it now. None: the lane has given it back by itself, and `Lender.left` was called."""
        left = self.lane.take_back(self.handle)
        return None if left is None else Left._make(left)


class Lanes:
    """The threads, and what they all need to know.

    lend_after      requests in a row that a lane would have passed; then a connection is lent
    worth_requests  lending and taking back cost as much as some ten requests in Python
    """

    lend_after = 8
    worth_requests = 64

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        passing: dict[int, int],
        topics: Guarded,
        module: Any,
    ) -> None:
        """`passing`: by API key << 16 | version. `module`: the extension; None: it is not built."""
        self._loop = loop
        self._counters = counters
        self.passing = passing
        self._topics = topics
        self._apis_for: tuple[bytes, ...] | None = None
        self._apis: dict[bool, _lane.Apis] = {}
        self._threads: list[_lane.Lane] = []
        self._here: list[_lane.Lane] = []
        """A lane without a thread, for connections with TLS: this thread reads and writes them."""
        self._module = module

    def start(self, setting: int | None, grants: Grants) -> None:
        """Start as many threads as the setting says, if the extension is built."""
        count = 0 if self._module is None else count_of(setting)
        if not count:
            return
        grants.use_cells(self._module.Cell)
        for _ in range(count):
            lane = self._module.Lane()
            self._threads.append(lane)
            self._loop.add_reader(lane.fileno(), self._left, lane)
        self._here.append(self._module.Lane(False))
        self._counters.lanes = count

    @property
    def is_on(self) -> bool:
        return bool(self._threads)

    @property
    def lent(self) -> int:
        """Connections that are lent now."""
        return sum(lane.lent for lane in (*self._threads, *self._here))

    def lend(
        self,
        owner: Lender,
        client: int,
        broker: int,
        produce: _lane.Produce | None,
        cells: tuple[Cell, Cell],
        in_flight: list[tuple[int, int, int, int]],
        *,
        fetches: bool,
    ) -> LentTo | None:
        """Lend two descriptors to the thread with the fewest. None: it could not take them.

        Without descriptors (-1), the owner calls `carry` with what it reads. `fetches`: Fetch may pass.
        """
        lane = self._here[0] if client < 0 else min(self._threads, key=lambda thread: thread.lent)
        everything, of_id = cells
        try:
            handle = lane.lend(
                owner,
                client,
                broker,
                produce,
                self._current_apis(fetches),
                everything,
                of_id,
                in_flight,
            )
        except OSError:  # epoll's limit of the user: it stays as it is
            return None
        return LentTo(lane, handle)

    def count(self) -> None:
        """Take the counts of the connections that carried something, for a part of them in each turn."""
        self._counters.lane_connections = self.lent
        for lane in (*self._threads, *self._here):
            self._count_requests(lane)
            self._count(lane)

    def stop(self) -> None:
        """End the threads. Lent connections must have been taken back, or are lost."""
        for lane in self._threads:
            self._count_requests(lane)
            self._loop.remove_reader(lane.fileno())
            lane.stop()
        for lane in self._here:
            self._count_requests(lane)
            lane.stop()
        self._threads.clear()
        self._here.clear()

    def _count(self, lane: _lane.Lane) -> None:
        if not self._threads:  # stopped meanwhile
            return
        counts = lane.take_counts(COUNTED_AT_ONCE)
        for owner, counted in counts:
            owner.counted(Counted._make(counted))
        if len(counts) == COUNTED_AT_ONCE:
            self._loop.call_soon(self._count, lane)

    def _count_requests(self, lane: _lane.Lane) -> None:
        for api_key, requests in lane.take_requests():
            self._counters.requests[api_key] += requests
            self._counters.lane_requests += requests

    def _left(self, lane: _lane.Lane) -> None:
        for owner, left in lane.take_left():
            owner.left(Left._make(left))

    def _current_apis(self, fetches: bool) -> _lane.Apis:
        needles = self._topics.needles
        if needles is not self._apis_for:
            self._apis.clear()
            self._apis_for = needles
        apis = self._apis.get(fetches)
        if apis is None:
            passing = [
                (key >> 16, key & 0xFFFF, how)
                for key, how in self.passing.items()
                if fetches or key >> 16 != FETCH
            ]
            apis = self._apis[fetches] = self._module.Apis(passing, list(self._topics.guarded), list(needles))
        return apis


def count_of(setting: int | None) -> int:
    """Return the number of threads. None, for `auto`: one core is for Python's thread."""
    return max(1, len(os.sched_getaffinity(0)) - 1) if setting is None else setting


def extension() -> Any:
    """Return the extension; None: it is not built."""
    try:
        return importlib.import_module("pidgate.gateway.lane._lane")
    except ImportError:
        return None
