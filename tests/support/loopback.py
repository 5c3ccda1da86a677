"""A whole gateway in this process, on loopback, before brokers that answer as the test tells them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import uvloop
import yaml

from pidgate.gateway.config.loading import parse
from pidgate.gateway.process.outside import Outside
from pidgate.gateway.process.server import Gateway
from pidgate.gateway.proxy.bounds import Bounds
from pidgate.protocol import messages
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.headers import RequestHead, peek_request
from pidgate.protocol.versions import SPOKEN
from tests.support import raw
from tools.sandbox.ports import free_block, give_back

HOST = "127.0.0.1"
NODE_ID = 1
PORTS = 16
"""Of a gateway."""

Answer = Callable[[RequestHead, "Peer"], Awaitable[bytes | None]]
"""The framed answer to a request; None: none yet, or never."""


def run(scenario: Awaitable[None]) -> None:
    """The scenario on the event loop that the gateway runs on, for at most 20 s."""

    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario

    uvloop.run(limited())


async def until(is_true: Callable[[], object]) -> None:
    """Come back when it is true; `run` limits how long that may take."""
    while not is_true():  # noqa: ASYNC110 - what is waited for has no event, and belongs to the gateway
        await asyncio.sleep(0.005)


class Peer:
    """One connection on a broker of the test's making."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[RequestHead] = []
        self.frames: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writer.write(data)


class ScriptedBroker:
    """Listens, and answers by api key; Metadata tells of the nodes in `nodes`, by default of itself."""

    def __init__(
        self,
        answers: Mapping[int, Answer] | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = HOST,
    ) -> None:
        self._host = host
        self._answers = dict(answers or {})
        self._tls = tls
        self.peers: list[Peer] = []
        """Connections but for the gateway's own probe, in the order they came."""
        self.nodes: dict[int, tuple[str, int]] = {}
        self.accepted = 0
        """Connections of all kinds, since the start."""
        self.port = 0
        self._open: set[Peer] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.nodes = self.nodes or {NODE_ID: (self._host, self.port)}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Listen no more, and close every connection."""
        self._server.close()
        for peer in self._open:
            peer.writer.transport.abort()
        await until(lambda: not self._open)

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def connected(self) -> int:
        """Connections at present, the gateway's own among them."""
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.accepted += 1
        self._open.add(peer)
        with contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                head = peek_request(frame, 0, size)
                if head.client_id != "pidgate" and peer not in self.peers:
                    self.peers.append(peer)
                peer.requests.append(head)
                peer.frames.append(frame)
                answer = await self._answer(head, peer)
                if answer is not None:
                    writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._open.discard(peer)

    async def _answer(self, head: RequestHead, peer: Peer) -> bytes | None:
        if head.api_key in self._answers:
            return await self._answers[head.api_key](head, peer)
        body: dict[str, Any] = {}
        if head.api_key == messages.METADATA:
            body["brokers"] = [
                {"node_id": node_id, "host": host, "port": port}
                for node_id, (host, port) in self.nodes.items()
            ]
        elif head.api_key == messages.SASL_HANDSHAKE:
            body["error_code"] = ErrorCode.ILLEGAL_SASL_STATE
        elif head.api_key == messages.API_VERSIONS:
            body["api_keys"] = [
                {"api_key": key, "min_version": api.min_version, "max_version": api.max_version}
                for key, api in SPOKEN.items()
            ]
        return answer_to(head, body)


def answer_to(head: RequestHead, body: raw.Body) -> bytes:
    """Return a framed answer to a request."""
    return raw.response(head.api_key, head.api_version, body, correlation_id=head.correlation_id)


async def offers_plain(head: RequestHead, _peer: Peer) -> bytes:
    """Answer SaslHandshake as a broker that requires a login by PLAIN."""
    return answer_to(head, {"mechanisms": ["PLAIN"]})


class RunningGateway:
    """A gateway and where it listens."""

    def __init__(self, gateway: Gateway, port: int, first_node_port: int) -> None:
        self.gateway = gateway
        self.port = port
        self.first_node_port = first_node_port
        self.clients: list[Client] = []

    def metric(self, name: str, **labels: str) -> float:
        value = self.gateway.registry.get_sample_value(f"pidgate_{name}", labels or None)
        return value or 0.0

    async def connect(
        self, port: int | None = None, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> Client:
        """Closed with the gateway, if not before. `name`: the host that is asked for with TLS."""
        opened = await asyncio.open_connection(HOST, port or self.port, ssl=tls, server_hostname=name)
        client = Client(*opened)
        self.clients.append(client)
        return client


class Client:
    """A client that writes and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        """The next frame without its prefix. Raises IncompleteReadError when the connection ends."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, api_key: int, version: int, body: raw.Body | None = None) -> dict[str, Any]:
        self.send(raw.request(api_key, version, body))
        return raw.decoded(api_key, version, await self.frame())

    async def end(self) -> bytes:
        """What comes until the connection is closed."""
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read()
        return b""


@asynccontextmanager
async def gateway_before(
    *brokers: str,
    listener: raw.Body | None = None,
    cluster: raw.Body | None = None,
    bounds: Bounds | None = None,
    **settings: Any,
) -> AsyncIterator[RunningGateway]:
    """A started gateway with its brokers as bootstrap servers; `settings` are top-level keys."""
    first = free_block(PORTS)
    port, first_node_port = first + 1, first + 2
    config: dict[str, Any] = {
        "cluster": {"bootstrap_servers": list(brokers), **(cluster or {})},
        "listeners": [
            {
                "bind": f"{HOST}:{port}",
                **({} if "sni" in (listener or {}) else {"node_ports": {"first": first_node_port}}),
                "authentication": "none",
                **(listener or {}),
            }
        ],
        "admin": {"bind": f"{HOST}:{first}"},
        "events": {"enabled": False},
        **settings,
    }
    # A fresh gateway would refuse nothing for an hour.
    quotas = config.setdefault("quotas", {})
    config["quotas"] = {**quotas, "producer_ids": {"grace": "0s", **quotas.get("producer_ids", {})}}
    outside = None if bounds is None else Outside(bounds=bounds)
    gateway = Gateway(parse(yaml.safe_dump(config)), outside=outside)
    await gateway.start()
    running = RunningGateway(gateway, port, first_node_port)
    try:
        yield running
    finally:
        for client in running.clients:
            client.writer.transport.abort()
        await gateway.drain()
        # Hundreds of tests of one process would leave no room for a gateway with a hundred ports.
        give_back(first, PORTS)
