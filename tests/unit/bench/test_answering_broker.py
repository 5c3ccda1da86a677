"""The broker that answers producers at once, and the load of short connections, as real processes on real sockets."""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidgate.load.blocking import BlockingConnection
from pidgate.load.exchanges import hello, init_producer_id, produce
from pidgate.protocol.messages import API_VERSIONS, metadata_request
from pidgate.protocol.record_batch import RecordBatch
from tests.support import raw
from tests.support.serving import serving
from tools.bench.loads.client import TIMESTAMP_MS, Through
from tools.bench.loads.lives import LivesPlan, run_lives
from tools.bench.targets import Broker, answering
from tools.sandbox.ports import free_port

TOPIC_ID = bytes(range(16))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """The answering broker before one that answers ApiVersions, and sends back whatever else comes."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                is_hello = struct.unpack_from(">h", data, 4)[0] == API_VERSIONS
                answer = raw.response(API_VERSIONS, 3, {"error_code": 0}, correlation_id=1)
                connection.sendall(answer if is_hello else data)

    with (
        serving(serve) as address,
        answering(Broker(1, address, address, free_port()), tmp_path, None) as (before, pid),
    ):
        assert pid
        yield before


def test_producers_are_answered_and_all_else_is_relayed(broker: Broker) -> None:
    with BlockingConnection(broker.address, client_id="test") as connection:
        connection.run(hello())
        first, second = (connection.run(init_producer_id()) for _ in range(2))
        assert not first.error_code
        assert second.producer_id == first.producer_id + 1
        batches = [
            (number, RecordBatch([os.urandom(300_000)]).stamped(first.producer_id, 0, 0, TIMESTAMP_MS))
            for number in range(3)
        ]
        answer = connection.run(produce(TOPIC_ID, batches, acks=1))
        assert (answer.error_code, answer.failed, answer.throttle_time_ms) == (0, 0, 0)
    with socket.create_connection(broker.address) as connection:
        request = metadata_request(7, "test")
        connection.sendall(request)
        assert connection.recv(65536) == request


def test_a_life_is_a_connection_with_a_new_id_and_one_batch(broker: Broker) -> None:
    plan = LivesPlan(clients=2, rate_per_s=40, record_bytes=100, warmup_s=0.25, measure_s=0.5)
    measured = run_lives(Through(broker.address, TOPIC_ID), plan)
    assert (measured["connections"], measured["refused"]) == (20, 0)
