"""What went over the wires at the gateways, frame by frame: read from what the network has kept, when a run is over."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.headers import RequestHead, peek_request
from tests.simulator.brokers.batches import BatchHead, read_batch
from tests.simulator.brokers.wire import FIRST_PRODUCE_VERSION, read_produce
from tests.simulator.clients import frames
from tests.simulator.clients.reader import FETCH_IDS
from tests.simulator.ledger import Name, Numbers, parsed

if TYPE_CHECKING:
    from tests.simulator.world import World


NOT_ENOUGH_REPLICAS = 19
MALLORYS_LOGIN = b"\0mallory\0"


@dataclass(slots=True)
class Frame:
    """A whole frame, without its size prefix; `at_s`: when its last byte arrived, or was written."""

    at_s: float
    link: str
    process: str
    raw: bytes

    @property
    def client(self) -> str:
        """The process that made the connection."""
        return self.link.split(" -> ")[0]

    @property
    def port(self) -> int:
        """The port at which the connection was made: the link is `java-1 -> gateway-1:9094 #1`."""
        return int(self.link.rpartition(":")[2].split()[0])

    @property
    def head(self) -> RequestHead:
        """Of a request."""
        return peek_request(self.raw, 0, len(self.raw))


Run = tuple[str, float]
"""A gateway, and when it was started."""


def run_of(world: World, frame: Frame) -> Run:
    """Return the run of the gateway that was given the frame, or wrote it."""
    starts = [at_s for at_s, what, whom, _ in world.fleet.history if (what, whom) == ("start", frame.process)]
    return frame.process, max(at_s for at_s in starts if at_s <= frame.at_s)


def arrived_at_gateways(world: World) -> Iterator[Frame]:
    """Yield requests that clients sent and a gateway's process was given."""
    gateways = world.fleet.names
    return _frames(
        (at_s, link, reached, what)
        for at_s, link, reached, what in world.network.trace or ()
        if reached in gateways and link.split(" -> ")[0] in world.applications
    )


def written_to_brokers(world: World) -> Iterator[Frame]:
    """Yield requests that gateways wrote to brokers; not those of a hostile client, from its login on."""
    return (frame for frame, is_hostile in all_written_to_brokers(world) if not is_hostile)


def all_written_to_brokers(world: World) -> Iterator[tuple[Frame, bool]]:
    """Yield requests that gateways wrote to brokers, and whether they are a hostile client's."""
    hostile: set[str] = set()
    for frame in _written(world, lambda link, writer: link.startswith(f"{writer} -> broker-")):
        if MALLORYS_LOGIN in frame.raw:
            hostile.add(frame.link)
        yield frame, frame.link in hostile


def written_to_clients(world: World) -> Iterator[Frame]:
    """Yield answers that gateways wrote to clients."""
    return _written(world, lambda link, _writer: link.split(" -> ")[0] in world.applications)


def fetched(world: World) -> Iterator[Frame]:
    """Yield what gateways answered to Fetches."""
    for frame in _written(world, lambda link, _writer: link.split(" -> ")[0] in world.readers):
        if int.from_bytes(frame.raw[:4], "big") >= FETCH_IDS:
            yield frame


def batches_in(frame: Frame) -> list[tuple[Name, Numbers]]:
    """Return the batches of a Produce; none of another request, or of what a client that breaks the protocol sends."""
    raw = frame.raw
    if raw[:2] != b"\0\0" or int.from_bytes(raw[2:4], "big") < FIRST_PRODUCE_VERSION:
        return []
    try:
        return parsed(raw)[1]
    except KafkaProtocolError:
        return []


@dataclass(slots=True)
class Answered:
    """A Produce that a gateway was given, and the answer that it wrote to it."""

    asked: Frame
    answer: Frame
    codes: list[int]
    throttle_ms: int

    @property
    def is_refusal(self) -> bool:
        """Whether it is the gateway's own: brokers here throttle nobody."""
        return self.throttle_ms > 0 and NOT_ENOUGH_REPLICAS in self.codes


def produce_answers(world: World) -> Iterator[Answered]:
    """Yield answers to Produce requests, in the order in which they were written."""
    asked: dict[tuple[str, str], dict[int, Frame]] = {}
    for frame in arrived_at_gateways(world):
        if batches_in(frame):
            asked.setdefault((frame.link, frame.process), {})[frame.head.correlation_id] = frame
    for answer in written_to_clients(world):
        request = asked.get((answer.link, answer.process), {}).pop(
            int.from_bytes(answer.raw[:4], "big"), None
        )
        if request is not None:
            outcomes, throttle_ms, _ = frames.read_produce(answer.raw, request.head.api_version)
            codes = sorted({outcome.error_code for outcome in outcomes})
            yield Answered(request, answer, codes, throttle_ms)


def ids_in(frame: Frame) -> list[tuple[int, bool]]:
    """Return producer ids of any Produce, whoever wrote it, and whether each is used in a transaction.

    In one only where the request names a transaction, and all its batches are marked.
    """
    raw = frame.raw
    if raw[:2] != b"\0\0" or int.from_bytes(raw[2:4], "big") < FIRST_PRODUCE_VERSION:
        return []
    try:
        request = read_produce(raw, frame.head)
    except KafkaProtocolError:
        return []
    found = [read_batch(records) for _, partitions in request.topics for _, records in partitions]
    heads = [head for head in found if isinstance(head, BatchHead) and head.producer_id >= 0]
    in_transaction = request.transactional_id is not None and all(head.is_transactional for head in heads)
    return [(head.producer_id, in_transaction) for head in heads]


def _written(world: World, is_wanted: Callable[[str, str], bool]) -> Iterator[Frame]:
    gateways = world.fleet.names
    return _frames(
        (at_s, link, writer, what)
        for at_s, link, writer, what in world.network.written or ()
        if writer in gateways and is_wanted(link, writer)
    )


def _frames(pieces: Iterable[tuple[float, str, str, Any]]) -> Iterator[Frame]:
    streams: dict[tuple[str, str], bytearray] = {}
    for at_s, link, process, what in pieces:
        if not isinstance(what, bytes):
            continue
        stream = streams.setdefault((link, process), bytearray())
        stream += what
        while len(stream) >= 4:
            (size,) = struct.unpack_from(">i", stream)
            if size < 0 or len(stream) < 4 + size:
                break
            yield Frame(at_s, link, process, bytes(stream[4 : 4 + size]))
            del stream[: 4 + size]
