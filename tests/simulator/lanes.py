"""A model of the lanes' extension (pidgate/gateway/lane/_lane.pyi) on simulated transports.

A lane decides with the core in C itself. A lane without a thread is asked by the gateway's own. A thread is modelled
after threads.c: an event of one socket (one read, what it means, one write) is one atomic step between the turns of the
gateway's loop, after a delay. How much a read brings, and when memory is used up, is drawn. The steps are the
process's: a frozen or killed one makes none.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from tests.support.native_core import MOST_KEPT_BYTES, Granted, NativeCore, Next

if TYPE_CHECKING:
    from tests.simulator.loop import SimulatedLoop
    from tests.simulator.process import Process
    from tests.simulator.transport import End

MOST_API_KEYS: Final = 128
READ_BYTES: Final = 256 * 1024
ALL_PARTITIONS: Final = b"\xff" * 128
LONGEST_DELAY_S: Final = 0.002
"""Of a step: the kernel gives the core to another thread. Most are far sooner."""
OF_NO_BLOCK_TO_KEEP: Final = 0.02
OF_NO_BLOCK_UNSENT: Final = 0.1
"""How often memory is used up, of the events that need some: many keep a part of a frame, few find no room."""
OF_NO_REASON: Final = 0.005
"""How often a connection is given back after an event for no reason."""
OF_SPLICES: Final = 0.3
"""How often the inside of a frame passes without coming to a buffer."""
MOST_CARRIED_BYTES: Final = 64 * 1024
MOST_KEPT_HERE_BYTES: Final = 4096
NO_END: Final = cast("End", None)
"""The gateway's own thread reads and writes it."""
OF_NO_STREAMING: Final = 0.1
"""How often half frames are announced so much that no further one may begin."""


class Cell:
    """As in C. No step is under way when it is changed."""

    def __init__(self) -> None:
        self.number = 0

    def bump(self) -> None:
        self.number += 1


@dataclass(slots=True)
class _Flow:
    """One direction. `rest`, `left`: what was read and not forwarded, forwarded and not taken, when it has left."""

    source: End
    target: End
    kept: bytes = b""
    unsent: bytes = b""
    rest: bytes = b""
    left: bytes = b""


@dataclass(slots=True, eq=False)
class _Connection:
    owner: object
    core: NativeCore
    handle: int
    cells: tuple[Cell, Cell]
    seen: tuple[int, int]
    requests: _Flow
    answers: _Flow
    is_lent: bool = True
    has_left: bool = False
    is_due: bool = False
    """Its next step is coming."""
    why: Next = Next.MORE
    request_bytes: int = 0
    answer_bytes: int = 0
    in_frame_since_ms: int = 0

    def unread(self, is_request: bool) -> int:
        """Bytes of the frame under way that need no look."""
        state = self.core.state
        return state.request_left if is_request else state.answer_unread


class ModelLanes:
    """The extension of one process that runs: Cell, Apis, Lane. `carried` counts what lanes do."""

    Cell = Cell

    def __init__(
        self,
        loop: SimulatedLoop,
        process: Process,
        native: ctypes.CDLL,
        random: Random,
        carried: Counter[str],
    ) -> None:
        self.loop = loop
        self.process = process
        self.native = native
        self.random = random
        self.carried = carried
        self.cores: dict[NativeCore, None] = {}
        """Those to be freed."""
        self.Lane = partial(ModelLane, self)

    def Apis(
        self, passing: list[tuple[int, int, int]], guarded: list[int], needles: list[bytes]
    ) -> NativeCore:
        """Return a core that has the APIs: the others share them."""
        return self.core(
            apis={(key, version): how for key, version, how in passing}, guarded=guarded, needles=needles
        )

    def core(self, produce: Any = None, **apis: Any) -> NativeCore:
        """Return a new core, freed at the end of the run if not before."""
        head, same, written_id, version, acks, transactional, until_ms, most_bytes, leased_bytes, topics = produce or (
            bytes(4), b"", bytes(10), 9, 1, False, 0, 0, 0, []
        )  # fmt: skip
        granted = Granted(
            head, same, written_id, version, acks, transactional, until_ms, most_bytes,
            dict.fromkeys((name for name, _ in topics), ()),
            leased_bytes=leased_bytes,
            **{"apis": {}, "guarded": (), "needles": (), **apis},
        )  # fmt: skip
        core = NativeCore(self.native, granted)
        for at, (_, bits) in enumerate(topics):
            core.allow(at, ALL_PARTITIONS if bits is None else bits)
        self.cores[core] = None
        return core

    def free(self) -> None:
        """Free all cores: nothing runs any more."""
        for core in self.cores:
            core.close()
        self.cores.clear()


class ModelLane:
    """One thread with its connections, or none."""

    def __init__(self, lanes: ModelLanes, has_thread: bool = True) -> None:
        self._lanes = lanes
        self._has_thread = has_thread
        self._loop = lanes.loop
        self._random = lanes.random
        self._number = self._loop.network.next_descriptor()
        self._connections: dict[int, _Connection] = {}
        self._handles = 0
        self._left: list[_Connection] = []
        self._counted: list[_Connection] = []
        self._is_told = False
        self._requests_by_api = (ctypes.c_uint32 * MOST_API_KEYS)()

    # ---- for Python's thread ---------------------------------------------------------------------------

    @property
    def lent(self) -> int:
        return sum(connection.is_lent for connection in self._connections.values())

    def fileno(self) -> int:
        return self._number

    def lend(
        self,
        owner: object,
        client: int,
        broker: int,
        produce: Any,
        apis: NativeCore,
        everything: Cell,
        of_id: Cell,
        in_flight: list[tuple[int, int, int, int]],
    ) -> int:
        if self._random.random() < OF_NO_REASON:
            raise OSError(28, "No space left on device")
        lanes = self._lanes
        core = lanes.core(produce)
        core.lent(apis, self._requests_by_api)
        for request in in_flight:
            core.put_in_flight(*request)
        of_client = of_broker = NO_END
        if self._has_thread:
            of_client, of_broker = (lanes.loop.network.end(number) for number in (client, broker))
            assert not any(end.is_reading() for end in (of_client, of_broker)), "they are paused"
        cells = everything, of_id
        self._handles += 1
        connection = self._connections[self._handles] = _Connection(
            owner,
            core,
            self._handles,
            cells,
            (everything.number, of_id.number),
            _Flow(of_client, of_broker),
            _Flow(of_broker, of_client),
        )
        lanes.carried["lent"] += 1
        if self._has_thread:
            of_client.on_ready = of_broker.on_ready = partial(self._have_step, connection)
            self._have_step(connection)
        return self._handles

    def carry(self, handle: int, is_request: bool, data: bytes) -> bytes | None:
        connection = self._connections[handle]
        flow = connection.requests if is_request else connection.answers
        data, flow.kept = flow.kept + data, b""
        self._lanes.carried["looked at"] += 1
        passed, then = 0, Next.MORE
        is_lent = len(data) <= MOST_CARRIED_BYTES and self._random.random() >= OF_NO_REASON
        if is_lent:
            passed, then = self._look(connection, data, is_request)
        rest = data[passed:]
        if is_lent and then is Next.MORE and len(rest) <= MOST_KEPT_HERE_BYTES:
            flow.kept = rest
            return data[:passed]
        flow.left, flow.rest = data[:passed], rest
        self._lanes.carried[f"left: {then.name}"] += 1
        self._leave(connection, then)
        return None

    def take_back(self, handle: int) -> Any:
        connection = self._connections.get(handle)
        if connection is None:
            return None
        if connection.is_lent:
            self._lanes.carried["taken back"] += 1
        self._leave(connection, Next.MORE)
        if connection.has_left:
            self._left.remove(connection)
        return self._release(connection)

    def take_left(self) -> list[tuple[object, Any]]:
        found = []
        while self._left:
            connection = self._left.pop()
            found.append((connection.owner, self._release(connection)))
        self._is_told = False
        return found

    def take_counts(self, most: int) -> list[tuple[object, Any]]:
        found: list[tuple[object, Any]] = []
        while self._counted and len(found) < most:
            connection = self._counted.pop()
            found.append((connection.owner, self._counts_of(connection)))
        return found

    def take_requests(self) -> list[tuple[int, int]]:
        found = [(key, count) for key, count in enumerate(self._requests_by_api) if count]
        ctypes.memset(self._requests_by_api, 0, ctypes.sizeof(self._requests_by_api))
        self._lanes.carried["requests"] += sum(count for _, count in found)
        self._lanes.carried["Produce requests"] += sum(count for key, count in found if key == 0)
        return found

    def stop(self) -> None:
        for connection in list(self._connections.values()):
            self._leave(connection, Next.MORE)
            self._free(connection)
        self._left.clear()

    # ---- the end of a lending --------------------------------------------------------------------------

    def _leave(self, connection: _Connection, why: Next) -> None:
        if not connection.is_lent:
            return
        connection.is_lent = False
        connection.why = why
        for flow in (connection.requests, connection.answers):
            flow.left += flow.unsent
            flow.rest += flow.kept
            flow.unsent = flow.kept = b""
            if self._has_thread:
                flow.source.on_ready = None
                flow.target.noted_bytes = len(flow.left)

    def _leave_and_tell(self, connection: _Connection, why: Next) -> None:
        self._leave(connection, why)
        self._lanes.carried[f"left: {why.name}"] += 1
        connection.has_left = True
        self._left.append(connection)
        if not self._is_told:
            self._is_told = True
            self._loop.call_later(self._delay_s(), self._tell, context=self._lanes.process.context)

    def _tell(self) -> None:
        self._loop.tell(self._number)

    def _release(self, connection: _Connection) -> Any:
        core, carried = connection.core, self._lanes.carried
        state, requests, answers = core.state, connection.requests, connection.answers
        walk = core.walk
        in_flight = [tuple(request) for request in core.in_flight]
        left = (
            self._counts_of(connection),
            requests.rest,
            answers.rest,
            answers.left,
            requests.left,
            in_flight,
            state.request_left,
            core.under_way if state.request_left else None,
            state.answer_left,
            walk if state.answer_left and walk[0] else None,
            int(connection.why),
        )
        carried["in a request"] += state.request_left > 0
        carried["in an answer"] += state.answer_left > 0
        carried["in a walk"] += state.answer_left > 0 and walk[0] > 0
        carried["with requests in flight"] += bool(in_flight)
        carried["with unsent bytes"] += bool(requests.left or answers.left)
        carried["with unsent bytes and a rest"] += bool(requests.left and requests.rest)
        self._free(connection)
        return left

    def _free(self, connection: _Connection) -> None:
        if connection in self._counted:
            self._counted.remove(connection)
        del self._connections[connection.handle]
        del self._lanes.cores[connection.core]
        connection.core.close()

    def _counts_of(self, connection: _Connection) -> Any:
        state, written = connection.core.take_counts()
        counted = (
            state.produce_requests,
            state.produce_bytes,
            state.batches,
            state.records,
            state.last_produce_ms,
            state.other_requests,
            connection.request_bytes,
            connection.answer_bytes,
            connection.in_frame_since_ms,
            written,
        )
        connection.request_bytes = connection.answer_bytes = 0
        return counted

    # ---- the thread ------------------------------------------------------------------------------------

    def _delay_s(self) -> float:
        return self._random.random() ** 4 * LONGEST_DELAY_S

    def _have_step(self, connection: _Connection) -> None:
        if not connection.is_due and connection.is_lent and _events(connection):
            connection.is_due = True
            process = self._lanes.process
            self._loop.call_later(self._delay_s(), self._step, connection, context=process.context)

    def _step(self, connection: _Connection) -> None:
        connection.is_due = False
        events = _events(connection) if connection.is_lent else []
        if events:
            self._on_event(connection, self._random.choice(events))
            if connection.is_lent and self._random.random() < OF_NO_REASON:
                self._leave_and_tell(connection, Next.MORE)
            self._have_step(connection)

    def _on_event(self, connection: _Connection, is_request: bool) -> None:
        """What epoll tells of the client's socket, or of the broker's."""
        into, out = connection.requests, connection.answers
        if not is_request:
            into, out = out, into
        if out.unsent and not self._flush(out):
            self._leave_and_tell(connection, Next.MORE)
        elif not into.unsent:
            if into.source.is_readable:
                self._carry(connection, into, is_request)
        elif into.source.is_reset:
            self._leave_and_tell(connection, Next.MORE)

    def _flush(self, flow: _Flow) -> bool:
        """Send what is unsent. Returns False if the other side is gone."""
        try:
            sent = flow.target.send_now(flow.unsent)
        except OSError:
            return False
        flow.unsent = flow.unsent[sent:]
        return True

    def _forward(self, flow: _Flow, data: bytes) -> bool:
        """Send bytes on. Returns whether the connection is still lent."""
        if not data:
            return True
        flow.target.note_written(data)
        try:
            unsent = data[flow.target.send_now(data) :]
        except OSError:
            flow.left += data
            return False
        if unsent and self._random.random() < OF_NO_BLOCK_UNSENT:
            flow.left += unsent
            return False
        flow.unsent = unsent
        return True

    def _received(self, flow: _Flow, most: int) -> bytes | None:
        """Read all that has arrived, or a part of it. None: the connection ends."""
        if self._random.random() < 0.4:
            most = min(most, 1 + int(self._random.random() * max(1, flow.source.arrived_bytes)))
        try:
            return flow.source.receive(most) or None
        except OSError:
            return None

    def _carry(self, connection: _Connection, flow: _Flow, is_request: bool) -> None:
        """One read of one side, and what it means."""
        if connection not in self._counted:
            self._counted.append(connection)
        inside = connection.unread(is_request)
        if inside and self._random.random() < OF_SPLICES:
            self._splice(connection, flow, is_request, inside)
            return
        data = self._received(flow, READ_BYTES)
        if data is None:
            self._leave_and_tell(connection, Next.MORE)
            return
        data, flow.kept = flow.kept + data, b""
        passed, then = self._look(connection, data, is_request)
        is_lent = self._forward(flow, data[:passed])
        rest = data[passed:]
        if rest and then is Next.MORE and is_lent:
            if self._random.random() >= OF_NO_BLOCK_TO_KEEP and len(rest) <= MOST_KEPT_BYTES:
                flow.kept = rest
                return
            is_lent = False
        if not is_lent or then is not Next.MORE:
            flow.rest = rest
            self._leave_and_tell(connection, then)

    def _look(self, connection: _Connection, data: bytes, is_request: bool) -> tuple[int, Next]:
        """Return how many bytes pass, and what follows them."""
        core = connection.core
        if connection not in self._counted:
            self._counted.append(connection)
        core.may_stream(self._random.random() >= OF_NO_STREAMING)
        now_ms = self._now_ms()
        if not is_request or not _is_revoked(connection):
            passed, then = core.look(data, now_ms, is_request=is_request)
        else:
            self._lanes.carried["revoked"] += 1
            passed, then = 0, Next.TO_PYTHON
            if last := data[: connection.unread(is_request)]:
                passed = core.look(last, now_ms, is_request=True)[0]
                then = Next.TO_PYTHON if len(last) < len(data) else Next.MORE
        self._note_passed(connection, passed, is_request)
        return passed, then

    def _splice(self, connection: _Connection, flow: _Flow, is_request: bool, inside: int) -> None:
        """Pass the inside of a frame on without a look."""
        data = self._received(flow, inside)
        if data is not None:
            connection.core.skip(len(data), self._now_ms(), is_request=is_request)
            self._note_passed(connection, len(data), is_request)
            flow.target.note_written(data)
            flow.unsent = data
        if data is None or not self._flush(flow):
            self._leave_and_tell(connection, Next.MORE)

    def _note_passed(self, connection: _Connection, passed: int, is_request: bool) -> None:
        if not is_request:
            connection.answer_bytes += passed
            return
        connection.request_bytes += passed
        if not connection.core.state.request_left:
            connection.in_frame_since_ms = 0
        elif not connection.in_frame_since_ms:
            connection.in_frame_since_ms = self._now_ms()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1_000)


def _is_revoked(connection: _Connection) -> bool:
    return any(cell.number != seen for cell, seen in zip(connection.cells, connection.seen, strict=True))


def _events(connection: _Connection) -> list[bool]:
    """Return which sockets have something to do: True the client's, False the broker's."""
    found = []
    for is_request in (True, False):
        into, out = connection.requests, connection.answers
        if not is_request:
            into, out = out, into
        takes_more = out.unsent and (out.target.peer.room_bytes() > 0 or out.target.is_reset)
        if takes_more or (into.source.is_reset if into.unsent else into.source.is_readable):
            found.append(is_request)
    return found
