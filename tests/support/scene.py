"""One connection between two transports that only write down: everything between them is the code under test."""

from __future__ import annotations

import asyncio

from pidgate.gateway.cluster.nodes import NodePorts, Nodes
from pidgate.gateway.config.loading import parse
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.broker_channel import BrokerChannel
from pidgate.gateway.proxy.buffers import BufferBudget
from pidgate.gateway.proxy.client_channel import ClientChannel
from pidgate.gateway.proxy.connection import ConnectionContext, Shared
from pidgate.protocol.codec import message_class
from pidgate.quota.admission import Admission
from pidgate.quota.settings import ByteQuotas, Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.frames import framed, produce_request, record_batch
from tests.support.paper_transport import PaperTransport

HEARTBEAT = 12
MiB = 1024 * 1024
message_class(HEARTBEAT, "request")  # loads all schemas: half a second that no example has to pay
LISTENER = parse("cluster: {bootstrap_servers: [k1:9092]}").listeners[0]


class Scene:
    """What connections share, with a clock that the test sets."""

    def __init__(
        self,
        rate: int | None = None,
        budget_bytes: int = 1 << 30,
        frame_bytes: int = 100 * MiB,
        bytes_per_s: ByteQuotas | None = None,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.time_ms = 1_000
        self.counters = Counters()
        self.budget = BufferBudget(budget_bytes)
        quotas = Quotas(
            mode=Mode.ENFORCE, default=UserQuota.per_window(rate), bytes=bytes_per_s or ByteQuotas()
        )
        self.shared = Shared(
            loop=self.loop,
            admission=Admission(quotas, lambda: 1, 0),
            nodes=Nodes([("k1", 9092)]),
            counters=self.counters,
            budget=self.budget,
            frame_limit_bytes=frame_bytes,
            connect_timeout_ms=1_000,
        )
        self.context = ConnectionContext(self.shared, NodePorts(LISTENER), None, requires_login=False)
        self.context.now_ms = lambda: self.time_ms
        self.shared.byte_waits._now_ms = self.context.now_ms

    def turns(self, count: int = 1) -> None:
        """Let the event loop come round, as it does once the callback of a read has returned."""
        for _ in range(count):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and wake the connections that wait for byte accounts."""
        self.time_ms += milliseconds
        waits = self.shared.byte_waits
        for account in list(waits._timers):
            waits._await_turn(account)
        self.turns(2)

    def connect(self, *, early: bytes = b"") -> Pair:
        return Pair(self, early)


class Pair:
    """One connection with both of its sockets."""

    def __init__(self, scene: Scene, early: bytes = b"") -> None:
        self.channel = ClientChannel(scene.context, lambda *_: None)
        self.client = PaperTransport(self.channel)
        self.client.receive(early)
        self.channel.connection.broker.send(b"")  # a broker is dialled only when there is something for it
        self.broker_channel = BrokerChannel(self.channel.connection)
        self.broker = PaperTransport(self.broker_channel)


def heartbeat(correlation_id: int, padding: int = 0) -> bytes:
    """A request whose answer passes unread; `padding` bytes longer than it has to be."""
    body = {"group_id": "g", "member_id": "m" * (padding % 30_000)}
    return raw.request(HEARTBEAT, 0, body, correlation_id=correlation_id)


def fetch(
    correlation_id: int,
    version: int = 11,
    *,
    max_bytes: int = 50_000_000,
    session_id: int = 0,
    epoch: int = -1,
) -> bytes:
    """A framed Fetch of no topics."""
    body = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return raw.request(1, version, body, correlation_id=correlation_id)


def produce_answer(correlation_id: int, throttle_time_ms: int = 0) -> bytes:
    """A framed answer to the Produce v9 that `frame_of` makes."""
    body = {"responses": [], "throttle_time_ms": throttle_time_ms}
    return raw.response(0, 9, body, correlation_id=correlation_id)


def frame_of(total_bytes: int, correlation_id: int = 1) -> bytes:
    """A framed Produce without producer id of exactly so many bytes, prefix included."""
    empty = len(produce_of(0, correlation_id))
    frame = produce_of(total_bytes - empty, correlation_id)
    # The varint of the record's length may have grown.
    frame = produce_of(total_bytes - empty - (len(frame) - total_bytes), correlation_id)
    assert len(frame) == total_bytes
    return frame


def produce_of(padding: int, correlation_id: int, producer_id: int = -1) -> bytes:
    batch = record_batch(producer_id, records=bytes(padding))
    return framed(produce_request(9, [("t", [(0, batch)])], correlation_id=correlation_id))


def answer(correlation_id: int, body: bytes = b"\0\0") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body
