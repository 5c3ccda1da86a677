"""Contact with the cluster: asks every broker whether it answers, and learns the brokers at the first answer.

The question is SaslHandshake, which needs no login. The answer shows whether a login is required. A Metadata
request then learns the brokers, so that node ports are open before the first client arrives, and the ids of existing
gateway topics. Where a login is required the gateway's own client logs in for it. Without an own client both are
learnt from client traffic.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator, Iterable, MutableMapping, Sequence
from contextlib import suppress
from socket import gaierror
from typing import Final

from pidgate.gateway.clock import next_tick
from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.cluster.broker_answers import BrokerAnswers
from pidgate.gateway.cluster.gateway_topics import GatewayTopics
from pidgate.gateway.cluster.nodes import Address, Nodes
from pidgate.gateway.cluster.own_connections import NO_BROKER, connection_to, read_frame, run
from pidgate.gateway.cluster.own_questions import NotAnswered, OwnQuestions
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.logs import Event, logger
from pidgate.gateway.tls.wording import of_broker
from pidgate.protocol import addresses, messages, metadata
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.logins import MECHANISMS, Build

log = logger()

RETRY_S: Final = 0.5
"""Pause between two rounds while no broker answers."""
NODES_PER_S: Final = 10
"""Brokers asked a second in a large cluster: a question over TLS costs 2 ms."""
ASKED_AT_ONCE: Final = 100
LEARN_AGAIN_S: Final = 5.0
"""Interval of Metadata requests until the brokers and the gateway topics are known; the first gateway creates those."""
LOGIN_AGAIN_S: Final = 60.0
"""The same interval after a failed login: brokers log each."""
REMOVED_AFTER_S: Final = 86_400.0
"""A broker that did not answer for so long has been removed from the cluster: it has no metric any more."""
CAUSES_NAMED: Final = 3
_LOGIN_REMEDY: Final = "correct own_client: until then the brokers' ports open when a client has bootstrapped"


class NamesNoBrokers(KafkaProtocolError):
    """The Metadata answer has no brokers: clients from before a restart could not connect to any."""

    def __init__(self) -> None:
        super().__init__("names no brokers")


class Probe:
    """Task that asks the brokers as long as the gateway runs.

    `up`: gets 1 or 0 for each node id, `answer_s` how long its last answer took.
    `own`: Metadata with the gateway's own login; None: it has none.
    """

    def __init__(
        self,
        nodes: Nodes,
        answers: BrokerAnswers,
        gateway_topics: GatewayTopics | None = None,
        authentication: Authentication | None = None,
        *,
        up: MutableMapping[int, int] | None = None,
        answer_s: MutableMapping[int, float] | None = None,
        own: OwnQuestions | None = None,
        check_every_ms: int = 5_000,
    ) -> None:
        self._nodes = nodes
        self._answers = answers
        self._authentication = authentication or Authentication()
        self._gateway_topics = gateway_topics or GatewayTopics()
        self._up = {} if up is None else up
        self._answer_s = {} if answer_s is None else answer_s
        self._own = own
        self._check_every_s = check_every_ms / 1000
        self._answered_s: dict[int, float] = {}
        """When each node answered last, or was learnt."""
        self._failures: dict[Address, Exception] = {}
        """Of one round."""
        self._attempts = 0
        """Rounds since the last answer."""
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self._learning = asyncio.Lock()
        self._learn_again_s = 0.0
        self._silent_since_s = asyncio.get_running_loop().time()
        self.reached = asyncio.Event()
        """Set while a broker answers."""
        self.last_failure = "no bootstrap server has been tried yet"
        """Empty while a broker answers."""
        self._login_failure = ""

    async def run(self) -> None:
        """Ask all nodes, in rounds. While none of them answers, ask the bootstrap servers, too."""
        while True:
            self._failures.clear()
            if await self._any_node_answers() or await self._any_candidate_answers():
                await self._learn_missing()
                pause_s = max(self._check_every_s, len(self._up) / NODES_PER_S)
            else:
                self._not_reached()
                pause_s = RETRY_S
            await next_tick(pause_s)

    async def _any_node_answers(self) -> bool:
        places, now_s = dict(self._nodes.last_addresses), asyncio.get_running_loop().time()
        answered = await asyncio.gather(*map(self._answers_at, places.values(), places))
        for node_id, is_up in zip(places, answered, strict=True):
            self._up[node_id] = int(is_up)
            if is_up or node_id not in self._answered_s:
                self._answered_s[node_id] = now_s
            elif now_s - self._answered_s[node_id] > REMOVED_AFTER_S and any(answered):
                self._nodes.drop_node(node_id)
                del self._up[node_id], self._answered_s[node_id]
                self._answer_s.pop(node_id, None)
        return any(answered)

    async def _any_candidate_answers(self) -> bool:
        others = [
            address for address in self._nodes.candidate_addresses(None) if address not in self._failures
        ]
        return any(await asyncio.gather(*map(self._answers_at, others)))

    async def _answers_at(self, address: Address, node_id: int | None = None) -> bool:
        """Return whether the broker answers; learn from the first one that does."""
        loop = asyncio.get_running_loop()
        try:
            async with self._asking:
                began_s = loop.time()
                answer = await self._answers.ask_anew(address, MECHANISMS)
            if node_id is not None:
                self._answer_s[node_id] = loop.time() - began_s
            async with self._learning:
                if not self.reached.is_set():
                    await self._first_answer(address, answer)
        except NO_BROKER as error:
            self._answers.forget(address)
            self._failures[address] = error
            return False
        return True

    async def _first_answer(self, address: Address, answer: bytes) -> None:
        """Learn from the first answer after a silence. Raises NO_BROKER."""
        found = messages.sasl_handshake_answer(answer, 0, len(answer), MECHANISMS.api_version)
        self._authentication.learn_requirement(found.error_code, found.mechanisms)
        if self._authentication.required:
            await self._learn_as_own_client()
        else:
            await self._learn_at(address)
            if not self._nodes.known_addresses:
                raise NamesNoBrokers
        loop, host, port = asyncio.get_running_loop(), *address
        log.info(
            Event.CLUSTER_REACHED,
            server=f"{host}:{port}",
            node_ids=sorted(self._nodes.known_addresses),
            waited_ms=int((loop.time() - self._silent_since_s) * 1000),
        )
        self._learn_again_s = max(self._learn_again_s, loop.time() + LEARN_AGAIN_S)
        self._attempts = 0
        self.last_failure = ""
        self.reached.set()

    def _not_reached(self) -> None:
        """Log the first round without an answer, then the second, fourth, eighth and so on."""
        if self.reached.is_set():
            self.reached.clear()
            self._silent_since_s = asyncio.get_running_loop().time()
        self._attempts += 1
        has_tls, timeout_s = self._answers.tls is not None, self._answers.timeout_s
        causes = [cause_of(*failure, timeout_s, has_tls=has_tls) for failure in self._failures.items()]
        more = len(causes) - CAUSES_NAMED
        shown = [*causes[:CAUSES_NAMED], *([f"and {more} more"] if more > 0 else [])]
        self.last_failure = f"no broker answers: {'; '.join(shown)}"
        if self._attempts & (self._attempts - 1) == 0:
            remedies = dict.fromkeys(map(remedy_of, self._failures.values()))
            log.warning(
                Event.CLUSTER_NOT_REACHED,
                cause="; ".join(shown),
                remedy="; ".join(remedies),
                attempts=self._attempts,
                silent_s=round(asyncio.get_running_loop().time() - self._silent_since_s),
            )

    # ---- learning --------------------------------------------------------------------------------------

    async def _learn_missing(self) -> None:
        """Ask for Metadata again until the brokers and the gateway topics are known."""
        now_s = asyncio.get_running_loop().time()
        are_topics_known = self._gateway_topics.ids_known or not self._gateway_topics.names
        if (are_topics_known and self._nodes.known_addresses) or now_s < self._learn_again_s:
            return
        self._learn_again_s = now_s + LEARN_AGAIN_S
        if self._authentication.required:
            await self._learn_as_own_client()
            return
        with suppress(*NO_BROKER):
            await self._learn_at(self._nodes.candidate_addresses(None)[0])

    async def _learn_at(self, address: Address) -> None:
        """Learn from a broker that requires no login. Raises NO_BROKER."""
        async with (
            asyncio.timeout(self._answers.timeout_s),
            self._answers.connection_to(address) as (reader, writer),
        ):
            self._learn_from(await run(reader, writer, self._metadata()))

    async def _learn_as_own_client(self) -> None:
        """Learn with the gateway's own login, if it has one. A failure is logged once, and tried again."""
        if self._own is None:
            return
        try:
            self._learn_from(await self._own.ask_broker(self._metadata))
        except (NotAnswered, CredentialsUnreadable, KafkaProtocolError) as error:
            if self._login_failure != str(error):
                log.warning(Event.BROKERS_NOT_LEARNT, cause=str(error), remedy=_LOGIN_REMEDY)
            self._login_failure = str(error)
            self._learn_again_s = asyncio.get_running_loop().time() + LOGIN_AGAIN_S
        else:
            self._login_failure = ""

    def _metadata(self) -> Generator[Build, bytes, bytes]:
        names = sorted(self._gateway_topics.names)
        return (yield lambda n, client_id: messages.metadata_request(n, client_id, names))

    def _learn_from(self, answer: bytes) -> None:
        """Learn brokers and gateway topic ids. Raises KafkaProtocolError."""
        version = messages.METADATA_PROBE_VERSION
        addresses.rewrite(messages.METADATA, version, answer, 0, len(answer), self._learn)
        for name, topic_id in metadata.topic_ids(answer, 0, len(answer), version):
            if name in self._gateway_topics.names:
                self._gateway_topics.learn_id(topic_id)

    def _learn(self, node_id: int, host: str, port: int) -> Address:
        self._nodes.learn_node(node_id, host, port)
        return host, port


def cause_of(address: Address, error: Exception, timeout_s: float, *, has_tls: bool) -> str:
    """Return why a broker does not answer, with its address."""
    host, port = address
    if isinstance(error, TimeoutError):
        return f"{host}:{port}: did not answer within {timeout_s:g} s"
    is_of_tls = isinstance(error, ssl.SSLError | ConnectionResetError) and has_tls
    reason = of_broker(error, host) if is_of_tls and isinstance(error, OSError) else str(error)
    return f"{host}:{port}: {reason or type(error).__name__}"


def remedy_of(error: Exception) -> str:
    """Return what to do about a broker that does not answer."""
    if isinstance(error, ConnectionRefusedError):
        return "start the broker, or correct cluster.bootstrap_servers: nothing listens there"
    if isinstance(error, gaierror | UnicodeError):
        return "correct the name in cluster.bootstrap_servers, or the name service"
    if isinstance(error, ssl.SSLError):
        return "correct cluster.tls"
    if isinstance(error, TimeoutError):
        return "look at the broker, the route and the firewalls: nothing answers there"
    if isinstance(error, NamesNoBrokers):
        return "wait until its brokers have registered"
    if isinstance(error, EOFError | ConnectionError):
        return "if that port speaks TLS, set cluster.tls; if it is not Kafka's, correct cluster.bootstrap_servers"
    if isinstance(error, KafkaProtocolError):
        return "correct the port in cluster.bootstrap_servers: no Kafka broker answers there"
    return "look at the cause; correct cluster.bootstrap_servers"


async def mechanisms_of(
    servers: Iterable[tuple[str, int]],
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
