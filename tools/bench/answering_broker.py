"""A broker that answers producers without doing anything: `python -m tools.bench.answering_broker LISTEN UPSTREAM`.

It answers ApiVersions as the broker at UPSTREAM does, InitProducerId with the next number, and Produce by topic id
with success. The first other request on a connection, and all that follow, are relayed to UPSTREAM, so gateways run on
a real cluster and their events are real records. A real broker would use most of the processors that the proxies share
when they are measured at the same moment.
"""

import asyncio
import itertools
import socket
import struct
import sys
from typing import ClassVar, Final

import uvloop

from pidgate.protocol.frames import read_uvarint, skip_tags, uvarint
from pidgate.protocol.messages import API_VERSIONS, INIT_PRODUCER_ID
from pidgate.protocol.produce import PRODUCE
from pidgate.protocol.producer_requests import INIT_PRODUCER_ID_VERSION, PRODUCE_BY_ID_VERSION
from tools.bench.bare_proxy import BytesPipe, serve

_HEAD: Final = struct.Struct(">ihhih")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
_NEW_ID: Final = struct.Struct(">ihqh")
_FIRST_ID: Final = 1_000_000
_APPENDED: Final = struct.Struct(">ihqqqBBB")
"""Partition, error code, base offset, time of appending, start of the log, no record errors, no message, no tags."""


class Answering(BytesPipe):
    """A client's side until it is relayed, or either side of a relayed connection."""

    api_versions: ClassVar[dict[int, bytes]] = {}
    """The broker's answers behind the correlation id, by version."""
    new_ids: ClassVar = itertools.count(_FIRST_ID)

    def __init__(self, upstream: tuple[str, int] | None = None, peer: "Answering | None" = None) -> None:
        super().__init__(None, peer)
        self._behind = upstream
        self._arrived = bytearray()

    def data_received(self, data: bytes) -> None:
        if self._behind is None:
            super().data_received(data)
            return
        arrived, answers = self._arrived, []
        arrived += data
        while len(arrived) >= _HEAD.size and len(arrived) >= (size := 4 + _HEAD.unpack_from(arrived)[0]):
            answer = self._answer(arrived, size, self._behind)
            if answer is None:
                behind, self._behind = self._behind, None
                self.connecting = asyncio.get_running_loop().create_task(self.connect(*behind))
                super().data_received(bytes(arrived))
                break
            answers.append(answer)
            del arrived[:size]
        self.transport.writelines(answers)

    def _answer(self, frame: bytearray, size: int, behind: tuple[str, int]) -> bytes | None:
        """Return the answer to the request frame[:size]; None: the broker has to answer."""
        _, api_key, version, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
        if (api_key, version) == (PRODUCE, PRODUCE_BY_ID_VERSION):
            body = _appended(frame, _HEAD.size + max(0, client_id_bytes), size)
        elif (api_key, version) == (INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION):
            body = _NEW_ID.pack(0, 0, next(Answering.new_ids), 0)
        elif api_key == API_VERSIONS:
            body = Answering.api_versions.get(version) or _asked(frame[:size], behind)
            Answering.api_versions[version] = body
        else:
            return None
        return _SIZE_AND_CORRELATION.pack(4 + len(body), correlation_id) + body


def _asked(frame: bytearray, behind: tuple[str, int]) -> bytes:
    """Return the broker's answer to this request, behind its correlation id."""
    with socket.create_connection(behind) as connection, connection.makefile("rb") as frames:
        connection.sendall(frame)
        size, _ = _SIZE_AND_CORRELATION.unpack(frames.read(_SIZE_AND_CORRELATION.size))
        return frames.read(size - 4)


def _appended(frame: bytearray, at: int, end: int) -> bytes:
    """Return the answer to a Produce whose header's tags are at `at`: all partitions were written to."""
    transactional_id_bytes, at = read_uvarint(frame, skip_tags(frame, at, end))
    topics, at = read_uvarint(frame, at + max(0, transactional_id_bytes - 1) + 6)
    parts: list[bytes | bytearray] = [b"\x00", uvarint(topics)]
    for _ in range(topics - 1):
        topic_id, (partitions, at) = frame[at : at + 16], read_uvarint(frame, at + 16)
        parts += topic_id, uvarint(partitions)
        for _ in range(partitions - 1):
            (partition,) = struct.unpack_from(">i", frame, at)
            records_bytes, at = read_uvarint(frame, at + 4)
            at = skip_tags(frame, at + max(0, records_bytes - 1), end)
            parts.append(_APPENDED.pack(partition, 0, 0, -1, 0, 1, 0, 0))
        at = skip_tags(frame, at, end)
        parts.append(b"\x00")
    parts.append(bytes(5))  # no throttle time, no tags
    return b"".join(parts)


if __name__ == "__main__":
    uvloop.run(serve(Answering, *sys.argv[1:]))
