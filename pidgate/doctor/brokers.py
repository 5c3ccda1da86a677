"""Checks before the start that ask brokers: each answers, the own client's login and rights, their expiration.

The load on them is small: a SaslHandshake for each, Metadata of two topics, and two DescribeConfigs.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, TypeVar

from pidgate.doctor.findings import Checks, Start, State, failed, unasked, warning
from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.cluster.own_connections import NO_BROKER, connection_to, login_exchange, read_frame, run
from pidgate.gateway.cluster.probe import cause_of, remedy_of
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.config.password_file import CredentialsUnreadable, password_in
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.inherited import Missing, closed_ports, login_warnings
from pidgate.gateway.quotas.topic_store import QuotasTopic
from pidgate.gateway.state.events_topic import EventTopic, remember_warning
from pidgate.gateway.tls.contexts import TlsUnusable, client_context
from pidgate.gateway.topics.availability import quieten_aiokafka
from pidgate.gateway.topics.gateway_topic import GatewayTopic
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.protocol import addresses, messages, metadata
from pidgate.protocol.logins import MECHANISMS, Build, LoginRefused
from pidgate.units import Address, counted

Problem = tuple[State, str, str]
T = TypeVar("T")

TIMEOUT_S: Final = 5.0
MOST_BROKERS: Final = 100
_RIGHTS: Final = {3: "Read", 4: "Write", 8: "Describe"}
"""Numbers of Kafka's AclOperation."""
_UNKNOWN_TOPIC: Final = 3
_GIVE: Final = "kafka-acls --add --allow-principal User:{} --topic {} --operation {}"


class BrokerChecks:
    """Asks the brokers of a file. `run` adds the findings."""

    def __init__(self, checks: Checks, settings: Settings) -> None:
        self._checks = checks
        self._settings = settings
        self._resolver = Resolver()
        self._context: ssl.SSLContext | None = None

    async def run(self) -> None:
        """Ask in order, and stop at a failure that the next questions depend on."""
        found = await self.first_answer()
        problems = [_as_problem(one) for one in login_findings(self._settings, found and found[1])]
        self._checks.add("the file fits the login that the brokers want", Start.LOGIN, problems)
        if found is None or (found[1] and self._settings.own_client is None):
            return
        address, _ = found
        topics: list[GatewayTopic] = []
        if self._settings.events.enabled:
            topics = [EventTopic.from_settings(self._settings), QuotasTopic.from_settings(self._settings)]
        answer = await self._log_in(address, [topic.name for topic in topics])
        if answer is None:
            return
        await self._check_nodes(answer)
        if topics:
            await self._check_topics(topics, answer)

    async def first_answer(self) -> tuple[tuple[str, int], Sequence[str]] | None:
        """Ask the bootstrap servers; return the first that answered, with its SASL mechanisms."""
        cluster = self._settings.cluster
        try:
            if cluster.tls is not None:
                self._context = client_context(cluster.tls, ("cluster", "tls"))
        except TlsUnusable as error:
            problem = unasked(f"cluster.tls cannot be used: {error.text}", "correct it: no broker was asked")
            self._checks.add("bootstrap servers answer", Start.BROKERS, [problem])
            return None
        answers = await self._ask_all("bootstrap servers answer", cluster.bootstrap_servers)
        return next(((one, offered) for one, offered in answers.items() if offered is not None), None)

    async def _ask_all(
        self, title: str, servers: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], Sequence[str] | None]:
        """Ask each for its SASL mechanisms; None: it did not answer."""
        has_tls, loop = self._context is not None, asyncio.get_running_loop()
        began_s = loop.time()
        found = await asyncio.gather(*map(self._ask_mechanisms, servers), return_exceptions=True)
        slowest_ms = (loop.time() - began_s) * 1_000
        problems = [
            failed(cause_of(address, error, TIMEOUT_S, has_tls=has_tls), remedy_of(error))
            for address, error in zip(servers, found, strict=True)
            if isinstance(error, Exception)
        ]
        tls = " with TLS" if has_tls else ""
        self._checks.add(f"{title}{tls}, the slowest in {slowest_ms:.0f} ms", Start.BROKERS, problems)
        return {
            address: None if isinstance(one, BaseException) else one
            for address, one in zip(servers, found, strict=True)
        }

    async def _ask_mechanisms(self, address: tuple[str, int]) -> Sequence[str]:
        async with asyncio.timeout(TIMEOUT_S), self._connection(address) as (reader, writer):
            writer.write(MECHANISMS.frame)
            answer = await read_frame(reader)
        return messages.sasl_handshake_answer(answer, 0, len(answer), MECHANISMS.api_version).mechanisms

    def _connection(self, address: tuple[str, int]) -> Any:
        has_header = self._settings.cluster.proxy_protocol
        return connection_to(*address, self._context, self._resolver, sends_proxy_header=has_header)

    async def _log_in(self, address: tuple[str, int], names: Sequence[str]) -> bytes | None:
        """Log in as the own client, if there is one, and return the Metadata of the gateway's topics."""
        sasl = self._settings.own_client
        title = "brokers tell their addresses without a login"
        if sasl is not None:
            title = f"the own client logs in as {sasl.username} ({sasl.mechanism})"
        problem = None
        try:
            async with asyncio.timeout(TIMEOUT_S), self._connection(address) as (reader, writer):
                if sasl is not None:
                    password = password_in(sasl.password_file)
                    login = login_exchange(sasl.mechanism, sasl.username, password, secrets.token_hex(16))
                    await run(reader, writer, login)
                answer = await run(reader, writer, _metadata(names))
                self._checks.add(title, Start.LOGIN)
                return answer
        except LoginRefused as error:
            problem = failed(
                str(error), "correct own_client, or create the user at the brokers (kafka-configs)"
            )
        except CredentialsUnreadable as error:
            # Somebody may have written the password in place of the file's name.
            text = str(error) if sasl is None else str(error).replace(repr(sasl.password_file), "the file")
            problem = failed(text, "correct the path or the rights of the file")
        except (*NO_BROKER, TimeoutError) as error:
            has_tls = self._context is not None
            problem = failed(cause_of(address, error, TIMEOUT_S, has_tls=has_tls), remedy_of(error))
        self._checks.add(title, Start.LOGIN, [problem])
        return None

    # ---- brokers ---------------------------------------------------------------------------------------

    async def _check_nodes(self, answer: bytes) -> None:
        """Check the port of each broker, and that each answers."""
        nodes: dict[int, Address] = {}

        def learn(node_id: int, host: str, port: int) -> tuple[str, int]:
            nodes[node_id] = Address(host, port)
            return host, port

        addresses.rewrite(messages.METADATA, messages.METADATA_PROBE_VERSION, answer, 0, len(answer), learn)
        ids = ", ".join(map(str, sorted(nodes)))
        problems = list(self._without_port(nodes))
        self._checks.add(f"each broker has a port ({ids})", Start.NODE_PORTS, problems)
        first = [nodes[node_id] for node_id in sorted(nodes)[:MOST_BROKERS]]
        await self._ask_all(f"{counted(len(first), 'broker')} of the cluster: every one answers", first)

    def _without_port(self, nodes: dict[int, Address]) -> Iterator[Problem]:
        taken = {self._settings.admin.bind.port: "admin.bind"}
        taken |= {one.bind_port: f"bind of listener {one.name}" for one in self._settings.listeners}
        for index, listener in enumerate(self._settings.listeners):
            if listener.sni is not None or listener.only_node is not None:
                continue
            ports = NodePorts(listener)
            for node_id in sorted(nodes):
                port = ports.port_of(node_id)
                if port is None:
                    text = f"listeners[{index}]: broker {node_id} has no port, so no client reaches its partitions"
                    yield failed(text, "add it to node_ports.node_ids, or leave node_ids out")
                elif port in taken:
                    text = f"listeners[{index}]: broker {node_id} needs port {port}, which is {taken[port]}"
                    yield failed(text, "write another node_ports.first")

    # ---- topics ----------------------------------------------------------------------------------------

    async def _check_topics(self, topics: list[GatewayTopic], answer: bytes) -> None:
        """Check the rights on the gateway's topics, their settings, and the brokers' expiration."""
        sasl = self._settings.own_client
        user = "ANONYMOUS" if sasl is None else sasl.username
        version = messages.METADATA_PROBE_VERSION
        rights = {one.name: one for one in metadata.topic_rights(answer, 0, len(answer), version)}
        quieten_aiokafka()
        admin = OwnClient.from_settings(self._settings).admin(request_timeout_ms=int(TIMEOUT_S * 1_000))
        try:
            await admin.start()
            missing: list[Problem] = []
            for topic in topics:
                found = rights.get(topic.name)
                if found is None or found.error_code == _UNKNOWN_TOPIC or not found.operations:
                    if why := await topic.why_not_creatable(admin):
                        text = f"{topic.name} does not exist, or is not shown to {user}, and cannot be created: {why}"
                        missing.append(failed(text, _GIVE.format(user, topic.name, "All")))
                    continue
                for number, right in _RIGHTS.items():
                    if number not in found.operations:
                        text = f"{user} has no right {right} on {topic.name}"
                        missing.append(failed(text, _GIVE.format(user, topic.name, right)))
            self._checks.add(f"{user} may use the gateway's topics", Start.RIGHTS, missing)
            await self._check_topic_settings(topics, admin)
        except Exception as error:  # noqa: BLE001 - the library raises errors of many kinds
            reason = str(error) or type(error).__name__
            problem = unasked(
                f"the brokers did not answer the own client: {reason}", "look at the broker's log"
            )
            self._checks.add("the gateway's topics", Start.RIGHTS, [problem])
        finally:
            await admin.close()

    async def _check_topic_settings(self, topics: list[GatewayTopic], admin: Any) -> None:
        unsafe = []
        for topic in topics:
            for one in await topic.unsafe_settings(admin) or ():
                text = f"{topic.name} has {one['setting']}={one['value']}: {one['reason']}"
                unsafe.append(warning(text, one["remedy"]))
        self._checks.add("settings of the gateway's topics are safe", Start.TOPICS, unsafe)
        remember_ms, events = self._settings.quotas.producer_ids.remember_ms, topics[0]
        assert isinstance(events, EventTopic)
        try:
            expiration_ms = await events.expiration_ms(admin)
        except (KeyError, ValueError):
            text = "the brokers do not show producer.id.expiration.ms to the own client"
            problems = [
                warning(text, "give it DescribeConfigs on the cluster, or compare it with remember yourself")
            ]
        else:
            told = remember_warning(remember_ms, expiration_ms)
            cause, _, remedy = told.rpartition(". ")
            problems = [] if expiration_ms == remember_ms else [warning(f"remember {cause}", remedy)]
        self._checks.add("remember is the brokers' producer.id.expiration.ms", Start.EXPIRATION, problems)


def login_findings(settings: Settings, mechanisms: Sequence[str] | None) -> Iterator[Missing]:
    """Yield the settings that the file lacks. `mechanisms` of the brokers; None: no broker has answered.

    The file alone does not show whether the brokers want a login.
    """
    if mechanisms is not None:
        yield from login_warnings(settings, settings.to_quotas(), mechanisms)
    elif any(listener.requires_login for listener in settings.listeners):
        yield from closed_ports(settings)


async def login_warnings_of(settings: Settings) -> list[str]:
    """Return what the file lacks for its brokers; if none answers, judge by the file alone. For `pidgate check`."""
    found = await BrokerChecks(Checks(""), settings).first_answer()
    return [f"{one.key}: {one.text}" for one in login_findings(settings, found and found[1])]


def _as_problem(missing: Missing) -> Problem:
    found = failed if missing.key == "own_client" else warning
    return found(f"{missing.key}: {missing.cause}", missing.remedy)


def _metadata(names: Sequence[str]) -> Generator[Build, bytes, bytes]:
    return (yield lambda n, client_id: messages.metadata_request(n, client_id, names, asks_rights=True))
