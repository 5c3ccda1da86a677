"""The requests of producers that are not Produce: ids, transactions and the offsets in them. Pure.

Kafka: KafkaApis.handleInitProducerIdRequest, handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest,
handleTxnOffsetCommitRequest, handleEndTxnRequest; GroupCoordinatorService.commitTransactionalOffsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pidgate.protocol import codec
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.messages import END_TXN, INIT_PRODUCER_ID
from pidgate.protocol.transaction_parts import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN
from tests.simulator.brokers.group_offsets import GroupOffsets
from tests.simulator.brokers.markers import Markers
from tests.simulator.brokers.nodes import Nodes
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.sessions import Session
from tests.simulator.brokers.timers import Delays, Timers
from tests.simulator.brokers.topics import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Topics,
    internal_partition,
)
from tests.simulator.brokers.transaction import Identity, TopicPartition, Transaction
from tests.simulator.brokers.transactions import TIMEOUT_CHECK_MS, Coordinator
from tests.support import raw

OK: Final = ErrorCode.none
_FIRST_WITH_FENCED: Final[Mapping[int, int]] = {
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS_TO_TXN: 2,
    ADD_OFFSETS_TO_TXN: 2,
    END_TXN: 2,
}
"""First version that knows PRODUCER_FENCED; older clients are told INVALID_PRODUCER_EPOCH."""
_FIRST_END_V2: Final = 5
_FIRST_OFFSETS_V2: Final = 5


class Transactions:
    """Coordinators by their partition of __transaction_state, at the nodes that lead it."""

    def __init__(self, nodes: Nodes, topics: Topics, timers: Timers, delays: Delays) -> None:
        self._nodes, self._topics, self._timers = nodes, topics, timers
        self._coordinators: dict[int, Coordinator] = {}
        self.offsets = GroupOffsets()
        self._markers = Markers(topics, timers, delays, self.offsets.ended)

    def of(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of an id, for checks."""
        coordinator = self._coordinators.get(internal_partition(transactional_id))
        return None if coordinator is None else coordinator.transactions.get(transactional_id)

    def _coordinator(self, transactional_id: str) -> tuple[Partition, Coordinator]:
        index = internal_partition(transactional_id)
        home = self._topics.internal(TRANSACTIONS_TOPIC, index)
        found = self._coordinators.get(index)
        if found is None:
            found = self._new_coordinator(home)
            self._coordinators[index] = found
        return home, found

    def _new_coordinator(self, home: Partition) -> Coordinator:
        def new_producer_id() -> int | None:
            return None if home.leader is None else self._nodes.new_producer_id(home.leader)

        def ended(transaction: Transaction) -> None:
            self._markers.send(transaction, home.leader_epoch, lambda: made.complete(transaction))

        made = Coordinator(new_producer_id, lambda transaction: self._begun(made, transaction), ended)
        return made

    def _begun(self, coordinator: Coordinator, transaction: Transaction) -> None:
        """The coordinator looks for transactions that have timed out in fixed intervals."""
        timers = self._timers
        over_ms = transaction.started_ms + transaction.timeout_ms
        check_ms = (over_ms // TIMEOUT_CHECK_MS + 1) * TIMEOUT_CHECK_MS
        timers.at(check_ms, lambda: coordinator.abort_timed_out(transaction, timers.now_ms))

    def _led_here(self, session: Session, topic: str, key: str) -> ErrorCode:
        home = self._topics.internal(topic, internal_partition(key))
        return OK if home.leader == session.node_id else ErrorCode.not_coordinator

    # ---- asked by brokers --------------------------------------------------------------------------------

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: list[TopicPartition],
        now_ms: int,
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn v4 and newer between brokers (KIP-890)."""
        home, coordinator = self._coordinator(transactional_id)
        if home.leader is None:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        if not add:
            return coordinator.verify(transactional_id, producer_id, epoch, partitions)
        error = coordinator.add(transactional_id, producer_id, epoch, partitions, now_ms)
        return dict.fromkeys(partitions, error)

    # ---- asked by clients --------------------------------------------------------------------------------

    def answer(self, session: Session, frame: bytes, head: RequestHead) -> bytes:
        """Return the framed answer. Raises KafkaProtocolError."""
        request = codec.decode_request(frame, head)
        version = head.api_version
        if head.api_key == INIT_PRODUCER_ID:
            body = _identity(self._init_producer_id(session, request, version), head)
        elif head.api_key == END_TXN:
            body = _identity(self._end(session, request, version), head)
        elif head.api_key == ADD_PARTITIONS_TO_TXN:
            body = self._add_partitions(session, request, head)
        elif head.api_key == ADD_OFFSETS_TO_TXN:
            body = {"error_code": _spoken(self._add_offsets(session, request), head)}
        else:
            body = self._commit_offsets(session, request, version)
        return raw.response(head.api_key, version, body, correlation_id=head.correlation_id)

    def _init_producer_id(self, session: Session, request: Any, version: int) -> Identity:
        """Without a transactional id every broker gives a new one, whatever id the client had."""
        producer_id, epoch = (request.producer_id, request.producer_epoch) if version >= 3 else (-1, -1)
        if (producer_id == -1) != (epoch == -1):
            return Identity(ErrorCode.invalid_request)
        expected = None if producer_id == -1 else (producer_id, epoch)
        if request.transactional_id is None:
            new_id = self._nodes.new_producer_id(session.node_id)
            if new_id is None:
                return Identity(ErrorCode.coordinator_load_in_progress)
            return Identity(OK, new_id, 0)
        error = self._led_here(session, TRANSACTIONS_TOPIC, request.transactional_id)
        if request.transactional_id and error is not OK:
            return Identity(error)
        _, coordinator = self._coordinator(request.transactional_id)
        return coordinator.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )

    def _end(self, session: Session, request: Any, version: int) -> Identity:
        error = self._led_here(session, TRANSACTIONS_TOPIC, request.transactional_id)
        if request.transactional_id and error is not OK:
            return Identity(error)
        _, coordinator = self._coordinator(request.transactional_id)
        return coordinator.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            self._timers.now_ms,
            commit=request.committed,
            is_v2=version >= _FIRST_END_V2,
        )

    def _add(
        self,
        session: Session,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: list[TopicPartition],
    ) -> ErrorCode:
        error = self._led_here(session, TRANSACTIONS_TOPIC, transactional_id)
        if transactional_id and error is not OK:
            return error
        _, coordinator = self._coordinator(transactional_id)
        return coordinator.add(transactional_id, *producer, partitions, self._timers.now_ms)

    def _add_partitions(self, session: Session, request: Any, head: RequestHead) -> dict[str, Any]:
        """One unknown partition, and none is added: OPERATION_NOT_ATTEMPTED to the others."""
        asked = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
        unknown = [place for place in asked if self._topics.partition(*place) is None]
        error = ErrorCode.operation_not_attempted
        if not unknown:
            producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            error = _spoken(self._add(session, request.v3_and_below_transactional_id, producer, asked), head)
        codes = dict.fromkeys(asked, error) | dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                        for index in topic.partitions
                    ],
                }
                for topic in request.v3_and_below_topics
            ]
        }

    def _add_offsets(self, session: Session, request: Any) -> ErrorCode:
        place = OFFSETS_TOPIC, internal_partition(request.group_id)
        self._topics.internal(*place)
        producer = request.producer_id, request.producer_epoch
        return self._add(session, request.transactional_id, producer, [place])

    def _commit_offsets(self, session: Session, request: Any, version: int) -> dict[str, Any]:
        error = self._commit(session, request, version)
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": partition.partition_index,
                            "error_code": error
                            if self._topics.partition(topic.name, partition.partition_index)
                            else ErrorCode.unknown_topic_or_partition,
                        }
                        for partition in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _commit(self, session: Session, request: Any, version: int) -> ErrorCode:
        """Verified (or added, v5 and newer) like a transactional batch, then pending until the transaction ends."""
        place = OFFSETS_TOPIC, internal_partition(request.group_id)
        error = self._led_here(session, OFFSETS_TOPIC, request.group_id)
        if error is not OK:
            return error
        is_v2 = version >= _FIRST_OFFSETS_V2
        now_ms = self._timers.now_ms
        home = self._topics.internal(*place)
        guard = home.states.start_verification(
            request.producer_id, request.producer_epoch, -1, supports_epoch_bump=is_v2, now_ms=now_ms
        )
        if isinstance(guard, ErrorCode):
            return guard
        if guard is not None:
            producer = request.producer_id, request.producer_epoch
            answers = self.add_or_verify(request.transactional_id, *producer, [place], now_ms, add=is_v2)
            error = answers[place]
            if error is ErrorCode.producer_fenced:
                return ErrorCode.invalid_producer_epoch
            if error is ErrorCode.transaction_abortable and version < _FIRST_OFFSETS_V2 - 1:
                return ErrorCode.invalid_txn_state
            if error is not OK:
                return error
        appended = home.append_offsets(request.producer_id, request.producer_epoch, guard, now_ms)
        if appended is OK:
            self._topics.replicate(home)
            self.offsets.pending(place, request)
        return appended


def _spoken(error: ErrorCode, head: RequestHead) -> ErrorCode:
    if error is ErrorCode.producer_fenced and head.api_version < _FIRST_WITH_FENCED[head.api_key]:
        return ErrorCode.invalid_producer_epoch
    return error


def _identity(identity: Identity, head: RequestHead) -> dict[str, Any]:
    return {
        "error_code": _spoken(identity.error_code, head),
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }
