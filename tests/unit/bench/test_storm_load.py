"""The storm: what it reads of answers, when it comes back, and what is in a topic afterwards."""

import asyncio
import os
import signal
import struct
from contextlib import suppress
from uuid import UUID

import pytest

from pidgate.load.plan import Login
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION, ProduceAnswer
from pidgate.protocol.producer_requests import produce_answer as read_answer
from tests.support.frames import codec
from tools.bench.loads.client import Through, record_batch
from tools.bench.loads.played import StormPlan, storm
from tools.sandbox.demo.segments import producer_ids

NOT_ENOUGH_REPLICAS = ErrorCode.NOT_ENOUGH_REPLICAS
ProduceResponse = codec("producer", "ProduceResponse")

TOPIC_ID = bytes(range(16))


def produce_answer(
    error_code: int, message: str | None, throttle_time_ms: int, correlation_id: int = 0
) -> bytes:
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse(
        version=13,
        index=7,
        error_code=error_code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=message,
    )
    answer = ProduceResponse(
        version=13,
        responses=[topic(version=13, topic_id=UUID(bytes=TOPIC_ID), partition_responses=[partition])],
        throttle_time_ms=throttle_time_ms,
    )
    answer.with_header(correlation_id=correlation_id)
    return bytes(answer.encode(header=True, framed=False))


def test_error_code_and_throttle_of_a_refusal_are_read() -> None:
    refused = produce_answer(NOT_ENOUGH_REPLICAS, "quota of bob exceeded", 480)
    assert read_answer(refused, PRODUCE_BY_ID_VERSION) == (19, "quota of bob exceeded", 480, 1)
    assert read_answer(produce_answer(0, None, 0), PRODUCE_BY_ID_VERSION) == ProduceAnswer(0, None, 0)


def test_producer_ids_are_those_of_whole_batches() -> None:
    batches = [record_batch(producer_id, 1, 50) for producer_id in (5, 1 << 50, 5, 9)]
    whole = b"".join(batches)
    assert set(producer_ids(whole)) == {5, 1 << 50, 9}
    assert set(producer_ids(whole[:-1])) == {5, 1 << 50}


class Refusing:
    """Logs in who asks; lets in the first id, refuses all others. Ends at an answer after the sixth connection."""

    def __init__(self, first_asked: list[int]) -> None:
        self.first_asked = first_asked
        self.asked: list[list[int]] = []
        self.has_ended = False
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        asked: list[int] = []
        self.asked.append(asked)
        is_first = len(self.asked) == 1
        try:
            while True:
                frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                asked.append(api_key)
                if api_key != 0:
                    # An empty answer: zeros as far as SaslAuthenticate's session lifetime.
                    answer = struct.pack(">i16x", correlation_id)
                else:
                    answer = produce_answer(0 if is_first else NOT_ENOUGH_REPLICAS, None, 20, correlation_id)
                writer.write(struct.pack(">i", len(answer)) + answer)
                if len(self.asked) >= 6 and not self.has_ended:
                    self.has_ended = True
                    os.kill(os.getpid(), signal.SIGTERM)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.parametrize(
    ("login", "first_asked"), [(Login("bob", "secret"), [18, 17, 36, 0]), (None, [18, 0])]
)
def test_a_refused_id_comes_back_once_on_its_connection_and_then_gives_up(
    login: Login | None, first_asked: list[int]
) -> None:
    async def scenario() -> None:
        refusing = Refusing(first_asked)
        server = await asyncio.start_server(refusing.serve, "127.0.0.1", 0)
        async with server:
            plan = StormPlan(connections_per_s=200, tries=2, partitions=4, record_bytes=10, first=3)
            told = await storm(Through(server.sockets[0].getsockname(), TOPIC_ID, login), plan)
            # A server that closes does not wait for the connections it serves.
            await asyncio.gather(*refusing.serving)
        assert (told["failed"], told["why"]) == (0, "")
        assert told["opened"] == len(refusing.asked) >= 6
        assert told["admitted"] == [(1 << 50) + 3]
        assert told["refusals"] == 2 * (told["opened"] - 1)
        assert refusing.asked[0] == first_asked
        assert refusing.asked[1:] == [[*first_asked, 0]] * (told["opened"] - 1)

    asyncio.run(scenario())
