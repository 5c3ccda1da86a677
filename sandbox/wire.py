"""The few bytes of Kafka protocol that tell whether a broker is ready.

Kafka's log says so, too, but differently in each version. Three requests are written by hand, in their
oldest versions that Kafka 3.9 and 4.x both take: Metadata v1, InitProducerId v0 (KIP-98), CreateTopics
is left to the clients. This module must stay tiny: the project's codec lives in `protocol`.
"""

import socket
import struct
from dataclasses import dataclass

_METADATA = 3
_INIT_PRODUCER_ID = 22


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What one broker says of its cluster."""

    brokers: dict[int, tuple[str, int]]
    """Node id to the address it advertises on the asked listener."""
    controller_id: int


def _request(api_key: int, api_version: int, body: bytes) -> bytes:
    client_id = b"sandbox"
    header = struct.pack(">hhih", api_key, api_version, 1, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def _exchange(address: tuple[str, int], request: bytes, timeout_s: float) -> bytes:
    """One request on a connection of its own; the response after its header. Raises OSError."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        connection.sendall(request)
        size = struct.unpack(">i", _read(connection, 4))[0]
        return _read(connection, size)[4:]


def _read(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        parts += part
    return bytes(parts)


def broker_view(address: tuple[str, int], timeout_s: float = 2.0) -> BrokerView:
    """Metadata v1 without topics. Raises OSError while nobody answers."""
    body = _exchange(address, _request(_METADATA, 1, struct.pack(">i", 0)), timeout_s)
    count, at = struct.unpack_from(">i", body)[0], 4
    brokers = {}
    for _ in range(count):
        node_id, length = struct.unpack_from(">ih", body, at)
        at += 6
        host = body[at : at + length].decode()
        at += length
        port, rack_length = struct.unpack_from(">ih", body, at)
        at += 6 + max(rack_length, 0)
        brokers[node_id] = (host, port)
    return BrokerView(brokers=brokers, controller_id=struct.unpack_from(">i", body, at)[0])


def init_producer_id_error(address: tuple[str, int], timeout_s: float = 2.0) -> int:
    """The error code of an InitProducerId v0; 14 for a moment after a start. Spends a producer id."""
    body = _exchange(address, _request(_INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 60_000)), timeout_s)
    return int(struct.unpack_from(">h", body, 4)[0])
