"""A consumer that follows every partition of a topic from its beginning on: read_uncommitted.

It sends one Fetch after another over a connection for each partition. Whatever goes wrong, it asks for the leader
again and continues at its offset. Every way to read is this one reader with a row of traits (READINGS in traits.py).
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, Final

from pidgate.load.plan import Address
from pidgate.protocol import codec
from tests.simulator.clients import frames
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.clients.hostile import read_frame
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.traits import Reading
from tests.support.broker_logs import whole_batches
from tests.support.raw import request

FETCH: Final = 1
_OFFSET_COMMIT: Final = 8
_JOIN_GROUP: Final = 11
_HEARTBEAT: Final = 12
_FETCH_VERSION: Final = 12
_METADATA_VERSION: Final = 12
_GROUP_VERSION: Final = 3
_ID_NOT_FOUND, _WRONG_EPOCH = 70, 71
SESSION_MS: Final = 10_000
HEARTBEAT_S: Final = 3.0
"""session.timeout.ms and heartbeat.interval.ms of Kafka's clients before 3.0."""
REQUEST_S: Final = 30.0
AGAIN_S: Final = 0.2
SOON_S: Final = 1.0
"""Between two Fetches on connections of their own."""
MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 32 * 1024
"""A longer answer the cold codec does not read."""
FETCH_IDS: Final = 1_000_000
"""Correlation ids of Fetches begin here: so that whoever looks at answers knows them."""


Ways = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class FetchSession:
    """The session of a connection, as the client has it (FetchSessionHandler). `epoch`: of the next Fetch."""

    id: int = 0
    epoch: int = -1
    known_offset: int = -1
    """That the broker knows from an earlier Fetch of the session."""

    def answered(self, answer: Any) -> None:
        """Go on as a client does after an answer."""
        if answer.error_code == _ID_NOT_FOUND:
            self.id = 0
        if answer.error_code or not (self.epoch or answer.session_id):
            self.epoch, self.known_offset = 0, -1
        else:
            self.id, self.epoch = answer.session_id, self.epoch + 1


class Reader:
    """`read`: the batches of each partition as they came; `position`: the next offset of each.

    `told_ms`: the longest throttle that it was told. `sessions_lost`: error codes that made it begin a session again.
    """

    def __init__(self, name: str, settings: Settings, partitions: int, reading: Reading) -> None:
        self.reading = reading
        self.name = name
        self.read: list[list[bytes]] = [[] for _ in range(partitions)]
        self.position = [0] * partitions
        self.told_ms = 0
        self.sessions_lost: list[int] = []
        self._sessions = [FetchSession(epoch=0 if reading.has_session else -1) for _ in range(partitions)]
        self._settings = settings
        self._correlation_id = 0

    async def run(self) -> None:
        """Follow all partitions, for ever. Raises ModelViolation for an answer to another request, or a gap."""
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.position)):
                group.create_task(self._follow(partition))
            if self.reading.joins_group:
                group.create_task(self._stay_in_group())

    async def _follow(self, partition: int) -> None:
        while True:
            try:
                leader = await self._leader_of(partition)
                if leader is not None:
                    await self._fetch_from(leader, partition)
            except (OSError, EOFError, TimeoutError):
                pass
            await asyncio.sleep(SOON_S if self.reading.reconnects else AGAIN_S)

    async def _leader_of(self, partition: int) -> Address | None:
        ways = await self._connected(self._settings.bootstrap[0])
        try:
            frame = await self._asked(
                ways, frames.metadata(_METADATA_VERSION, self.name, self._settings.topic)
            )
        finally:
            ways[1].close()
        found = frames.read_metadata(frame, _METADATA_VERSION)
        leader = found.leaders.get(partition)
        return None if leader is None else found.brokers[leader[0]]

    async def _fetch_from(self, leader: Address, partition: int) -> None:
        """Fetch until the leader is another one. Raises OSError, EOFError, TimeoutError."""
        ways = await self._connected(leader)
        try:
            while await self._take(await self._asked(ways, self._fetch(partition), FETCH_IDS), partition):
                pass
        finally:
            ways[1].close()
            session = self._sessions[partition]
            if session.epoch > 0:
                session.epoch, session.known_offset = 0, -1

    # ---- the group -------------------------------------------------------------------------------------

    async def _stay_in_group(self) -> None:
        while True:
            try:
                ways = await self._connected(self._settings.bootstrap[0])
                try:
                    frame = frames.find_coordinator(_GROUP_VERSION, self.name, self.name, key_type=0)
                    found = frames.read_coordinator(await self._asked(ways, frame), _GROUP_VERSION)
                finally:
                    ways[1].close()
                if not found.error_code:
                    await self._be_member((found.host, found.port))
            except (OSError, EOFError, TimeoutError):
                pass
            await asyncio.sleep(AGAIN_S)

    async def _be_member(self, coordinator: Address) -> None:
        """Join, then commit and send a heartbeat every few seconds, until the coordinator says that it is none."""
        ways = await self._connected(coordinator)
        try:
            me = {
                "group_id": self.name,
                "member_id": "",
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": SESSION_MS,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }
            joined = await self._group_answer(ways, _JOIN_GROUP, me)
            me |= {"member_id": joined.member_id, "generation_id": joined.generation_id}
            me |= {"generation_id_or_member_epoch": joined.generation_id, "retention_time_ms": -1}
            error = joined.error_code
            while not error:
                await asyncio.sleep(HEARTBEAT_S)
                offsets = [
                    {"partition_index": index, "committed_offset": offset, "committed_metadata": None}
                    for index, offset in enumerate(self.position)
                ]
                topics = [{"name": self._settings.topic, "partitions": offsets}]
                await self._group_answer(ways, _OFFSET_COMMIT, {**me, "topics": topics})
                error = (await self._group_answer(ways, _HEARTBEAT, me)).error_code
        finally:
            ways[1].close()

    async def _group_answer(self, ways: Ways, api_key: int, body: dict[str, Any]) -> Any:
        frame = request(api_key, _GROUP_VERSION, body, correlation_id=0, client_id=self.name)
        return frames.read(api_key, _GROUP_VERSION, await self._asked(ways, frame))

    # ---- connections and frames ------------------------------------------------------------------------

    async def _connected(self, address: Address) -> Ways:
        async with asyncio.timeout(REQUEST_S):
            ways = await asyncio.open_connection(*address)
        try:
            await self._introduce(ways)
        except BaseException:
            ways[1].close()
            raise
        return ways

    async def _introduce(self, ways: Ways) -> None:
        await self._asked(ways, frames.api_versions(3, self.name, "reader"))
        login = self._settings.login
        if login is not None:
            await self._asked(ways, frames.handshake(self.name, login.mechanism))
            token = f"\0{login.user}\0{login.password}".encode()
            await self._asked(ways, frames.authenticate(2, self.name, token))

    async def _asked(self, ways: Ways, frame: bytes, ids_from: int = 0) -> bytes:
        if ways[1].is_closing():
            raise ConnectionResetError("it was lost while nothing was asked")
        self._correlation_id += 1
        correlation_id = ids_from + self._correlation_id
        ways[1].write(frames.numbered(frame, correlation_id))
        async with asyncio.timeout(REQUEST_S):
            answer = await read_frame(ways[0])
        if int.from_bytes(answer[:4], "big") != correlation_id:
            raise ModelViolation(f"{self.name} was given another request's answer")
        return answer

    def _fetch(self, partition: int) -> bytes:
        session, offset = self._sessions[partition], self.position[partition]
        asked = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": MAX_BYTES,
        }
        is_known = session.epoch > 0 and session.known_offset == offset
        session.known_offset = offset
        body = {
            "replica_id": -1,
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "isolation_level": 0,
            "session_id": session.id,
            "session_epoch": session.epoch,
            "topics": [] if is_known else [{"topic": self._settings.topic, "partitions": [asked]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return request(FETCH, _FETCH_VERSION, body, correlation_id=0, client_id=self.name)

    async def _take(self, frame: bytes, partition: int) -> bool:
        """Take over what an answer holds; return whether the connection is used again."""
        answer = codec.decode_response(FETCH, _FETCH_VERSION, frame, 0, len(frame))
        throttle_ms = answer.throttle_time_ms
        self.told_ms = max(self.told_ms, throttle_ms)
        if self.reading.has_session:
            self._sessions[partition].answered(answer)
            if answer.error_code:
                self.sessions_lost.append(answer.error_code)
        is_over = answer.error_code and not self.reading.has_session
        for topic in answer.responses:
            (found,) = topic.partitions
            is_over = is_over or found.error_code
            self._keep(found.records or b"", partition)
        if self.reading.heeds_throttle:
            await asyncio.sleep(throttle_ms / 1_000)
        return not is_over and not self.reading.reconnects

    def _keep(self, records: bytes, partition: int) -> None:
        for raw in whole_batches(records):
            offset, count = struct.unpack_from(">q", raw)[0], struct.unpack_from(">i", raw, 23)[0] + 1
            if offset != self.position[partition]:
                raise ModelViolation(
                    f"{self.name} was given offset {offset} after {self.position[partition]}"
                )
            self.position[partition] = offset + count
            self.read[partition].append(raw)
