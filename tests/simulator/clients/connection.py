"""A client's connection to one node: requests out, answers in their order, each before its time is up."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol

from pidgate.load.plan import Login
from tests.simulator.clients import frames
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.clients.traits import Traits

Handler = Callable[[bytes | None], None]
"""Takes an answer without its size prefix; None: it will not come, the connection is gone."""

UNSUPPORTED_VERSION = 35
NO_REQUEST = b"\0\0\0\1\0"
"""A frame of one byte."""


class Owner(Protocol):
    """Whose connection it is."""

    name: str
    traits: Traits
    login: Login | None

    def connection_up(self, connection: Connection) -> None: ...
    def connection_down(self, connection: Connection, why: str) -> None: ...
    def wake(self) -> None: ...
    def note(self, line: str) -> None: ...


class LoginRefused(Exception):
    """The broker does not take the credentials."""


class Asked:
    """A request in flight."""

    __slots__ = ("correlation_id", "deadline_s", "handler")

    def __init__(self, correlation_id: int, handler: Handler, deadline_s: float) -> None:
        self.correlation_id = correlation_id
        self.handler = handler
        self.deadline_s = deadline_s


class Connection(asyncio.Protocol):
    """Made by `ModelProducer`. Greets by itself: ApiVersions, then SASL; `connection_up` comes after that."""

    def __init__(self, owner: Owner, node: object, request_s: float) -> None:
        self.node = node
        self.in_flight: deque[Asked] = deque()
        self.is_up = False
        self.offered = frames.Offered(0, {}, 0)
        self._owner = owner
        self._request_s = request_s
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._why = "closed by the other side"
        self._is_over = False

    # ---- requests --------------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """For the next request."""
        self._correlation_id += 1
        return self._correlation_id

    def ask(self, frame: bytes, handler: Handler, timeout_s: float | None = None) -> None:
        """Send a request that was built with correlation id 0."""
        correlation_id = self.next_correlation_id()
        self.send(correlation_id, frames.numbered(frame, correlation_id), handler, timeout_s)

    def send(
        self, correlation_id: int, frame: bytes, handler: Handler, timeout_s: float | None = None
    ) -> None:
        """Send a whole request."""
        assert self._transport is not None
        assert not self._is_over
        deadline_s = self._loop.time() + (self._request_s if timeout_s is None else timeout_s)
        self.in_flight.append(Asked(correlation_id, handler, deadline_s))
        self._transport.write(frame)
        if self._watch is None or deadline_s < self._watch.when():
            self._arm(deadline_s)

    def break_protocol(self) -> None:
        """Send a frame that is no request."""
        assert self._transport is not None
        self._transport.write(NO_REQUEST)

    def allow_more_time(self, more_s: float) -> None:
        """Those in flight may take so much longer."""
        for asked in self.in_flight:
            asked.deadline_s += more_s

    @property
    def is_gone(self) -> bool:
        return self._is_over

    def close(self, why: str = "closed here", *, at_once: bool = True) -> None:
        """End it; what is in flight gets no answer. Not `at_once`: what was sent still goes out."""
        self._why = why
        if self._transport is None:
            self.connection_lost(None)
        elif at_once:
            self._transport.abort()
            self.connection_lost(None)
        else:
            self._transport.close()

    def _arm(self, at_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._watch = None
        if self.in_flight:
            deadline_s = min(asked.deadline_s for asked in self.in_flight)
            if deadline_s <= self._loop.time():
                self.close("timeout")
            else:
                self._arm(deadline_s)

    # ---- the greeting ----------------------------------------------------------------------------------

    def _greeting(self) -> Generator[bytes, bytes, None]:
        owner = self._owner
        version = yield from self._ask_versions(owner.traits.newest_api_versions)
        login = owner.login
        if login is None:
            return
        assert login.mechanism == "PLAIN", "others would need a random nonce"
        frame = yield frames.handshake(owner.name, login.mechanism)
        if frame[4:6] != b"\0\0":
            raise LoginRefused("handshake")
        newest = min(self.offered.ranges.get(frames.AUTHENTICATE, (0, 1))[1], 2)
        frame = yield frames.authenticate(newest, owner.name, f"\0{login.user}\0{login.password}".encode())
        at = 5 if newest == 2 else 4
        if frame[at : at + 2] != b"\0\0":
            raise LoginRefused("password")
        if owner.traits.asks_versions_again:
            yield from self._ask_versions(version)

    def _ask_versions(self, version: int) -> Generator[bytes, bytes, int]:
        owner = self._owner
        while True:
            frame = yield frames.api_versions(version, owner.name, owner.traits.software)
            self.offered = frames.read_api_versions(frame, version)
            if self.offered.error_code != UNSUPPORTED_VERSION:
                return version
            version = min(version - 1, self.offered.ranges.get(frames.API_VERSIONS, (0, 0))[1])

    def _greet(self, frame: bytes | None) -> None:
        if frame is None:
            return
        try:
            self.ask(self._steps.send(frame), self._greet)
        except StopIteration:
            self.is_up = True
            self._owner.connection_up(self)
        except LoginRefused as error:
            self.close(f"login refused ({error})")

    # ---- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_over:
            transport.abort()
            return
        self._steps = self._greeting()
        self.ask(next(self._steps), self._greet)

    def data_received(self, data: bytes) -> None:
        inbox = self._inbox
        inbox += data
        at = 0
        while len(inbox) - at >= 4:
            size = int.from_bytes(inbox[at : at + 4], "big")
            if len(inbox) - at < 4 + size:
                break
            frame = bytes(inbox[at + 4 : at + 4 + size])
            at += 4 + size
            self._answered(frame)
            if self._is_over:
                return
        del inbox[:at]
        self._owner.wake()

    def _answered(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        if not self.in_flight:
            raise ModelViolation(f"{self._owner.name}: answer {correlation_id}, and nothing was asked")
        asked = self.in_flight.popleft()
        if asked.correlation_id != correlation_id:
            raise ModelViolation(
                f"{self._owner.name}: answer {correlation_id} before that of request {asked.correlation_id}"
            )
        asked.handler(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over, self.is_up = True, False
        if self._watch is not None:
            self._watch.cancel()
        self._owner.connection_down(self, str(exc) if exc is not None else self._why)
