"""Requests that a Java-like producer sends one at a time: for its id, its coordinator, its transactions.

`TransactionManager.pendingRequests` and `Sender.maybeSendAndPollTransactionalRequest`, which kafka-python has taken
over: the most urgent first, and no Produce while one of them is in flight, waits for its node or backs off.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from enum import IntEnum

from tests.simulator.clients import frames
from tests.simulator.clients.node import Node
from tests.simulator.clients.producer import ModelProducer


class Kind(IntEnum):
    """Of a request; the order is that of urgency."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS = 2
    END_TXN = 3
    EPOCH_BUMP = 4


class Request:
    """One of them, kept until it has an answer that is not to be tried again."""

    __slots__ = ("backoff_s", "commit", "done", "held", "is_retry", "kind", "newest", "partitions")

    def __init__(
        self,
        kind: Kind,
        held: tuple[int, int] = (-1, -1),
        *,
        partitions: tuple[int, ...] = (),
        commit: bool = False,
    ) -> None:
        self.kind = kind
        self.held = held
        """The producer id and epoch at the time when it was made."""
        self.partitions = partitions
        self.commit = commit
        self.newest: int | None = None
        """Its highest version; None: the client's of the moment when it leaves."""
        self.is_retry = False
        self.backoff_s = -1.0
        """Shorter than usual, if not negative."""
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The error that the application gets, or an empty string."""

    def finish(self, error: str = "") -> None:
        """Tell whoever waits for it."""
        if not self.done.done():
            self.done.set_result(error)


class OneAtATime:
    """The queue, and the one that is under way."""

    def __init__(
        self,
        client: ModelProducer,
        transactional_id: str | None,
        is_ready: Callable[[Node, float], bool],
        answered: Callable[[Request, bytes, int], None],
    ) -> None:
        """`answered`: takes a request, the answer's frame, its version."""
        self.coordinator: Node | None = None
        self.client = client
        self._transactional_id = transactional_id
        self.is_ready = is_ready
        self._answered = answered
        self._pending: list[tuple[int, int, Request]] = []
        self._made = 0
        self.current: Request | None = None
        """It waits for its node."""
        self.target: Node | None = None
        self.give_up_s = 0.0
        self._asleep_until_s = 0.0
        self.in_flight = False

    @property
    def is_empty(self) -> bool:
        return not self._pending and self.current is None and not self.in_flight

    def put(self, request: Request) -> Request:
        """To be sent after all that is more urgent."""
        self._made += 1
        heapq.heappush(self._pending, (request.kind, self._made, request))
        self.client.wake()
        return request

    def retry(self, request: Request) -> None:
        """Try it again after a back-off."""
        request.is_retry = True
        self.put(request)

    def peek(self) -> Request | None:
        """The most urgent one."""
        return self._pending[0][2] if self._pending else None

    def take(self) -> Request | None:
        """The most urgent one, which is in the queue no longer."""
        return heapq.heappop(self._pending)[2] if self._pending else None

    def look_up(self) -> None:
        """Ask for the coordinator again."""
        self.coordinator = None
        self.put(Request(Kind.FIND_COORDINATOR))

    def drop_all(self, error: str) -> None:
        """The producer is of no more use."""
        for _, _, request in self._pending:
            request.finish(error)
        self._pending.clear()
        if self.current is not None:
            self.current.finish(error)
            self.current = None

    def is_busy(self, now_s: float) -> bool:
        """One is in flight, or cannot go yet; then nothing else is sent."""
        if self.in_flight:
            return True
        if now_s < self._asleep_until_s:
            self.client.wake_at(self._asleep_until_s)
            return True
        if self.current is not None:
            self.try_now(self.current, now_s)
            return True
        return False

    def go(self, request: Request, now_s: float) -> None:
        """Begin with one that `take` returned."""
        client = self.client
        if not self.needs_coordinator(request):
            self.target = client.least_loaded(now_s)
            if self.target is None:
                self.retry(request)
                self.sleep(client.t.retry_backoff_s, now_s)
                return
        elif self.coordinator is None:
            self.look_up()
            self.retry(request)
            return
        else:
            self.target = self.coordinator
        self.current = request
        self.give_up_s = now_s + client.t.request_s
        if request.is_retry:
            self.sleep(request.backoff_s if request.backoff_s >= 0 else client.t.retry_backoff_s, now_s)
        else:
            self.try_now(request, now_s)

    def needs_coordinator(self, request: Request) -> bool:
        """Whether it goes to the coordinator, and not to any node."""
        return request.kind is not Kind.FIND_COORDINATOR and self._transactional_id is not None

    def sleep(self, for_s: float, now_s: float) -> None:
        """The sender's thread sleeps: nothing at all is sent."""
        self._asleep_until_s = now_s + for_s
        self.client.wake_at(self._asleep_until_s)

    def try_now(self, request: Request, now_s: float) -> None:
        """Send it, if its node is ready; else wait for that, or have it tried again."""
        node, client = self.target, self.client
        assert node is not None
        if self.is_ready(node, now_s):
            self.current = None
            self.send(request, node)
        elif (node.connection is None and node.dialling is None) or now_s >= self.give_up_s:
            # `maybeFindCoordinatorAndRetry`: it cannot be reached, or backs off from connecting.
            self.current = None
            if self.needs_coordinator(request):
                self.look_up()
            else:
                self.sleep(client.t.retry_backoff_s, now_s)
                client.request_metadata()
            self.retry(request)
        else:
            client.wake_at(self.give_up_s)

    def send(self, request: Request, node: Node) -> None:
        """It goes out."""
        client, connection = self.client, node.connection
        assert connection is not None
        version, frame = self._frame(request, node)
        self.in_flight = True
        if client.is_traced:
            client.note(f"asks {node.node_id}: {request.kind.name} {request.held}")

        def answered(answer: bytes | None) -> None:
            self.in_flight = False
            if client.is_traced:
                client.note(f"{request.kind.name} {'is lost' if answer is None else 'is answered'}")
            if answer is not None:
                self._answered(request, answer, version)
            else:
                self.lost(request)

        connection.ask(frame, answered)

    def lost(self, request: Request) -> None:
        """The connection ended before the answer."""
        if self.needs_coordinator(request):
            self.look_up()
        self.retry(request)

    def _frame(self, request: Request, node: Node) -> tuple[int, bytes]:
        client, transactional_id = self.client, self._transactional_id
        api_key = _API[request.kind]
        version = node.speaks(api_key, client.versions[api_key] if request.newest is None else request.newest)
        if request.kind in (Kind.INIT_PRODUCER_ID, Kind.EPOCH_BUMP):
            timeout_ms = 0x7FFFFFFF if transactional_id is None else int(client.t.transaction_s * 1000)
            frame = frames.init_producer_id(version, client.name, transactional_id, timeout_ms, request.held)
            return version, frame
        assert transactional_id is not None
        if request.kind is Kind.FIND_COORDINATOR:
            return version, frames.find_coordinator(version, client.name, transactional_id)
        if request.kind is Kind.ADD_PARTITIONS:
            return version, frames.add_partitions(
                version, client.name, transactional_id, request.held, client.topic, request.partitions
            )
        return version, frames.end_txn(
            version, client.name, transactional_id, request.held, commit=request.commit
        )


_API = {
    Kind.FIND_COORDINATOR: frames.FIND_COORDINATOR,
    Kind.INIT_PRODUCER_ID: frames.INIT_PRODUCER_ID,
    Kind.ADD_PARTITIONS: frames.ADD_PARTITIONS,
    Kind.END_TXN: frames.END_TXN,
    Kind.EPOCH_BUMP: frames.INIT_PRODUCER_ID,
}
