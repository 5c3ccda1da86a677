"""First contact with the cluster: tries bootstrap servers until one responds, then learns its brokers.

"Reached" means that a broker responded to SaslHandshake, which needs no authentication. The response shows
whether authentication is on. Without it, a Metadata request learns the brokers, so that
node ports are open before the first client arrives, and the ids of existing gateway topics. With it, both are
learnt from client traffic.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress

from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.broker_answers import BrokerAnswers
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import Address, Nodes
from pidgate.gateway.cluster.own_connections import CLIENT_ID, NO_BROKER, connection_to, read_frame
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.tls.wording import of_broker
from pidgate.protocol import addresses, messages, metadata
from pidgate.protocol.logins import MECHANISMS

log = logger()

RETRY_S = 0.5
GATEWAY_TOPICS_RETRY_S = 5.0
"""Interval of checks for the gateway topic until it exists; the first gateway creates it."""
UNANSWERED_RETRY_S = 60.0
"""The same interval without a response, most likely for lack of authentication."""


class Probe:
    """Task that contacts the cluster until a broker responds."""

    def __init__(
        self,
        nodes: Nodes,
        answers: BrokerAnswers,
        gateway_topics: GatewayTopics | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        self._nodes = nodes
        self._answers = answers
        self._authentication = authentication or Authentication()
        self._gateway_topics = gateway_topics or GatewayTopics()
        self.reached = asyncio.Event()
        self.last_failure = "no bootstrap server has been tried yet"

    async def run(self) -> None:
        """Return after the first response of a bootstrap server."""
        while not self.reached.is_set():
            for address in self._nodes.candidate_addresses(None):
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
            address = self._nodes.candidate_addresses(None)[0]
            with suppress(*NO_BROKER):
                async with (
                    asyncio.timeout(self._answers.timeout_s),
                    self._answers.connection_to(address) as (reader, writer),
                ):
                    wait_s = UNANSWERED_RETRY_S
                    await self._learn_from(reader, writer)
                    wait_s = GATEWAY_TOPICS_RETRY_S

    async def _ask(self, address: Address) -> bool:
        host, port = address
        try:
            answer = await self._answers.ask(address, MECHANISMS)
            found = messages.sasl_handshake_answer(answer, 0, len(answer), MECHANISMS.api_version)
            self._authentication.learn_requirement(found.error_code, found.mechanisms)
            if not self._authentication.required:
                async with (
                    asyncio.timeout(self._answers.timeout_s),
                    self._answers.connection_to(address) as (reader, writer),
                ):
                    await self._learn_from(reader, writer)
        except NO_BROKER as error:
            is_of_tls = (
                isinstance(error, ssl.SSLError | ConnectionResetError) and self._answers.tls is not None
            )
            reason = of_broker(error, host) if is_of_tls else str(error)
            return self._not_reached(address, reason or type(error).__name__)
        if not self._authentication.required and not self._nodes.known_addresses:
            # Clients from before a restart reconnect to node ports, some to nothing else.
            return self._not_reached(address, "names no brokers")
        log.info(Event.CLUSTER_REACHED, server=f"{host}:{port}", node_ids=sorted(self._nodes.known_addresses))
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
        """Learn brokers and gateway topic ids. Raises OSError, EOFError, KafkaProtocolError."""
        writer.write(messages.metadata_request(1, CLIENT_ID, sorted(self._gateway_topics.names)))
        answer = await read_frame(reader)
        version = messages.METADATA_PROBE_VERSION
        addresses.rewrite(messages.METADATA, version, answer, 0, len(answer), self._learn)
        for name, topic_id in metadata.topic_ids(answer, 0, len(answer), version):
            if name in self._gateway_topics.names:
                self._gateway_topics.learn_id(topic_id)

    def _learn(self, node_id: int, host: str, port: int) -> Address:
        self._nodes.learn_node(node_id, host, port)
        return host, port


async def mechanisms_of(
    servers: Iterable[Address],
    timeout_s: float,
    context: ssl.SSLContext | None = None,
    *,
    sends_proxy_header: bool = False,
) -> Sequence[str] | None:
    """Return the SASL mechanisms of the first broker that responds; None if none responds in time.

    `context` None: without TLS.
    """
    authentication, found, resolver = Authentication(), list[str](), Resolver()
    authentication.on_learnt = found.extend
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for host, port in servers:
                with suppress(*NO_BROKER):
                    opening = connection_to(
                        host, port, context, resolver, sends_proxy_header=sends_proxy_header
                    )
                    async with opening as (reader, writer):
                        writer.write(MECHANISMS.frame)
                        answer = await read_frame(reader)
                    learnt = messages.sasl_handshake_answer(answer, 0, len(answer), MECHANISMS.api_version)
                    authentication.learn_requirement(learnt.error_code, learnt.mechanisms)
                    return found
    return None
