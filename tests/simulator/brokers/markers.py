"""Transaction markers on their way from the coordinator to the partitions. Pure.

Kafka: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler,
KafkaApis.handleWriteTxnMarkersRequest.
A coordinator that moved would send all of them again; here those go on that are under way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from tests.simulator.brokers.producer_state import OK
from tests.simulator.brokers.timers import Delays, Timers
from tests.simulator.brokers.topics import Topics
from tests.simulator.brokers.transaction import State, TopicPartition, Transaction

RETRY_MS: Final = 20
"""A partition without a leader is asked again after this time."""


class Markers:
    """Writes the markers of prepared transactions, each in its time."""

    def __init__(
        self,
        topics: Topics,
        timers: Timers,
        delays: Delays,
        written: Callable[[TopicPartition, int, bool], None],
    ) -> None:
        """`written`: (partition, producer id, commit), a marker is in the log and replicated."""
        self._topics = topics
        self._timers = timers
        self._delays = delays
        self._written = written

    def send(self, transaction: Transaction, coordinator_epoch: int, complete: Callable[[], None]) -> None:
        """Write a marker into each partition of the transaction, then call `complete`."""
        missing = dict.fromkeys(transaction.partitions)
        if not missing:
            self._timers.after(self._delays.markers_ms(), complete)
        for place in list(missing):
            write = partial(self._write, transaction, coordinator_epoch, place, missing, complete)
            self._timers.after(self._delays.markers_ms(), write)

    def _write(
        self,
        transaction: Transaction,
        coordinator_epoch: int,
        place: TopicPartition,
        missing: dict[TopicPartition, None],
        complete: Callable[[], None],
    ) -> None:
        commit = transaction.state is State.PREPARE_COMMIT
        again = partial(self._write, transaction, coordinator_epoch, place, missing, complete)

        def done(error: ErrorCode) -> None:
            if error is not OK:
                self._timers.at(self._timers.now_ms + RETRY_MS, again)
                return
            if place in missing:
                del missing[place]
                self._written(place, transaction.producer_id, commit)
                if not missing:
                    complete()

        partition = self._topics.partition(*place)
        if partition is None:
            done(OK)  # the topic was deleted: nothing is left to end
            return
        error = partition.append_marker(
            transaction.producer_id,
            transaction.epoch,
            coordinator_epoch,
            self._timers.now_ms,
            commit=commit,
            transactions_v2=transaction.is_v2,
        )
        if error is OK:
            end_offset = partition.end_offset
            self._topics.replicate(partition)
            partition.wait(end_offset, done)
        elif error is ErrorCode.not_leader_or_follower:
            done(error)
        # Another error (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED) ends the sending for good: the
        # transaction stays pending until its coordinator is loaded anew.
