"""Lending: while all that a connection does needs no decision, a lane carries it (gateway/lane).

A connection is lent when several requests in a row would have passed by what a lane repeats: nothing is held or muted,
nothing waits in either direction, the producer id is known. The lane gives it back with the first byte that it may not
pass, or the gateway takes it back: the gates of both sockets do, before anything is written, paused or closed. Either
way the connection goes on as if this process had carried it: what was read waits for its turn, requests in flight are
in flight, and a frame of which a part has passed goes on where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidgate.gateway.lane.answers import ANSWER_PLAIN_SUCCESS
from pidgate.gateway.lane.lanes import Counted, Left, LentTo
from pidgate.gateway.proxy.apis.api import InFlightRequest
from pidgate.gateway.proxy.apis.produce import PRODUCE_API
from pidgate.gateway.proxy.apis.table import APIS
from pidgate.gateway.proxy.reading import Carrier
from pidgate.gateway.recording.usage import Carried
from pidgate.protocol.produce import FIRST_TOPIC_ID, PRODUCE
from pidgate.quota.byte_quota import ByteBucket
from pidgate.quota.grants import MOST_GRANTED_PARTITIONS, Grant

if TYPE_CHECKING:
    from pidgate.gateway.lane import _lane
    from pidgate.gateway.proxy.client_connection import ClientConnection
    from pidgate.gateway.proxy.reading import Reader

MOST_LEND_AFTER: Final = 1_024
"""After stays that were too short to be worth it, twice as many each time."""
MOST_LENT_IN_FLIGHT: Final = 48
MOST_TOPICS: Final = 64
NO_TOPICS: Final[dict[bytes, None]] = {}
"""Before the first grant. Never written to."""
ANY_BYTES: Final = (1 << 64) - 1
BROKEN: Final = 3
"""Next in core.h."""


class Lending:
    """The lending of one connection."""

    __slots__ = (
        "_client",
        "_connection",
        "_grant",
        "_lanes",
        "_leased_bytes",
        "_leased_of",
        "_lent",
        "_topics",
        "_version",
        "carried",
    )

    def __init__(self, client: Reader, connection: ClientConnection) -> None:
        self._client = client
        self._connection = connection
        self._lanes = connection.context.shared.lanes
        self._lent: LentTo | None = None
        self._grant: Grant | None = None
        self._leased_of: ByteBucket | None = None
        self._leased_bytes = 0
        self._topics = NO_TOPICS
        """Topics written lately, as in ProducerBatch."""
        self._version = -1
        """Of the Produce requests that wrote them."""
        self.carried = 0
        """Requests during the present stay."""

    # ---- to the lane -----------------------------------------------------------------------------------

    def lend(self, now_ms: int) -> None:
        """Lend the connection if nothing waits in it."""
        client, connection, broker = self._client, self._connection, self._connection.broker.channel
        context = connection.session.context
        context.streak = 0
        has_tls = client.socket.has_tls
        if (
            broker is None
            or (broker.socket.has_tls and not has_tls)
            or not connection.is_plain(now_ms)
            or not client.is_between_frames
            or not broker.is_between_frames
        ):
            return
        in_flight = self._in_flight()
        if in_flight is None:
            return
        grants = context.admission.grants
        produce = self._produce(now_ms)
        grant = self._grant
        of_id = grants.everything if grant is None else grant.cell
        self._lent = lent = self._lanes.lend(
            self,
            -1 if has_tls else client.socket.lend(),
            -1 if has_tls else broker.socket.lend(),
            produce,
            (grants.everything, of_id),
            in_flight,
            fetches=context.sensors(now_ms)[1] is None if context.byte_quota.is_on else True,
        )
        self.carried = 0
        if lent is None:
            self._end()
            client.socket.take_back(b"")
            broker.socket.take_back(b"")
            return
        client.socket.gate.take_back = broker.socket.gate.take_back = self.take_back
        if has_tls:
            client.carrier = Carrier(lent, broker.socket, self.left, of_client=True)
            broker.carrier = Carrier(lent, client.socket, self.left, of_client=False)
        context.in_flight.lend()

    def _in_flight(self) -> list[_lane.InFlight] | None:
        """Return the requests in flight as a lane needs them. None: it cannot match their answers."""
        context = self._connection.session.context
        found: list[_lane.InFlight] = []
        for one in context.in_flight.requests():
            if not isinstance(one, InFlightRequest):
                return None
            passing = self._lanes.passing.get(one.api_key << 16 | one.api_version, 0)
            if one.api is PRODUCE_API and one.note == context.repeated.producer_id:
                passing = ANSWER_PLAIN_SUCCESS
            elif not one.api.is_repeatable:
                return None
            if not passing:
                return None
            found.append((one.correlation_id, one.api_key, one.api_version, passing))
        return found if len(found) <= MOST_LENT_IN_FLIGHT else None

    def _produce(self, now_ms: int) -> _lane.Produce | None:
        """Return what the lane may repeat of Produce. None: nothing, as the connection only reads, for example."""
        context = self._connection.session.context
        repeated = context.repeated
        beginning = repeated.beginning()
        if beginning is None:
            return None
        if repeated.version != self._version or len(self._topics) + len(repeated.topics) > MOST_TOPICS:
            self._topics = {}
            self._version = repeated.version
        self._topics.update(dict.fromkeys(repeated.topics[:MOST_TOPICS]))
        leased_bytes = self._lease(now_ms)
        if not leased_bytes:
            return None
        self._grant = grant = context.admission.grant(
            context.client,
            repeated.producer_id,
            repeated.epoch,
            self._topics,
            bool(repeated.transactional),
            now_ms,
        )
        if grant is None:
            return None
        head, same, written_id = beginning
        bits = MOST_GRANTED_PARTITIONS // 8
        topics = [
            (
                topic[1:] if repeated.version >= FIRST_TOPIC_ID else topic,
                None if allowed is None else allowed.to_bytes(bits, "little"),
            )
            for topic, allowed in grant.partitions.items()
        ]
        return (
            head,
            same,
            written_id,
            repeated.version,
            repeated.acks,
            bool(repeated.transactional),
            grant.until_ms,
            self._connection.context.shared.lane_frame_bytes,
            leased_bytes,
            topics,
        )

    def _lease(self, now_ms: int) -> int:
        """Return how many bytes of Produce requests may pass before their account has to be asked; 0: none."""
        context = self._connection.session.context
        sensors = context.sensors(now_ms)[0] if context.byte_quota.is_on else None
        if sensors is None:
            return ANY_BYTES
        self._leased_of = sensors.bucket(now_ms)
        self._leased_bytes = self._leased_of.lease(now_ms)
        return self._leased_bytes

    # ---- and back --------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Take the connection back now; called before any operation on its sockets."""
        if self._lent is not None:
            left = self._lent.take_back()
            if left is not None:
                self._go_on(left)

    def left(self, left: Left) -> None:
        """Go on with a connection that the lane gives back."""
        try:
            self._go_on(left)
        except Exception:  # noqa: BLE001 - logged there
            self._connection.failed("lane")

    def _go_on(self, left: Left) -> None:
        client, connection, broker = self._client, self._connection, self._connection.broker.channel
        assert broker is not None, "it was lent"
        context = connection.session.context
        self._end()
        context.in_flight.take_back(
            [
                InFlightRequest(
                    PRODUCE_API if api_key == PRODUCE else APIS[api_key << 16 | version],
                    api_key,
                    version,
                    correlation_id,
                    context.repeated.producer_id if api_key == PRODUCE else None,
                )
                for correlation_id, api_key, version, _ in left.in_flight
            ]
        )
        client.socket.take_back(left.to_client)
        broker.socket.take_back(left.to_broker)
        self.counted(Counted._make(left.counted))
        connection.reservation.lent_since_ms = 0
        if left.under_way is not None:
            client.resume(left.request_left, left.under_way)
        if left.why == BROKEN:
            connection.close_now("upstream", "an answer of the broker could not be read: a fetch response")
            return
        if left.answer_left:
            broker.resume(left.answer_left, left.walk)
        if left.broker_rest:
            broker.defer(left.broker_rest)
        if left.client_rest:
            client.defer(left.client_rest)
        lanes = self._lanes
        is_worth_it = self.carried >= lanes.worth_requests
        context.lend_after = lanes.lend_after if is_worth_it else min(2 * context.lend_after, MOST_LEND_AFTER)

    def _end(self) -> None:
        self._lent = None
        for reader in (self._client, self._connection.broker.channel):
            if reader is not None:
                reader.socket.gate.take_back = None
                reader.carrier = None
        if self._grant is not None:
            self._connection.session.context.admission.grants.give_back(self._grant)
            self._grant = None
        if self._leased_of is not None:
            self._leased_of.end_lease(self._leased_bytes)
            self._leased_of = None

    # ---- counts ----------------------------------------------------------------------------------------

    def counted(self, counted: Counted) -> None:
        """Count what passed since the last time."""
        connection = self._connection
        counters, recorder = connection.context.counters, connection.recorder
        requests = counted.produce_requests + counted.other_requests
        self.carried += requests
        connection.reservation.lent_since_ms = counted.in_frame_since_ms
        if counted.request_bytes or counted.answer_bytes:
            connection.age.was_heard = True
            counters.bytes_from_clients += counted.request_bytes
            counters.bytes_to_brokers += counted.request_bytes
            counters.bytes_from_brokers += counted.answer_bytes
            counters.bytes_to_clients += counted.answer_bytes
            account = connection.session.context.account
            account.bytes_in += counted.request_bytes
            account.bytes_out += counted.answer_bytes
        self._record(counted.produce_bytes)
        if recorder is None:
            return
        recorder.bytes_in += counted.request_bytes
        recorder.bytes_out += counted.answer_bytes
        recorder.requests += requests
        if counted.produce_requests:
            repeated = connection.session.context.repeated
            prefix = b"\x00" if repeated.version >= FIRST_TOPIC_ID else b""
            written = {prefix + topic: int.from_bytes(bits, "little") for topic, bits in counted.written}
            totals = counted.produce_requests, counted.produce_bytes, counted.batches, counted.records
            recorder.carried(repeated.producer_id, repeated.epoch, Carried(*totals, counted.last_ms, written))

    def _record(self, produce_bytes: int) -> None:
        """Record what passed in its byte account, and wait if that is above the rate."""
        connection, now_ms = self._connection, self._connection.context.now_ms()
        context = connection.session.context
        sensors = context.sensors(now_ms)[0] if produce_bytes and context.byte_quota.is_on else None
        if sensors is not None and context.record_bytes(sensors, produce_bytes, now_ms):
            self.take_back()
            connection.act(context.take_actions())
