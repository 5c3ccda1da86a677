"""Direct requests to one broker, never through a gateway: cluster view, a producer id, its producers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pidgate.load.blocking import BlockingConnection
from pidgate.load.exchanges import Exchange, call, init_producer_id, message_of
from pidgate.load.plan import Address
from pidgate.protocol import codec, messages
from pidgate.protocol.errors import KafkaProtocolError
from pidgate.protocol.frames import Reader

_DESCRIBE_PRODUCERS = 61


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The cluster as one broker sees it."""

    brokers: dict[int, Address]
    """Node id to the address that it advertises on this listener."""
    controller_id: int


def broker_view(address: Address) -> BrokerView:
    """Request Metadata without topics. Raises OSError, KafkaProtocolError."""
    with BlockingConnection(address, client_id="sandbox", timeout_s=2.0) as connection:
        answer = connection.run(call(messages.METADATA, messages.METADATA_PROBE_VERSION, {"topics": []}))
    brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return BrokerView(brokers, answer.controller_id)


def init_producer_id_error(address: Address) -> int:
    """Return InitProducerId's error code; 14 briefly after a start. Uses up a producer id.

    Raises OSError, KafkaProtocolError.
    """
    with BlockingConnection(address, client_id="sandbox", timeout_s=2.0) as connection:
        return connection.run(init_producer_id()).error_code


class BrokerSilent(Exception):
    """The broker did not respond, or not to this request."""


class ProducerStates:
    """A connection to a broker that lists its producer ids (DescribeProducers v0, KIP-664).

    Not thread-safe.
    """

    def __init__(self, address: Address, timeout_s: float = 2.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._connection: BlockingConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ids(self, topic: str, partitions: Sequence[int]) -> dict[int, list[int]]:
        """Return the producer ids with state at the leader, by partition. Raises BrokerSilent."""
        try:
            if self._connection is None:
                self._connection = BlockingConnection(
                    self._address, client_id="demo-watch", timeout_s=self._timeout_s
                )
            return self._connection.run(_describe_producers(topic, partitions))
        except (OSError, KafkaProtocolError) as error:
            self.close()
            raise BrokerSilent(str(error) or type(error).__name__) from error


def _describe_producers(topic: str, partitions: Sequence[int]) -> Exchange[dict[int, list[int]]]:
    body = {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}
    message = message_of(codec.message_class(_DESCRIBE_PRODUCERS, "request"), 0, body)
    frame = yield lambda n, client_id: codec.encode_request(n, client_id, message)
    # By hand, because this response may exceed the codec's limit.
    reader = Reader(frame, 0, len(frame), flexible=True)
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
