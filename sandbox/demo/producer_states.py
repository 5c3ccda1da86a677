"""How many producer ids a living broker keeps, by its own word: DescribeProducers v0 (KIP-664).

Asked over the broker's own listener, never through a gateway.
"""

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.frames import Reader, encode_string, uvarint

_DESCRIBE_PRODUCERS = 61
_CLIENT_ID = b"demo-watch"
_NO_TAGS = b"\x00"


class BrokerSilent(Exception):
    """The broker did not answer, or not what was asked."""


class ProducerStates:
    """One connection to one broker. Not thread-safe."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 2.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ids(self, topic: str, partitions: Sequence[int]) -> dict[int, list[int]]:
        """Partition to the producer ids whose state its leader keeps. Raises BrokerSilent."""
        try:
            return _producer_ids(self._ask(_request(topic, partitions)))
        except (OSError, KafkaProtocolError) as error:
            self.close()
            raise BrokerSilent(str(error) or type(error).__name__) from error

    def _ask(self, frame: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout_s)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, length: int) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("closed in the middle of an answer")
            parts += part
        return bytes(parts)


def _request(topic: str, partitions: Sequence[int]) -> bytes:
    header = struct.pack(">hhih", _DESCRIBE_PRODUCERS, 0, 1, len(_CLIENT_ID)) + _CLIENT_ID + _NO_TAGS
    indexes = b"".join(struct.pack(">i", partition) for partition in partitions)
    return b"".join(
        (
            header,
            uvarint(2),  # one topic
            encode_string(topic, flexible=True),
            uvarint(len(partitions) + 1),
            indexes,
            _NO_TAGS,
            _NO_TAGS,
        )
    )


def _producer_ids(answer: bytes) -> dict[int, list[int]]:
    reader = Reader(answer, 0, len(answer), flexible=True)
    reader.i32()  # correlation id
    reader.skip_tags()
    reader.i32()  # throttle_time_ms
    found: dict[int, list[int]] = {}
    for _ in range(reader.count(4)):
        reader.skip_string()
        for _ in range(reader.count(9)):
            partition, error_code = reader.i32(), reader.i16()
            reader.skip_string()
            if error_code != 0:
                raise BrokerSilent(f"partition {partition}: error code {error_code}")
            found[partition] = [_one_id(reader) for _ in range(reader.count(37))]
            reader.skip_tags()
        reader.skip_tags()
    return found


def _one_id(reader: Reader) -> int:
    producer_id = reader.i64()
    # epoch (int32), last sequence, last timestamp, coordinator epoch, current transaction's start
    reader.skip(4 + 4 + 8 + 4 + 8)
    reader.skip_tags()
    return producer_id
