"""Fresh ids before something that speaks just enough Kafka, and admits as many as it is told."""

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pidgate.load.plan import Address
from pidgate.load.prebuilt import LoadError
from pidgate.protocol.producer_requests import INIT_PRODUCER_ID_VERSION
from pidgate.protocol.producer_requests import PRODUCE_BY_ID_VERSION as PRODUCE_VERSION
from tests.support.frames import codec
from tests.support.serving import serving
from tools.bench.loads.client import Through
from tools.bench.loads.fresh import FreshPlan, run_fresh

ApiVersionsResponse = codec("metadata", "ApiVersionsResponse")
InitProducerIdResponse = codec("producer", "InitProducerIdResponse")
ProduceResponse = codec("producer", "ProduceResponse")

PRODUCE, API_VERSIONS, INIT_PRODUCER_ID = 0, 18, 22
TOPIC_ID = bytes(range(16))


def produce_answer(error_code: int) -> Any:
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse(
        version=PRODUCE_VERSION,
        index=0,
        error_code=error_code,
        base_offset=-1,
        record_errors=[],
        error_message="told why" if error_code else None,
    )
    responses = [topic(version=PRODUCE_VERSION, topic_id=None, partition_responses=[partition])]
    return ProduceResponse(version=PRODUCE_VERSION, responses=responses, throttle_time_ms=0)


@contextmanager
def broker(error_code: Callable[[int], int]) -> Iterator[Address]:
    """`error_code` of the n-th batch, from 0."""
    batches, ids = itertools.count(), itertools.count(1000)

    def answer_to(api_key: int) -> Any:
        if api_key == API_VERSIONS:
            return ApiVersionsResponse(version=3, error_code=0, api_keys=[])
        if api_key == INIT_PRODUCER_ID:
            return InitProducerIdResponse(
                version=INIT_PRODUCER_ID_VERSION,
                throttle_time_ms=0,
                error_code=0,
                producer_id=next(ids),
                producer_epoch=0,
            )
        assert api_key == PRODUCE
        return produce_answer(error_code(next(batches)))

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as frames, suppress(OSError):
            while size := frames.read(4):
                frame = frames.read(struct.unpack(">i", size)[0])
                api_key, _version, correlation_id = struct.unpack_from(">hhi", frame)
                answer = answer_to(api_key)
                answer.with_header(correlation_id=correlation_id)
                connection.sendall(answer.encode(header=True, framed=True))

    with serving(serve) as address:
        yield address


PLAN = FreshPlan(producers=7, partitions=2, record_bytes=10, acks=1)


def test_ids_that_are_let_in_and_ids_that_are_refused_are_counted() -> None:
    with broker(lambda batch: 0 if batch < 3 else 19) as address:
        measured = run_fresh(Through(address, TOPIC_ID), PLAN)
    assert (measured["requests"], measured["admitted"], measured["refused"]) == (7, 3, 4)


def test_any_other_answer_fails_the_run() -> None:
    with (
        broker(lambda batch: 45 if batch == 5 else 0) as address,
        pytest.raises(LoadError, match=r"error codes \[45\]"),
    ):
        run_fresh(Through(address, TOPIC_ID), PLAN)
