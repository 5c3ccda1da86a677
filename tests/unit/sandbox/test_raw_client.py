"""The raw client against requests and answers that kafka.protocol decodes and encodes."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from pidgate.protocol import messages
from pidgate.sandbox.producers.raw import ProduceAnswer, RawClientError, RawConnection, idempotent_batch

T = TypeVar("T")

PRODUCE, SASL_HANDSHAKE, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 0, 17, 22, 36


def talk(answers: Sequence[Any], script: Callable[[RawConnection], Awaitable[T]]) -> tuple[T, list[Any]]:
    """Run the script against a broker that gives these answers in turn; its result and what it asked."""
    asked: list[Any] = []
    waiting = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while waiting:
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            frame = await reader.readexactly(size)
            asked.append(messages.decode_request(frame, 0, size))
            answer = waiting.pop(0)
            correlation_id = struct.unpack_from(">i", frame, 4)[0]
            writer.write(messages.encode_response(correlation_id, answer))
        writer.close()

    async def run() -> T:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            connection = await RawConnection.open(server.sockets[0].getsockname(), "etl-1")
            try:
                return await script(connection)
            finally:
                await connection.close()

    return asyncio.run(run()), asked


def answer(api_key: int, version: int, **fields: Any) -> Any:
    return messages.message_class(api_key, "response")(version=version, **fields)


def produce_answer(*error_codes: int, throttle_time_ms: int = 0, message: str | None = None) -> Any:
    topic = messages.message_class(PRODUCE, "response").TopicProduceResponse
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


def send(connection: RawConnection) -> Awaitable[ProduceAnswer]:
    return connection.produce("clicks", [0, 1, 2], idempotent_batch(4711, 0, [b"value"]))


def test_a_batch_goes_to_every_partition_asked() -> None:
    told, asked = talk([produce_answer(0, 0, 0)], send)

    assert told == ProduceAnswer(error_code=0, error_message=None, throttle_time_ms=0, appended=3)
    (request,) = asked
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    assert topic.name == "clicks"
    assert [partition.index for partition in topic.partition_data] == [0, 1, 2]
    batch = idempotent_batch(4711, 0, [b"value"])
    assert all(len(partition.records) == len(batch) for partition in topic.partition_data)


def test_a_refusal_is_told_with_its_reason_and_wait() -> None:
    refused = produce_answer(19, 19, 19, throttle_time_ms=9_000, message="4711 is new")

    told, _ = talk([refused], send)

    assert told == ProduceAnswer(19, "4711 is new", 9_000, appended=0)


def test_the_first_error_of_a_mixed_answer_counts() -> None:
    told, _ = talk([produce_answer(0, 6, 19, message="moved")], send)

    assert told == ProduceAnswer(6, "moved", 0, appended=1)


def test_a_producer_id_is_asked_for_again_while_the_broker_fetches_a_block() -> None:
    async def ask(connection: RawConnection) -> int:
        return await connection.init_producer_id()

    busy = answer(INIT_PRODUCER_ID, 1, throttle_time_ms=0, error_code=14, producer_id=-1, producer_epoch=-1)
    given = answer(INIT_PRODUCER_ID, 1, throttle_time_ms=0, error_code=0, producer_id=4711, producer_epoch=0)

    told, asked = talk([busy, given], ask)

    assert told == 4711
    assert [request.transactional_id for request in asked] == [None, None]


def test_logging_in_speaks_plain() -> None:
    async def log_in(connection: RawConnection) -> None:
        await connection.log_in("mallory", "secret")

    _, asked = talk(
        [
            answer(SASL_HANDSHAKE, 1, error_code=0, mechanisms=["PLAIN"]),
            answer(
                SASL_AUTHENTICATE, 1, error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
            ),
        ],
        log_in,
    )

    assert asked[0].mechanism == "PLAIN"
    assert bytes(asked[1].auth_bytes) == b"\0mallory\0secret"


def test_a_refused_login_is_an_error_with_the_brokers_words() -> None:
    async def log_in(connection: RawConnection) -> None:
        with pytest.raises(RawClientError, match="wrong password"):
            await connection.log_in("mallory", "guess")

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
        log_in,
    )


def test_a_connection_closed_before_the_answer_is_an_error() -> None:
    async def ask(connection: RawConnection) -> None:
        with pytest.raises((RawClientError, ConnectionError)):
            await connection.init_producer_id()

    talk([], ask)
