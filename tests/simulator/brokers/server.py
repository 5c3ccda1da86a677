"""The model cluster on an event loop: whole frames in, answers out, one request of a connection at a time.

As a broker's SocketServer does it: a connection is muted from a request to its answer (KIP-219), so what comes behind
waits unread; what came whole before the client's end of stream is acted on; what came in part never is.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Final

from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.replies import Later
from tests.simulator.brokers.sessions import Closed, ClosedAfter, Listener, Session

MOST_FRAME_BYTES: Final = 104_857_600
"""socket.request.max.bytes."""


class Brokers:
    """All nodes of a cluster on the running event loop. Their clock is the loop's, in ms."""

    def __init__(
        self, cluster: ModelCluster, *, delay_s: Callable[[Session, bytes], float] | None = None
    ) -> None:
        """`delay_s`: how long a broker takes before it acts on a request; None: no time."""
        self.cluster = cluster
        self.delay_s = delay_s
        self.connections: dict[int, list[BrokerConnection]] = {}
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._armed_ms: int | None = None

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def listen(self, node_id: int, listener: str = "PLAINTEXT") -> asyncio.AbstractServer:
        """Serve a node's listener at its address; call it as the process that is the node."""
        host, port = self.cluster.address(node_id, listener)
        return await self._loop.create_server(lambda: self.connection(node_id, listener), host, port)

    def connection(self, node_id: int, listener: str = "PLAINTEXT") -> BrokerConnection:
        """Return the protocol of one connection to a node."""
        return BrokerConnection(self, node_id, self.cluster.nodes.listeners[listener])

    def stop(self, node_id: int) -> None:
        """The node is gone: its connections are reset, others lead."""
        self.cluster.stop(node_id)
        for connection in self.connections.pop(node_id, []):
            connection.reset()
        self.arm()

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """As ModelCluster.move_leader; what waited for the old leader is answered."""
        self.cluster.advance(self.now_ms())
        self.cluster.move_leader(topic, index, node_id)
        self.arm()

    def arm(self) -> None:
        """Have the cluster called when it has something to do."""
        due_ms = self.cluster.next_due_ms
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            self._loop.call_at(due_ms / 1000, self._due, due_ms, context=self._context)

    def _due(self, due_ms: int) -> None:
        if self._armed_ms == due_ms:
            self._armed_ms = None
        self.cluster.advance(max(due_ms, self.now_ms()))
        self.arm()


class BrokerConnection(asyncio.Protocol):
    """One connection of a client to a node."""

    def __init__(self, brokers: Brokers, node_id: int, listener: Listener) -> None:
        self._brokers = brokers
        self._node_id, self._listener = node_id, listener
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._inbox = bytearray()
        self._frames: deque[bytes] = deque()
        self._is_busy = self._has_ended = False
        self._context = copy_context()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._context = copy_context()
        try:
            self._session = self._brokers.cluster.connect(self._node_id, self._listener.name)
        except ConnectionRefusedError:
            transport.abort()
            return
        self._brokers.connections.setdefault(self._node_id, []).append(self)

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        while len(self._inbox) >= 4:
            (size,) = struct.unpack_from(">i", self._inbox)
            if not 0 <= size <= MOST_FRAME_BYTES:
                self._close()
                return
            if len(self._inbox) < 4 + size:
                break
            self._frames.append(bytes(self._inbox[4 : 4 + size]))
            del self._inbox[: 4 + size]
        self._next()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._next()
        return self._transport is not None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._forget()

    def reset(self) -> None:
        """The node is gone, or the connection is."""
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def _forget(self) -> None:
        self._transport = None
        self._frames.clear()
        mine = self._brokers.connections.get(self._node_id, [])
        if self in mine:
            mine.remove(self)

    def _next(self) -> None:
        while self._frames and not self._is_busy and self._transport is not None:
            frame = self._frames.popleft()
            assert self._session is not None
            delay_s = 0.0 if self._brokers.delay_s is None else self._brokers.delay_s(self._session, frame)
            self._is_busy = True
            if delay_s > 0:
                self._brokers._loop.call_later(delay_s, self._act, frame)
                return
            self._act(frame, goes_on=False)
        if self._has_ended and not self._is_busy and not self._frames:
            self._close()

    def _act(self, frame: bytes, *, goes_on: bool = True) -> None:
        """`goes_on`: nobody else looks for the next frame."""
        if self._transport is None or self._session is None:
            return
        brokers = self._brokers
        try:
            reply = brokers.cluster.handle(self._session, frame, brokers.now_ms())
        except Closed:
            self._close()
            return
        except ClosedAfter as last:
            self._transport.write(last.answer)
            self._close()
            return
        finally:
            brokers.arm()
        if isinstance(reply, Later):
            reply.then(partial(self._answer_later, reply))
        else:
            self._answer(reply, goes_on=goes_on)

    def _answer_later(self, reply: Later) -> None:
        def answer() -> None:
            if reply.closes:
                self._close()
            else:
                self._answer(reply.value, goes_on=True)

        # The write is the node's, whoever made it possible.
        self._context.copy().run(answer)

    def _answer(self, answer: bytes | None, *, goes_on: bool) -> None:
        self._is_busy = False
        if self._transport is None:
            return
        if answer is not None:
            self._transport.write(answer)
        assert self._session is not None
        mute_ms = self._session.muted_until_ms - self._brokers.now_ms()
        if mute_ms > 0:
            self._is_busy = True
            self._brokers._loop.call_later(mute_ms / 1000, self._unmute)
        elif goes_on:
            self._next()

    def _unmute(self) -> None:
        self._is_busy = False
        self._next()

    def _close(self) -> None:
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.close()
