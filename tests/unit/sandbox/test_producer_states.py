"""DescribeProducers against kafka.protocol's own encoding, served over a real socket."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pidgate.protocol import codec
from pidgate.protocol.headers import peek_request
from tools.sandbox.wire import ProducerStates

DESCRIBE_PRODUCERS = 61


@contextmanager
def broker(answer: Callable[[bytes], bytes]) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """Answers each frame of one connection; yields its address and the frames it was sent."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as frames:
                while size := frames.read(4):
                    asked.append(frames.read(struct.unpack(">i", size)[0]))
                    connection.sendall(answer(asked[-1]))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname(), asked
        finally:
            thread.join(10)


def described(request: bytes, *, error_code: int = 0) -> bytes:
    response = codec.message_class(DESCRIBE_PRODUCERS, "response")
    topic = response.TopicResponse
    partition = topic.PartitionResponse
    state = partition.ProducerState

    def producer(producer_id: int) -> object:
        return state(
            producer_id=producer_id,
            producer_epoch=0,
            last_sequence=4,
            last_timestamp=1_700_000_000_000,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        )

    partitions = [
        partition(
            partition_index=index, error_code=error_code, error_message=None, active_producers=producers
        )
        for index, producers in ((0, [producer(11), producer(4711)]), (1, []))
    ]
    message = response(version=0, throttle_time_ms=0, topics=[topic(name="clicks", partitions=partitions)])
    return codec.encode_response(struct.unpack_from(">i", request, 4)[0], message)


def test_the_ids_of_each_partition() -> None:
    with broker(described) as (address, _), ProducerStates(address) as states:
        assert states.ids("clicks", [0, 1]) == {0: [11, 4711], 1: []}


def test_the_request_asks_for_the_topics_partitions() -> None:
    with broker(described) as (address, asked), ProducerStates(address) as states:
        states.ids("clicks", [0, 1])
        states.ids("clicks", [7])

    requests = [codec.decode_request(frame, peek_request(frame, 0, len(frame))) for frame in asked]
    assert [[(it.name, it.partition_indexes) for it in request.topics] for request in requests] == [
        [("clicks", [0, 1])],
        [("clicks", [7])],
    ]
