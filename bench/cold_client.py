"""One blocking connection for what the load asks once: topics, topic ids, producer ids.

Nothing measured passes through here.
"""

import socket
import struct
import time
from typing import Any, Final

from bench.codec import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
)
from bench.wire import CLIENT_ID, FetchFrame, LoadError, read_fetch_answer
from pidgate.protocol.producer_requests import sasl_authenticate_request, sasl_handshake_request

Address = tuple[str, int]
Login = tuple[str, str]
"""User and password."""

# A broker answers 14 or 15 for a moment after its start; a new topic has no leader for a moment.
_PATIENCE_S: Final = 20.0
_RETRIABLE: Final = frozenset({3, 5, 14, 15, 16})


def parse_address(text: str) -> Address:
    """`host:port` as an address."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def connect(address: Address) -> socket.socket:
    """A TCP connection without Nagle's delay."""
    connection = socket.create_connection(address, timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_frame(connection: socket.socket) -> bytes:
    """The next frame without its size prefix; LoadError when the peer closes first."""
    size = struct.unpack(">i", _receive(connection, 4))[0]
    return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise LoadError("connection closed by the peer")
        chunks += chunk
    return bytes(chunks)


def ask(connection: socket.socket, request: Any, response_class: Any) -> Any:
    """Send one kafka-python request (its version set) and decode the answer."""
    request.with_header(correlation_id=1, client_id=CLIENT_ID.decode())
    connection.sendall(request.encode(header=True, framed=True))
    return response_class.decode(receive_frame(connection), version=request.API_VERSION, header=True)


def say_hello(connection: socket.socket) -> None:
    """ApiVersions, as every client begins."""
    request = ApiVersionsRequest(version=3, client_software_name="bench", client_software_version="1")
    error_code = ask(connection, request, ApiVersionsResponse).error_code
    if error_code:
        raise LoadError(f"ApiVersions: error code {error_code}")


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """SASL PLAIN."""
    client_id = CLIENT_ID.decode()
    token = f"\0{user}\0{password}".encode()
    for frame in (
        sasl_handshake_request(1, client_id, "PLAIN"),
        sasl_authenticate_request(1, client_id, token),
    ):
        connection.sendall(frame)
        error_code = struct.unpack_from(">h", receive_frame(connection), 4)[0]
        if error_code:
            raise LoadError(f"log in as {user}: error code {error_code}")


def new_producer_id(connection: socket.socket) -> int:
    """A fresh producer id, epoch 0, by InitProducerId."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        request = InitProducerIdRequest(
            version=4, transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = ask(connection, request, InitProducerIdResponse)
        if not answer.error_code:
            return int(answer.producer_id)
        if answer.error_code not in _RETRIABLE or time.monotonic() > deadline:
            raise LoadError(f"InitProducerId: error code {answer.error_code}")
        time.sleep(0.2)


def create_topic(address: Address, name: str, partitions: int, configs: dict[str, str]) -> bytes:
    """Create a topic with one replica and wait for its leaders; the topic id."""
    connection = connect(address)
    topic = CreateTopicsRequest.CreatableTopic
    config = topic.CreatableTopicConfig
    request = CreateTopicsRequest(
        version=5,
        topics=[
            topic(
                version=5,
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[config(version=5, name=key, value=value) for key, value in configs.items()],
            )
        ],
        timeout_ms=10_000,
        validate_only=False,
    )
    with connection:
        answer = ask(connection, request, CreateTopicsResponse)
        error_code = answer.topics[0].error_code
        if error_code:
            raise LoadError(f"CreateTopics {name}: error code {error_code} {answer.topics[0].error_message}")
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            topic_id = _topic_id(connection, name, partitions)
            if topic_id and _is_served(connection, topic_id, partitions):
                return topic_id
            time.sleep(0.1)
    raise LoadError(f"topic {name} has no leaders after {_PATIENCE_S:.0f} s")


def _topic_id(connection: socket.socket, name: str, partitions: int) -> bytes | None:
    request = MetadataRequest(
        version=12,
        topics=[MetadataRequest.MetadataRequestTopic(version=12, name=name)],
        allow_auto_topic_creation=False,
    )
    topic = ask(connection, request, MetadataResponse).topics[0]
    ready = topic.error_code == 0 and sum(p.error_code == 0 for p in topic.partitions) == partitions
    return bytes(topic.topic_id.bytes) if ready else None


def _is_served(connection: socket.socket, topic_id: bytes, partitions: int) -> bool:
    # Metadata names a leader a moment before the leader knows it.
    frame = FetchFrame(topic_id, range(partitions), partition_max_bytes=1)
    connection.sendall(frame.buffer)
    try:
        read_fetch_answer(memoryview(receive_frame(connection)), 0)
    except LoadError:
        return False
    return True
