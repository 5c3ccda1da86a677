"""A consumer that follows every partition of a topic from its beginning on: read_uncommitted, without a group.

It asks as it can, one Fetch after another over a connection for each partition; whatever goes wrong, it asks for the
leader again and goes on where it was.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from pidgate.load.plan import Address
from pidgate.protocol import codec
from tests.simulator.clients import frames
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.clients.hostile import read_frame
from tests.simulator.clients.settings import Settings
from tests.support.broker_logs import whole_batches
from tests.support.raw import request

FETCH: Final = 1
_FETCH_VERSION: Final = 12
_METADATA_VERSION: Final = 12
REQUEST_S: Final = 30.0
AGAIN_S: Final = 0.2
MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 32 * 1024
"""A longer answer the cold codec does not read."""
FETCH_IDS: Final = 1_000_000
"""Correlation ids of Fetches begin here: so that whoever looks at answers knows them."""


class Reader:
    """`read`: the batches of each partition as they came; `position`: the next offset of each.

    `stays`: fetches again on its connection; otherwise each Fetch has one of its own.
    """

    def __init__(self, name: str, settings: Settings, partitions: int, *, stays: bool = True) -> None:
        self._stays = stays
        self.name = name
        self.read: list[list[bytes]] = [[] for _ in range(partitions)]
        self.position = [0] * partitions
        self._settings = settings
        self._correlation_id = 0

    async def run(self) -> None:
        """Follow all partitions, for ever. Raises ModelViolation for an answer to another request, or a gap."""
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.position)):
                group.create_task(self._follow(partition))

    async def _follow(self, partition: int) -> None:
        while True:
            try:
                leader = await self._leader_of(partition)
                if leader is not None:
                    await self._fetch_from(leader, partition)
            except (OSError, EOFError, TimeoutError):
                pass
            await asyncio.sleep(AGAIN_S)

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
            while self._take(await self._asked(ways, self._fetch(partition), FETCH_IDS), partition):
                pass
        finally:
            ways[1].close()

    async def _connected(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(REQUEST_S):
            ways = await asyncio.open_connection(*address)
        try:
            await self._introduce(ways)
        except BaseException:
            ways[1].close()
            raise
        return ways

    async def _introduce(self, ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        await self._asked(ways, frames.api_versions(3, self.name, "reader"))
        login = self._settings.login
        if login is not None:
            await self._asked(ways, frames.handshake(self.name, login.mechanism))
            token = f"\0{login.user}\0{login.password}".encode()
            await self._asked(ways, frames.authenticate(2, self.name, token))

    async def _asked(
        self, ways: tuple[asyncio.StreamReader, asyncio.StreamWriter], frame: bytes, ids_from: int = 0
    ) -> bytes:
        self._correlation_id += 1
        correlation_id = ids_from + self._correlation_id
        ways[1].write(frames.numbered(frame, correlation_id))
        async with asyncio.timeout(REQUEST_S):
            answer = await read_frame(ways[0])
        if int.from_bytes(answer[:4], "big") != correlation_id:
            raise ModelViolation(f"{self.name} was given another request's answer")
        return answer

    def _fetch(self, partition: int) -> bytes:
        asked = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": self.position[partition],
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": MAX_BYTES,
        }
        body = {
            "replica_id": -1,
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self._settings.topic, "partitions": [asked]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return request(FETCH, _FETCH_VERSION, body, correlation_id=0, client_id=self.name)

    def _take(self, frame: bytes, partition: int) -> bool:
        """Take over what an answer holds; return whether the connection is used again."""
        answer = codec.decode_response(FETCH, _FETCH_VERSION, frame, 0, len(frame))
        if not answer.responses and answer.throttle_time_ms and not answer.error_code:
            return self._stays
        (found,) = answer.responses[0].partitions
        if answer.error_code or found.error_code:
            return False
        for raw in whole_batches(found.records or b""):
            offset, count = struct.unpack_from(">q", raw)[0], struct.unpack_from(">i", raw, 23)[0] + 1
            if offset != self.position[partition]:
                raise ModelViolation(
                    f"{self.name} was given offset {offset} after {self.position[partition]}"
                )
            self.position[partition] = offset + count
            self.read[partition].append(raw)
        return self._stays
