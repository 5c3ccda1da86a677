"""A Kafka client of three requests, for a producer that must be quick and tell everything it hears.

Supported versions: SaslHandshake v1, SaslAuthenticate v0, InitProducerId v1, Produce v8 (the first whose
answer carries an error message, and the last without compact types). Real clients hide refusals by retrying;
this one returns each answer. It knows no policy: when to retry is the caller's business.
"""

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from protocol.errors import KafkaProtocolError
from protocol.frames import Reader

Address = tuple[str, int]

NO_ERROR = 0
COORDINATOR_LOAD_IN_PROGRESS = 14
NOT_ENOUGH_REPLICAS = 19

_PRODUCE, _SASL_HANDSHAKE, _INIT_PRODUCER_ID, _SASL_AUTHENTICATE = 0, 17, 22, 36
_CORRELATION_ID_BYTES = 4
_BATCH_BYTES = 16_384
_REQUEST_TIMEOUT_MS = 30_000


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
        answer = await self._ask(_SASL_HANDSHAKE, 1, _string("PLAIN"))
        if answer.i16() != NO_ERROR:
            raise RawClientError("the mechanism PLAIN is not enabled")
        token = f"\0{user}\0{password}".encode()
        answer = await self._ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        if answer.i16() != NO_ERROR:
            raise RawClientError(f"{user} cannot log in: {answer.nullable_string()}")

    async def init_producer_id(self) -> int:
        """A new producer id, without a transactional id. Raises RawClientError for an error code but 14."""
        while True:
            answer = await self._ask(
                _INIT_PRODUCER_ID, 1, _string(None) + struct.pack(">i", _REQUEST_TIMEOUT_MS)
            )
            answer.i32()  # throttle_time_ms
            error_code = answer.i16()
            if error_code == NO_ERROR:
                return answer.i64()
            # A broker that waits for its next block of ids says so (KIP-730).
            if error_code != COORDINATOR_LOAD_IN_PROGRESS:
                raise RawClientError(f"InitProducerId failed with code {error_code}")
            await asyncio.sleep(0.05)

    async def produce(self, topic: str, partitions: Sequence[int], batch: bytes) -> ProduceAnswer:
        """The same record batch to each of the partitions in one request, acks=all."""
        records = struct.pack(">i", len(batch)) + batch
        body = b"".join(
            (
                _string(None),  # transactional_id
                struct.pack(">hii", -1, _REQUEST_TIMEOUT_MS, 1),
                _string(topic),
                struct.pack(">i", len(partitions)),
                *(struct.pack(">i", partition) + records for partition in partitions),
            )
        )
        return _produce_answer(await self._ask(_PRODUCE, 8, body))

    async def close(self) -> None:
        self._writer.close()
        # Closed is closed, even when the other side was quicker.
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, api_key: int, api_version: int, body: bytes) -> Reader:
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, api_version, self._correlation_id) + _string(self._client_id)
        self._writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
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
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
        batch_size=_BATCH_BYTES,
    )
    for offset, value in enumerate(values):
        if builder.append(offset, timestamp=None, key=None, value=value, headers=[]) is None:
            raise ValueError(f"{len(values)} values do not fit a batch of {_BATCH_BYTES} bytes")
    return bytes(builder.build())


def _produce_answer(answer: Reader) -> ProduceAnswer:
    error_code, error_message, appended = NO_ERROR, None, 0
    try:
        for _ in range(answer.count(6)):
            answer.skip_string()
            for _ in range(answer.count(30)):
                answer.i32()  # partition
                code = answer.i16()
                answer.skip(24)  # base_offset, log_append_time_ms, log_start_offset
                for _ in range(answer.count(6)):  # record_errors
                    answer.i32()
                    answer.skip_string()
                message = answer.nullable_string()
                appended += code == NO_ERROR
                if error_code == NO_ERROR and code != NO_ERROR:
                    error_code, error_message = code, message
        throttle_time_ms = answer.i32()
        answer.finish()
    except KafkaProtocolError as error:
        raise RawClientError(f"an unreadable Produce answer: {error}") from error
    return ProduceAnswer(error_code, error_message, throttle_time_ms, appended)


def _string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw
