"""Exchanges and connections against requests and answers that kafka.protocol decodes and encodes."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from pidgate.load.connection import Connection, ConnectionLost, connect
from pidgate.load.context import take_id
from pidgate.load.exchanges import log_in, produce
from pidgate.load.plan import Login
from pidgate.load.tally import Tally
from pidgate.protocol import codec
from pidgate.protocol.headers import peek_request
from pidgate.protocol.logins import LoginRefused
from pidgate.protocol.producer_requests import ProduceAnswer
from pidgate.protocol.record_batch import record_batch

T = TypeVar("T")

BATCH = record_batch([b"value"], 4711, 0, 0, 1_700_000_000_000)
PRODUCE, SASL_HANDSHAKE, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 0, 17, 22, 36


def talk(answers: Sequence[Any], script: Callable[[Connection], Awaitable[T]]) -> tuple[T, list[Any]]:
    """Run the script against a broker that gives these answers in turn; its result and what it asked."""
    asked: list[Any] = []
    waiting = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while waiting:
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            frame = await reader.readexactly(size)
            asked.append(codec.decode_request(frame, peek_request(frame, 0, size)))
            answer = waiting.pop(0)
            correlation_id = struct.unpack_from(">i", frame, 4)[0]
            writer.write(codec.encode_response(correlation_id, answer))
        writer.close()

    async def run() -> T:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            connection = await connect(server.sockets[0].getsockname(), client_id="etl-1")
            try:
                return await script(connection)
            finally:
                connection.close()

    return asyncio.run(run()), asked


def answer(api_key: int, version: int, **fields: Any) -> Any:
    return codec.message_class(api_key, "response")(version=version, **fields)


def produce_answer(*error_codes: int, throttle_time_ms: int = 0, message: str | None = None) -> Any:
    topic = codec.message_class(PRODUCE, "response").TopicProduceResponse
    partition = topic.PartitionProduceResponse
    partitions = [
        partition(
            index=index,
            error_code=code,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            record_errors=[],
            error_message=message if code else None,
        )
        for index, code in enumerate(error_codes)
    ]
    responses = [topic(name="clicks", partition_responses=partitions)]
    return answer(PRODUCE, 11, responses=responses, throttle_time_ms=throttle_time_ms)


def send(connection: Connection) -> Awaitable[ProduceAnswer]:
    return connection.run(produce("clicks", [(partition, BATCH) for partition in range(3)]))


def test_a_batch_goes_to_every_partition_asked() -> None:
    told, asked = talk([produce_answer(0, 0, 0)], send)

    assert told == ProduceAnswer(error_code=0, error_message=None, throttle_time_ms=0, failed=0)
    (request,) = asked
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    assert topic.name == "clicks"
    assert [partition.index for partition in topic.partition_data] == [0, 1, 2]
    assert all(partition.records == BATCH for partition in topic.partition_data)


def test_a_refusal_is_told_with_its_reason_and_wait() -> None:
    refused = produce_answer(19, 19, 19, throttle_time_ms=9_000, message="4711 is new")

    told, _ = talk([refused], send)

    assert told == ProduceAnswer(19, "4711 is new", 9_000, failed=3)


def test_a_producer_id_is_asked_for_again_while_the_broker_fetches_a_block() -> None:
    async def ask(connection: Connection) -> int:
        return (await take_id(connection, Tally())).producer_id

    busy = answer(INIT_PRODUCER_ID, 1, throttle_time_ms=0, error_code=14, producer_id=-1, producer_epoch=-1)
    given = answer(INIT_PRODUCER_ID, 1, throttle_time_ms=0, error_code=0, producer_id=4711, producer_epoch=0)

    told, asked = talk([busy, given], ask)

    assert told == 4711
    assert [request.transactional_id for request in asked] == [None, None]


def test_logging_in_speaks_plain() -> None:
    async def logging_in(connection: Connection) -> None:
        await connection.run(log_in(Login("mallory", "secret")))

    _, asked = talk(
        [
            answer(SASL_HANDSHAKE, 1, error_code=0, mechanisms=["PLAIN"]),
            answer(
                SASL_AUTHENTICATE, 1, error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
            ),
        ],
        logging_in,
    )

    assert asked[0].mechanism == "PLAIN"
    assert bytes(asked[1].auth_bytes) == b"\0mallory\0secret"


def test_a_refused_login_is_an_error_with_the_brokers_words() -> None:
    async def logging_in(connection: Connection) -> None:
        with pytest.raises(LoginRefused, match=r"mallory cannot log in with PLAIN .*wrong password"):
            await connection.run(log_in(Login("mallory", "guess")))

    talk(
        [
            answer(SASL_HANDSHAKE, 1, error_code=0, mechanisms=["PLAIN"]),
            answer(
                SASL_AUTHENTICATE,
                1,
                error_code=58,
                error_message="wrong password",
                auth_bytes=b"",
                session_lifetime_ms=0,
            ),
        ],
        logging_in,
    )


def test_a_connection_closed_before_the_answer_is_an_error() -> None:
    async def ask(connection: Connection) -> None:
        with pytest.raises(ConnectionLost):
            await take_id(connection, Tally())

    talk([], ask)
