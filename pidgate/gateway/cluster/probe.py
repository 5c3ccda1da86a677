"""The first contact with the cluster: asks bootstrap servers until one answers, then once more for its brokers.

"Reached" means that a broker answered ApiVersions and SaslHandshake, which it does before any authentication; the
second answer shows whether there is any. A cluster without authentication has to name its brokers, too (Metadata), so
that their ports are open before the first client comes, and names the ids of the gateway topics that exist; of one
with authentication both are learnt from the clients' own answers as they pass.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import Address, Nodes
from pidgate.gateway.cluster.own_connections import CLIENT_ID, NO_BROKER, connection_to, read_frame
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.tls.live import LiveContext
from pidgate.gateway.tls.wording import of_broker
from pidgate.protocol import addresses, messages, metadata, producer_requests

log = logger()

RETRY_S = 0.5
GATEWAY_TOPICS_RETRY_S = 5.0
"""Wait between two looks for the gateway's own topic until it exists: the first gateway to come makes it."""
UNANSWERED_RETRY_S = 60.0
"""The same where nobody answers: very likely because we did not authenticate."""


class Probe:
    """Task that reaches for the cluster until it has answered once."""

    def __init__(
        self,
        nodes: Nodes,
        timeout_ms: int,
        gateway_topics: GatewayTopics | None = None,
        authentication: Authentication | None = None,
        tls: LiveContext | None = None,
        *,
        sends_proxy_header: bool = False,
    ) -> None:
        self._nodes = nodes
        self._tls = tls
        self._sends_proxy_header = sends_proxy_header
        self._authentication = authentication or Authentication()
        self._gateway_topics = gateway_topics or GatewayTopics()
        self._timeout_s = timeout_ms / 1000
        self.reached = asyncio.Event()
        self.last_failure = "the cluster has not been asked yet"

    async def run(self) -> None:
        """Return once a bootstrap server has answered."""
        while not self.reached.is_set():
            for address in self._nodes.candidates(None):
                if await self._ask(address):
                    self.reached.set()
                    return
            await asyncio.sleep(RETRY_S)

    async def learn_gateway_topics(self) -> None:
        """Return once the id of a gateway topic is known."""
        await self.reached.wait()
        wait_s = GATEWAY_TOPICS_RETRY_S
        while self._gateway_topics.names and not self._gateway_topics.ids_known:
            await asyncio.sleep(wait_s)
            host, port = self._nodes.candidates(None)[0]
            with suppress(*NO_BROKER):
                async with (
                    asyncio.timeout(self._timeout_s),
                    self._connection_to(host, port) as (reader, writer),
                ):
                    wait_s = UNANSWERED_RETRY_S
                    await self._learn_from(reader, writer)
                    wait_s = GATEWAY_TOPICS_RETRY_S

    def _connection_to(
        self, host: str, port: int
    ) -> AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        context = None if self._tls is None else self._tls.context
        return connection_to(host, port, context, sends_proxy_header=self._sends_proxy_header)

    async def _ask(self, address: Address) -> bool:
        host, port = address
        try:
            async with asyncio.timeout(self._timeout_s), self._connection_to(host, port) as (reader, writer):
                found = await _handshake(reader, writer)
                self._authentication.learn(found.error_code, found.mechanisms)
                if not self._authentication.required:
                    await self._learn_from(reader, writer)
        except NO_BROKER as error:
            is_of_tls = isinstance(error, ssl.SSLError | ConnectionResetError) and self._tls is not None
            reason = of_broker(error, host) if is_of_tls else str(error)
            return self._not_reached(address, reason or type(error).__name__)
        if not self._authentication.required and not self._nodes.known:
            # A client that was here before the gateway's restart asks at its brokers' ports, and some ask nowhere else.
            return self._not_reached(address, "names no brokers")
        log.info(Event.CLUSTER_REACHED, server=f"{host}:{port}", node_ids=sorted(self._nodes.known))
        return True

    def _not_reached(self, address: Address, reason: str) -> bool:
        host, port = address
        self.last_failure = f"{host}:{port}: {reason}"
        log.warning(
            Event.CLUSTER_NOT_REACHED,
            server=f"{host}:{port}",
            cause=self.last_failure,
            retry_ms=int(RETRY_S * 1000),
        )
        return False

    async def _learn_from(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Learn the brokers and the gateway topics' ids. Raises OSError, EOFError, KafkaProtocolError."""
        writer.write(messages.metadata_request(3, CLIENT_ID, sorted(self._gateway_topics.names)))
        answer = await read_frame(reader)
        version = messages.METADATA_PROBE_VERSION
        addresses.rewrite(messages.METADATA, version, answer, 0, len(answer), self._learn)
        for name, topic_id in metadata.topic_ids(answer, 0, len(answer), version):
            if name in self._gateway_topics.names:
                self._gateway_topics.learn_id(topic_id)

    def _learn(self, node_id: int, host: str, port: int) -> Address:
        self._nodes.learn(node_id, host, port)
        return host, port


async def mechanisms_of(
    servers: Iterable[Address],
    timeout_s: float,
    context: ssl.SSLContext | None = None,
    *,
    sends_proxy_header: bool = False,
) -> Sequence[str] | None:
    """Return the SASL mechanisms that the first broker that answers offers; None: no broker has answered in time.

    `context` None: without TLS.
    """
    authentication, found = Authentication(), list[str]()
    authentication.on_learnt = found.extend
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for host, port in servers:
                with suppress(*NO_BROKER):
                    opening = connection_to(host, port, context, sends_proxy_header=sends_proxy_header)
                    async with opening as (reader, writer):
                        answer = await _handshake(reader, writer)
                    authentication.learn(answer.error_code, answer.mechanisms)
                    return found
    return None


async def _handshake(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> messages.SaslHandshakeAnswer:
    """Ask a broker for its mechanisms. Raises OSError, EOFError, ValueError, KafkaProtocolError."""
    writer.write(messages.api_versions_request(1, CLIENT_ID))
    await read_frame(reader)
    # PLAIN: a broker without it answers too, and one with it takes nothing amiss.
    writer.write(producer_requests.sasl_handshake_request(2, CLIENT_ID, "PLAIN"))
    answer = await read_frame(reader)
    return messages.sasl_handshake_answer(answer, 0, len(answer), 1)
