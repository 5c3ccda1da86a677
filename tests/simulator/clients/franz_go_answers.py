"""What franz-go makes of the answers to Produce (`sink.handleReqResp` and what it calls)."""

from __future__ import annotations

from pidgate.load.plan import Address
from tests.simulator.clients import errors, frames
from tests.simulator.clients.batches import Batch
from tests.simulator.clients.franz_go_buffers import RecBuf
from tests.simulator.clients.franz_go_id import FranzGoId
from tests.simulator.clients.node import Node
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.turns import NEVER

_FIRST_IN_FLIGHT, _MOST_IN_FLIGHT = 1, 4
_MOST_UNKNOWN = 4
_LOST_CODES = (errors.OUT_OF_ORDER, errors.UNKNOWN_PRODUCER_ID, errors.INVALID_MAPPING, errors.STALE_EPOCH)
_UNKNOWN = (errors.UNKNOWN_TOPIC, 100)


class Sink:
    """What goes to one node."""

    __slots__ = ("backoff_until_s", "failures", "in_flight", "is_adding", "node", "slots", "start")

    def __init__(self, node: Node) -> None:
        self.node = node
        """For Produce alone."""
        self.slots = _FIRST_IN_FLIGHT
        self.in_flight = 0
        self.start = 0
        self.failures = 0
        self.backoff_until_s = -NEVER
        self.is_adding = False
        """Partitions are being added to the transaction: nothing goes meanwhile."""


class Answers(ModelProducer):
    """Ends of requests: delivery, another round from a partition's first batch, or another epoch."""

    id: FranzGoId
    buffers: dict[int, RecBuf]

    def cut_off(self, buffer: RecBuf, batch: Batch) -> None:
        """`handleReqClientErr` and `handleRetryBatches`: no answer."""
        if buffer.is_first(batch):
            batch.attempts += 1
            buffer.rewind()

    def back_off(self, sink: Sink) -> None:
        """`maybeTriggerBackoff`, and the look at the leaders that comes with it."""
        now_s = self.now_s
        if sink.backoff_until_s <= now_s:
            sink.failures += 1
            sink.backoff_until_s = now_s + self.retry_s(sink.failures)
            self.request_metadata()
        self.wake()

    def retry_s(self, failures: int) -> float:
        """`retryBackoff`."""
        return self.backoff_s(self.t.retry_backoff_s, self.t.retry_backoff_max_s, failures - 1)

    def answered(
        self,
        sink: Sink,
        by_partition: dict[int, tuple[RecBuf, Batch]],
        held: tuple[int, int],
        version: int,
        answer: bytes,
    ) -> None:
        """`handleReqResp`."""
        outcomes, endpoints = self.read_produce(sink.node, answer, version)
        sink.slots, sink.failures = _MOST_IN_FLIGHT, 0
        for outcome in outcomes:
            buffer, batch = by_partition[outcome.partition]
            if buffer.is_first(batch):
                batch.attempts += 1
                self._first_answered(sink, buffer, batch, held, version, outcome, endpoints)

    def _first_answered(
        self,
        sink: Sink,
        buffer: RecBuf,
        batch: Batch,
        held: tuple[int, int],
        version: int,
        outcome: frames.Outcome,
        endpoints: dict[int, Address],
    ) -> None:
        """`handleReqRespBatch`."""
        error = outcome.error_code
        buffer.ok_on_sink = False
        if error == errors.NOT_LEADER and outcome.leader[0] >= 0 and outcome.leader[0] in endpoints:
            self.node_at(outcome.leader[0], endpoints[outcome.leader[0]])
            if self.learn_leader(buffer.partition, outcome.leader):
                buffer.rewind()
                return
        if error == 0:
            buffer.unknown_failures = 0
        elif error in _UNKNOWN:
            buffer.unknown_failures += 1
        is_lost = buffer.unknown_failures > _MOST_UNKNOWN
        if error in errors.RETRIABLE and error != 2 and not is_lost:
            self._retry(sink, buffer)
        elif error in _LOST_CODES:
            if self.id.is_on and not 0 <= buffer.last_acked_offset < outcome.log_start_offset:
                self.id.fail(held, errors.words(error))
                self.fail_buffer(buffer, errors.words(error))
            else:
                self.id.fail(held)
                self._retry(sink, buffer)
        elif error not in (0, errors.DUPLICATE):
            self.fail_buffer(buffer, errors.words(error))
        else:
            buffer.ok_on_sink = self.leaders[buffer.partition][0] == sink.node.node_id
            buffer.last_acked_offset = outcome.base_offset + batch.records
            if version >= 12:
                buffer.is_added = buffer.is_added or self.id.is_on
            buffer.finish_first()
            self.acked(batch, outcome.base_offset)

    def _retry(self, sink: Sink, buffer: RecBuf) -> None:
        """`handleRetryBatches`: send all again, after a look at the leaders."""
        if self.leaders[buffer.partition][0] != sink.node.node_id:
            buffer.rewind()
            return
        if self.id.is_aborting and not buffer.batches[0].is_uncertain:
            self.fail_buffer(buffer, "aborted")
            return
        buffer.rewind()
        if buffer.unknown_failures == 1 and buffer.next_sequence == 0:
            self.back_off(sink)
            return
        buffer.failing = True
        self.request_metadata()

    def fail_buffer(self, buffer: RecBuf, error: str) -> None:
        """`failAllRecords`."""
        for batch in buffer.fail_all():
            self.failed(batch, error)

    def fail_all(self, error: str) -> None:
        for buffer in self.buffers.values():
            buffer.fail_all()
        super().fail_all(error)

    def reset_sequences(self) -> None:
        """With another id or epoch each partition begins at 0, with its first batch."""
        for buffer in self.buffers.values():
            buffer.needs_reset = True
