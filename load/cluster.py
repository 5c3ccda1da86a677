"""Where to send: the brokers as Metadata shows them (a gateway shows itself), and connections that are logged in."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Final

from pidgate.load.connection import Answer, Connection, connect
from pidgate.load.login import LoginRefused, tokens
from pidgate.load.plan import Address, Plan
from pidgate.load.tally import Tally
from pidgate.protocol import messages, producer_requests
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.metadata_places import Cluster as Brokers
from pidgate.protocol.metadata_places import TopicPartitions, places
from pidgate.version import version

NO_LEADER: Final = -1
_CREATE_TOPICS: Final = 19
_CREATE_TOPICS_VERSION: Final = 5
_CREATE_WITHIN_MS: Final = 15_000
_LEADERS_WITHIN_S: Final = 20.0
_ASK_AGAIN_S: Final = 0.2


class NothingReached(ConnectionError):
    """No bootstrap server could be talked to."""


class TopicMissing(Exception):
    """The topic is not there, and was not to be created; or could not be."""


class Cluster:
    """Shared by all producers of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.partitions = 0
        self._brokers: dict[int, Address] = {}
        self._leaders: tuple[int, ...] = ()
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find the topic, or create it. Raises NothingReached, TopicMissing, LoginRefused."""
        connection = await self._any_connection()
        try:
            found = await self._read_places(connection)
            if not found:
                if not self.plan.create_topic:
                    raise TopicMissing(f"topic {self.plan.topic} is not there; --create-topic makes it")
                await self._create(connection)
            async with asyncio.timeout(_LEADERS_WITHIN_S):
                while not self.partitions or NO_LEADER in self._leaders:
                    await asyncio.sleep(_ASK_AGAIN_S)
                    await self._read_places(connection)
        except TimeoutError:
            raise TopicMissing(f"topic {self.plan.topic}: not every partition has a leader") from None
        finally:
            connection.close()

    def leader(self, partition: int) -> Address:
        """Where its producers connect."""
        return self._brokers.get(self._leaders[partition]) or self.plan.bootstrap[0]

    async def refresh(self) -> None:
        """Ask anew who leads; many may ask at once. Whoever cannot be reached leaves what was known."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        with contextlib.suppress(LoginRefused, OSError, KafkaProtocolError):
            connection = await self._any_connection()
            try:
                await self._read_places(connection)
            finally:
                connection.close()

    async def connect(self, address: Address, tally: Tally | None = None) -> Connection:
        """A connection as a client begins it: ApiVersions, then SASL. Raises OSError, LoginRefused.

        KafkaProtocolError: whoever answers does not speak Kafka.
        """
        connection = await connect(address, self.plan.request_timeout_s)
        if tally is not None:
            tally.connections += 1
        try:
            client_id = self.plan.client_id
            await connection.ask(lambda n: messages.api_versions_request(n, client_id, version()))
            if self.plan.login is not None:
                await self._log_in(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def coordinator(self, transactional_id: str) -> Address:
        """Who coordinates it. Raises OSError when that cannot be learnt now."""
        connection = await self._any_connection()
        try:
            answer = await connection.ask(
                lambda n: producer_requests.find_coordinator_request(n, self.plan.client_id, transactional_id)
            )
            found = producer_requests.find_coordinator_answer(answer.frame)
            if found.error_code:
                raise OSError(f"no coordinator: error code {found.error_code}")
            return found.host, found.port
        finally:
            connection.close()

    async def _log_in(self, connection: Connection) -> None:
        login, client_id = self.plan.login, self.plan.client_id
        assert login is not None
        answer = await connection.ask(
            lambda n: producer_requests.sasl_handshake_request(n, client_id, login.mechanism)
        )
        if _error_code(answer, producer_requests.SASL_HANDSHAKE_VERSION):
            raise LoginRefused(f"the brokers do not offer {login.mechanism}")
        exchange = tokens(login, secrets.token_urlsafe(24))
        token: bytes | None = next(exchange)
        while token is not None:
            request = producer_requests.sasl_authenticate_request(
                connection.next_correlation_id(), client_id, token
            )
            frame = (await connection.send(request)).frame
            error_code, theirs = messages.sasl_answer(
                frame, 0, len(frame), producer_requests.SASL_AUTHENTICATE_VERSION
            )
            if error_code:
                raise LoginRefused(f"{login.user} cannot log in with {login.mechanism} (code {error_code})")
            try:
                token = exchange.send(theirs)
            except StopIteration:
                token = None

    async def _any_connection(self) -> Connection:
        problems = []
        for address in self._known():
            try:
                return await self.connect(address)
            except (OSError, KafkaProtocolError) as error:
                problems.append(f"{address[0]}:{address[1]}: {error or type(error).__name__}")
        raise NothingReached("; ".join(problems))

    def _known(self) -> Iterator[Address]:
        yield from self.plan.bootstrap
        yield from (address for address in self._brokers.values() if address not in self.plan.bootstrap)

    async def _read_places(self, connection: Connection) -> bool:
        """Whether the topic is there."""
        topic = self.plan.topic
        answer = await connection.ask(lambda n: messages.metadata_request(n, self.plan.client_id, [topic]))
        frame, found = answer.frame, False
        for place in places(frame, 0, len(frame), messages.METADATA_PROBE_VERSION):
            if isinstance(place, Brokers):
                self._brokers = {broker.node_id: (broker.host, broker.port) for broker in place.brokers}
            elif isinstance(place, TopicPartitions) and place.name == topic:
                self._leaders, found = place.leaders, True
                self.partitions = len(place.leaders)
        return found

    async def _create(self, connection: Connection) -> None:
        request = messages.message_class(_CREATE_TOPICS, "request")
        wanted = request.CreatableTopic(
            version=_CREATE_TOPICS_VERSION,
            name=self.plan.topic,
            num_partitions=self.plan.partitions,
            replication_factor=-1,
            assignments=[],
            configs=[],
        )
        message = request(
            version=_CREATE_TOPICS_VERSION,
            topics=[wanted],
            timeout_ms=_CREATE_WITHIN_MS,
            validate_only=False,
        )
        answer = await connection.ask(lambda n: messages.encode_request(n, self.plan.client_id, message))
        frame = answer.frame
        told = messages.decode_response(_CREATE_TOPICS, _CREATE_TOPICS_VERSION, frame, 0, len(frame))
        error_code = told.topics[0].error_code
        if error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            text = told.topics[0].error_message or f"error code {error_code}"
            raise TopicMissing(f"topic {self.plan.topic} cannot be created: {text}")


def _error_code(answer: Answer, api_version: int) -> int:
    return messages.sasl_handshake_answer(answer.frame, 0, len(answer.frame), api_version)
