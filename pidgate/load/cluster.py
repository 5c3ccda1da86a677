"""Brokers and leaders from Metadata (a gateway shows its own address), and connections that are logged in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from pidgate.load.connection import Connection, connect
from pidgate.load.exchanges import call, hello
from pidgate.load.plan import Address, Plan
from pidgate.load.tally import Tally
from pidgate.protocol import messages, producer_requests
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.metadata_places import Cluster as Brokers
from pidgate.protocol.metadata_places import TopicPartitions, places

NO_LEADER: Final = -1
CREATE_TOPICS: Final = 19
CREATE_TOPICS_VERSION: Final = 5
_CREATE_WITHIN_MS: Final = 15_000
_LEADERS_WITHIN_S: Final = 20.0
_ASK_AGAIN_S: Final = 0.2


class NothingReached(ConnectionError):
    """No bootstrap server answered."""


class TopicMissing(Exception):
    """The topic does not exist, and could not be created."""


class Cluster:
    """The brokers and the topic of a run, shared by its producers."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.partitions = 0
        self._brokers: dict[int, Address] = {}
        self._leaders: tuple[int, ...] = ()
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find or create the topic. Raises NothingReached, TopicMissing, LoginRefused."""
        if self.plan.is_direct:
            self.partitions = self.plan.partitions
            return
        connection = await self._any_connection()
        try:
            found = await self._read_places(connection)
            if not found:
                if not self.plan.create_partitions:
                    raise TopicMissing(f"topic {self.plan.topic} does not exist; --create-topic N creates it")
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
        """Return the address of the partition's leader."""
        if self.plan.is_direct:
            return self.plan.bootstrap[0]
        return self._brokers.get(self._leaders[partition]) or self.plan.bootstrap[0]

    async def refresh(self) -> None:
        """Read the leaders again, once for all concurrent callers. Without an answer the old leaders stay."""
        if self.plan.is_direct:
            return
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
        """Connect as a client does: ApiVersions, then SASL. Raises OSError, LoginRefused, KafkaProtocolError."""
        plan = self.plan
        connection = await connect(
            address,
            plan.request_timeout_s,
            client_id=plan.client_id,
            from_host=plan.from_host,
            tls=plan.tls,
        )
        if tally is not None:
            tally.connections += 1
        try:
            await connection.run(hello(plan.login))
        except BaseException:
            connection.close()
            raise
        return connection

    async def coordinator(self, transactional_id: str) -> Address:
        """Return the address of a transactional id's coordinator. Raises OSError, LoginRefused, KafkaProtocolError."""
        connection = await self._any_connection()
        try:
            answer = await connection.ask(
                lambda n, client_id: producer_requests.find_coordinator_request(
                    n, client_id, transactional_id
                )
            )
            found = producer_requests.find_coordinator_answer(answer.frame)
            if found.error_code:
                raise OSError(f"no coordinator: error code {found.error_code}")
            return found.host, found.port
        finally:
            connection.close()

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
        """Return whether the topic exists."""
        topic = self.plan.topic
        answer = await connection.ask(lambda n, client_id: messages.metadata_request(n, client_id, [topic]))
        frame, found = answer.frame, False
        for place in places(frame, 0, len(frame), messages.METADATA_PROBE_VERSION):
            if isinstance(place, Brokers):
                self._brokers = {broker.node_id: (broker.host, broker.port) for broker in place.brokers}
            elif isinstance(place, TopicPartitions) and place.name == topic:
                self._leaders, found = place.leaders, True
                self.partitions = len(place.leaders)
        return found

    async def _create(self, connection: Connection) -> None:
        plan = self.plan
        topic = {"name": plan.topic, "num_partitions": plan.create_partitions, "replication_factor": -1}
        body = {"topics": [topic], "timeout_ms": _CREATE_WITHIN_MS}
        answer = await connection.run(call(CREATE_TOPICS, CREATE_TOPICS_VERSION, body))
        error_code = answer.topics[0].error_code
        if error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            text = answer.topics[0].error_message or f"error code {error_code}"
            raise TopicMissing(f"topic {plan.topic} cannot be created: {text}")
