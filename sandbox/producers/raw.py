"""A Kafka client of three requests, for a producer that must be quick and tell everything it hears.

Its requests are those of protocol/producer_requests.py. Real clients hide refusals by retrying; this one returns
each answer. It knows no policy: when to retry is the caller's business.
"""

import asyncio
import contextlib
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Self

from pidgate.protocol import messages, producer_requests
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.frames import Reader
from pidgate.protocol.record_batch import record_batch

Address = tuple[str, int]

NO_ERROR = 0
COORDINATOR_LOAD_IN_PROGRESS = 14
NOT_ENOUGH_REPLICAS = 19

_CORRELATION_ID_BYTES = 4


class RawClientError(Exception):
    """The other side closed, broke the protocol, or refused the login. The connection is of no more use."""


class ProduceAnswer(NamedTuple):
    """What one Produce request was told."""

    error_code: int
    """The first error among its partitions; 0: every partition was appended."""
    error_message: str | None
    throttle_time_ms: int
    appended: int
    """Partitions without an error."""


class RawConnection:
    """One connection with one request at a time. Errors of the transport come as OSError or RawClientError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0

    @classmethod
    async def open(cls, address: Address, client_id: str, *, from_host: str | None = None) -> Self:
        """Connect, from a certain loopback address where the system has it. Raises OSError."""
        local = None if from_host is None else (from_host, 0)
        reader, writer = await asyncio.open_connection(*address, local_addr=local)
        return cls(reader, writer, client_id)

    @property
    def local_address(self) -> str:
        """host:port as the other side sees it."""
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    async def log_in(self, user: str, password: str) -> None:
        """SASL PLAIN. Raises RawClientError when it is refused."""
        answer = await self._ask(
            lambda n: producer_requests.sasl_handshake_request(n, self._client_id, "PLAIN")
        )
        if answer.i16() != NO_ERROR:
            raise RawClientError("the mechanism PLAIN is not enabled")
        token = f"\0{user}\0{password}".encode()
        answer = await self._ask(
            lambda n: producer_requests.sasl_authenticate_request(n, self._client_id, token)
        )
        if answer.i16() != NO_ERROR:
            raise RawClientError(f"{user} cannot log in: {answer.nullable_string()}")

    async def init_producer_id(self) -> int:
        """A new producer id, without a transactional id. Raises RawClientError for an error code but 14."""
        while True:
            answer = await self._ask(lambda n: producer_requests.init_producer_id_request(n, self._client_id))
            told = messages.init_producer_id_answer(
                answer.buf, 0, answer.end, producer_requests.INIT_PRODUCER_ID_VERSION
            )
            error_code = told.error_code
            if error_code == NO_ERROR:
                return told.producer_id
            # A broker that waits for its next block of ids says so (KIP-730).
            if error_code != COORDINATOR_LOAD_IN_PROGRESS:
                raise RawClientError(f"InitProducerId failed with code {error_code}")
            await asyncio.sleep(0.05)

    async def produce(self, topic: str, partitions: Sequence[int], batch: bytes) -> ProduceAnswer:
        """The same record batch to each of the partitions in one request, acks=all."""
        batches = [(partition, batch) for partition in partitions]
        return _produce_answer(
            await self._ask(lambda n: producer_requests.produce_request(n, self._client_id, topic, batches))
        )

    async def close(self) -> None:
        self._writer.close()
        # Closed is closed, even when the other side was quicker.
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, build: Callable[[int], bytes]) -> Reader:
        self._correlation_id += 1
        self._writer.write(build(self._correlation_id))
        try:
            await self._writer.drain()
            size = struct.unpack(">i", await self._reader.readexactly(4))[0]
            frame = await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise RawClientError("the connection was closed before the answer") from error
        answer = Reader(frame, 0, len(frame))
        if answer.i32() != self._correlation_id:
            raise RawClientError("an answer to another request")
        return answer


def idempotent_batch(producer_id: int, base_sequence: int, values: Sequence[bytes]) -> bytes:
    """One record batch (magic 2) of a producer id in epoch 0."""
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    return record_batch(values, producer_id, 0, base_sequence, now_ms)


def _produce_answer(answer: Reader) -> ProduceAnswer:
    error_code, error_message, appended = NO_ERROR, None, 0
    answer.flexible = True
    try:
        answer.skip_tags()
        for _ in range(answer.count(3)):
            answer.skip_string()
            for _ in range(answer.count(30)):
                answer.i32()  # partition
                code = answer.i16()
                answer.skip(24)  # base_offset, log_append_time_ms, log_start_offset
                for _ in range(answer.count(4)):  # record_errors
                    answer.i32()
                    answer.skip_string()
                    answer.skip_tags()
                message = answer.nullable_string()
                answer.skip_tags()
                appended += code == NO_ERROR
                if error_code == NO_ERROR and code != NO_ERROR:
                    error_code, error_message = code, message
            answer.skip_tags()
        throttle_time_ms = answer.i32()
        answer.skip_tags()
        answer.finish()
    except KafkaProtocolError as error:
        raise RawClientError(f"an unreadable Produce answer: {error}") from error
    return ProduceAnswer(error_code, error_message, throttle_time_ms, appended)
