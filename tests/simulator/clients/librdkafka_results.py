"""What librdkafka makes of the end of a Produce request (`rd_kafka_handle_Produce` and what it calls)."""

from __future__ import annotations

from typing import Final

from tests.simulator.clients import errors
from tests.simulator.clients.batches import Batch
from tests.simulator.clients.librdkafka_id import ProducerId
from tests.simulator.clients.librdkafka_transactions import LibrdkafkaTransactions
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.toppar import Toppar

# Errors of the client's own.
TRANSPORT, TIMED_OUT, TIMED_OUT_QUEUE, PURGED = -195, -185, -166, -172

_REFRESH: Final = frozenset({TRANSPORT, 3, 5, 6, 8, 9, 15, 16, errors.STORAGE_ERROR})
_RETRY: Final = frozenset({2, 7, 14, 19, 20, TIMED_OUT, TIMED_OUT_QUEUE, PURGED, errors.STORAGE_ERROR})
_UNCERTAIN: Final = frozenset({TRANSPORT, TIMED_OUT, 7, 20})
_COUNTED: Final = frozenset({TRANSPORT, errors.STORAGE_ERROR})
"""Of those that refresh the leaders: the try counts."""


class Results(ModelProducer):
    """Ends of requests: delivery reports, another try, another epoch, or the end of the producer."""

    id: ProducerId
    transactions: LibrdkafkaTransactions

    def finished(
        self, toppar: Toppar, batch: Batch, error: int, offset: int = -1, *, was_sent: bool = True
    ) -> None:
        """A request came to its end: an answer, or an error of the client's own."""
        toppar.in_flight -= batch.records
        next_sequence = batch.base_sequence + batch.records & 0x7FFFFFFF
        if error == 0:
            self._succeeded(toppar, batch, offset, next_sequence)
        else:
            self._erred(toppar, batch, error, next_sequence, was_sent=was_sent)
        if toppar.in_flight == 0:
            self.id.drained()
        self.wake()

    def _succeeded(self, toppar: Toppar, batch: Batch, offset: int, next_sequence: int) -> None:
        """`rd_kafka_handle_idempotent_Produce_success`."""
        is_expected = True
        if toppar.acked_id < batch.first_id - 1:
            self._implicitly_acked(toppar, batch.last_id)
        elif batch.base_sequence not in (toppar.next_ack,) and batch.base_sequence == toppar.next_error:
            self.is_of_no_use("a batch succeeded where an error was expected")
            toppar.next_error = next_sequence
            is_expected = False
        if is_expected:
            if toppar.next_error == toppar.next_ack:
                toppar.next_error = next_sequence
            toppar.next_ack = next_sequence
        toppar.acked_id = max(toppar.acked_id, batch.last_id)
        self.acked(batch, offset)

    def _implicitly_acked(self, toppar: Toppar, last_id: int) -> None:
        """`rd_kafka_dr_implicit_ack`: nobody asks whether those were refused."""
        for earlier in [queued for queued in toppar.queue if queued.last_id <= last_id]:
            toppar.queue.remove(earlier)
            self.acked(earlier)

    def _erred(self, toppar: Toppar, batch: Batch, error: int, next_sequence: int, *, was_sent: bool) -> None:
        """`rd_kafka_handle_Produce_error`."""
        refresh, retry, counts = error in _REFRESH, error in _RETRY, True
        moves_ack, moves_error = False, True
        if error in _UNCERTAIN and was_sent:
            batch.is_uncertain = True
        if (batch.producer_id, batch.epoch) != toppar.pid:
            refresh = retry = False
        elif error == errors.OUT_OF_ORDER:
            distance = batch.base_sequence - toppar.next_ack
            retry, counts = distance > 0, False
            if retry:
                self.id.bump()
            else:
                moves_error = distance == 0
                self.is_of_no_use(f"45 for sequence {batch.base_sequence}, next is {toppar.next_ack}")
        elif error == errors.DUPLICATE:
            toppar.next_ack = toppar.next_error = next_sequence
            self.acked(batch)
            return
        elif error == errors.UNKNOWN_PRODUCER_ID:
            is_transactional = self.transactional_id is not None
            retry = not is_transactional and batch.attempts == 0 and toppar.next_error == batch.base_sequence
            counts = False
            if retry or is_transactional:
                self.id.bump()
            else:
                self.is_of_no_use("unknown producer id")
        if refresh or retry:
            if refresh:
                self.request_metadata()
                counts = counts and error in _COUNTED
            toppar.wait_drain = True
            self._try_again(toppar, batch, counts=counts and was_sent)
            if moves_error:
                toppar.next_error = next_sequence
            return
        self._permanent(batch, error)
        if moves_ack:
            toppar.next_ack = next_sequence
        toppar.next_error = next_sequence

    def _try_again(self, toppar: Toppar, batch: Batch, *, counts: bool) -> None:
        """`rd_kafka_toppar_retry_msgq`."""
        if self.told.fatal:
            self.failed(batch, "purged")
            return
        batch.attempts += counts
        tries = max(batch.attempts - 1, 0)
        batch.retry_at_s = self.now_s + self.backoff_s(
            self.t.retry_backoff_s, self.t.retry_backoff_max_s, tries
        )
        toppar.put_back(batch)

    def _permanent(self, batch: Batch, error: int) -> None:
        word = "timed out" if error in (TIMED_OUT, TIMED_OUT_QUEUE) else errors.words(error)
        if self.transactional_id is None:
            self.id.bump()
        elif error == errors.STALE_EPOCH:
            self.is_of_no_use("fenced")
            self.id.reset()
        else:
            self.transactions.abortable(word)
        self.failed(batch, word)
