"""Produce at a broker: from KafkaApis.handleProduceRequest over verification to the log, and the answer when it may go.

Kafka: KafkaApis, ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager, DelayedProduce; KIP-890, KIP-951. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from pidgate.protocol.headers import RequestHead
from pidgate.protocol.produce import FIRST_TOPIC_ID
from tests.simulator.brokers.batches import BatchHead, fault_of, read_batch
from tests.simulator.brokers.entries import Appended
from tests.simulator.brokers.nodes import Nodes
from tests.simulator.brokers.partition import Partition
from tests.simulator.brokers.producer_state import OK, Verification
from tests.simulator.brokers.replies import Later
from tests.simulator.brokers.sessions import Session
from tests.simulator.brokers.timers import Delays, Timers
from tests.simulator.brokers.topics import Topics
from tests.simulator.brokers.verification import (
    FIRST_V2_VERSION,
    MOST_RETRY_MS,
    RETRY_MS,
    TransactionSide,
    said_to_producer,
)
from tests.simulator.brokers.wire import Endpoint, PartitionAnswer, produce_answer, read_produce


class Fault(NamedTuple):
    """A failure that is no rule of the log: a disk, an ACL, a time-out."""

    error_code: ErrorCode
    is_appended: bool = False
    """The batch is in the log all the same (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND)."""


class Part(NamedTuple):
    """One partition of a request that may be appended."""

    partition: Partition
    head: BatchHead
    raw: bytes

    @property
    def is_verified(self) -> bool:
        """Whether its transaction has to know it."""
        return self.head.is_transactional and self.head.producer_id >= 0


Place = tuple[int, int]
"""Position of the topic and of the partition in the request."""


class ProduceApi:
    """Answers Produce for all nodes of a cluster."""

    def __init__(
        self, nodes: Nodes, topics: Topics, timers: Timers, delays: Delays, transactions: TransactionSide
    ) -> None:
        self.nodes, self.topics, self.timers, self.transactions = nodes, topics, timers, transactions
        self.throttle_ms = delays.throttle_ms
        self.fault: Callable[[Session, Partition], Fault | None] | None = None

    def answer(self, session: Session, frame: bytes, head: RequestHead) -> Later:
        """Append what may be appended. Raises KafkaProtocolError."""
        return _Produce(self, session, frame, head).begin()

    def partition(self, key: bytes, index: int, version: int) -> Partition | ErrorCode:
        """Return the partition that a request names."""
        if version >= FIRST_TOPIC_ID:
            topic = self.topics.by_id.get(key)
            if topic is None:
                return ErrorCode.unknown_topic_id
        else:
            topic = self.topics.by_name.get(key.decode("utf-8", "replace"))
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.unknown_topic_or_partition
        return topic.partitions[index]


class _Produce:
    """One request on its way."""

    def __init__(self, api: ProduceApi, session: Session, frame: bytes, head: RequestHead) -> None:
        self.api = api
        self.session = session
        self.head = head
        self.request = read_produce(frame, head)
        self.errors: dict[Place, ErrorCode] = {}
        self.parts: dict[Place, Part] = {}
        self.appended: dict[Place, Appended] = {}
        self.later = Later()

    def begin(self) -> Later:
        """KafkaApis.handleProduceRequest."""
        version = self.head.api_version
        has_transactional = False
        for at, (key, partitions) in enumerate(self.request.topics):
            for n, (index, raw) in enumerate(partitions):
                batch = read_batch(raw)
                found = self.api.partition(key, index, version)
                if isinstance(batch, BatchHead) and batch.is_transactional:
                    has_transactional = True
                if isinstance(found, ErrorCode):
                    self.errors[at, n] = found
                elif isinstance(batch, ErrorCode):
                    self.errors[at, n] = batch
                else:
                    self.parts[at, n] = Part(found, batch, raw or b"")
        if has_transactional and self.request.transactional_id is None:
            # RequestUtils.hasTransactionalRecords, without anybody whom an ACL could allow it to.
            return self._refuse_all(ErrorCode.transactional_id_authorization_failed)
        producers = {
            (part.head.producer_id, part.head.epoch) for part in self.parts.values() if part.is_verified
        }
        if len(producers) > 1:
            return self._refuse_all(ErrorCode.invalid_producer_id_mapping)
        if producers:
            self._verify(self._now_ms + MOST_RETRY_MS)
        else:
            self._append({})
        return self.later

    @property
    def _now_ms(self) -> int:
        return self.api.timers.now_ms

    def _refuse_all(self, error: ErrorCode) -> Later:
        self.parts.clear()
        for at, (_, partitions) in enumerate(self.request.topics):
            self.errors.update({(at, n): error for n in range(len(partitions))})
        self._reply()
        return self.later

    # ---- verification ------------------------------------------------------------------------------------

    def _verify(self, until_ms: int) -> None:
        """ReplicaManager.maybeSendPartitionsToTransactionCoordinator, repeated while markers are under way."""
        is_v2 = self.head.api_version >= FIRST_V2_VERSION
        guards: dict[Place, Verification] = {}
        errors: dict[Place, ErrorCode] = {}
        for place, (partition, batch, _) in self.parts.items():
            if not self.parts[place].is_verified:
                continue
            if partition.leader != self.session.node_id:
                errors[place] = ErrorCode.not_leader_or_follower
                continue
            started = partition.states.start_verification(
                batch.producer_id,
                batch.epoch,
                batch.base_sequence,
                supports_epoch_bump=is_v2,
                now_ms=self._now_ms,
            )
            if isinstance(started, ErrorCode):
                errors[place] = started
            elif started is not None:
                guards[place] = started
        if guards:
            errors.update(self._asked(list(guards)))
        pending = ErrorCode.concurrent_transactions
        if is_v2 and pending in errors.values() and self._now_ms < until_ms:
            self.api.timers.after(RETRY_MS, lambda: self._verify(until_ms))
            return
        for place, error in errors.items():
            if error is not OK:
                self.errors[place] = said_to_producer(error, self.head.api_version)
                del self.parts[place]
        self._append(guards)

    def _asked(self, places: list[Place]) -> dict[Place, ErrorCode]:
        """AddPartitionsToTxnManager: add the partitions (v2) or ask whether they were added."""
        named = {
            place: (self.parts[place].partition.topic, self.parts[place].partition.index) for place in places
        }
        batch = self.parts[places[0]].head
        assert self.request.transactional_id is not None
        answers = self.api.transactions.add_or_verify(
            self.request.transactional_id,
            batch.producer_id,
            batch.epoch,
            list(named.values()),
            self._now_ms,
            add=self.head.api_version >= FIRST_V2_VERSION,
        )
        return {place: answers[partition] for place, partition in named.items()}

    # ---- the log -----------------------------------------------------------------------------------------

    def _append(self, guards: Mapping[Place, Verification]) -> None:
        """ReplicaManager.appendRecords."""
        acks = self.request.acks
        if acks not in (-1, 0, 1):
            self.errors.update(dict.fromkeys(self.parts, ErrorCode.invalid_required_acks))
            self.parts.clear()
        for place, (partition, batch, raw) in self.parts.items():
            error = partition.refusal(self.session.node_id, acks)
            fault = None if self.api.fault is None or error else self.api.fault(self.session, partition)
            if fault is not None and not fault.is_appended:
                error = fault.error_code
            if error is OK:
                error = fault_of(raw, batch)
            if error is not OK:
                self.errors[place] = error
                continue
            result = partition.append(batch, raw, guards.get(place))
            if result.error_code is not OK:
                self.errors[place] = result.error_code
                continue
            self.appended[place] = result
            if fault is not None:
                self.errors[place] = fault.error_code
        for place in self.appended:
            self.api.topics.replicate(self.parts[place].partition)
        if acks == -1 and not self._is_replicated():
            self._wait()
        else:
            self._reply()

    def _is_replicated(self) -> bool:
        for place, result in self.appended.items():
            if self.parts[place].partition.high_watermark < result.next_offset:
                return False
        return True

    def _wait(self) -> None:
        """DelayedProduce: until every partition is replicated, has lost its leader, or the time is over."""
        missing = dict.fromkeys(self.appended)

        def settled(place: Place, error: ErrorCode) -> None:
            if place in missing and not self.later.is_done:
                del missing[place]
                if error is not OK:
                    self.errors[place] = error
                if not missing:
                    self._reply()

        def too_late() -> None:
            for place in list(missing):
                settled(place, ErrorCode.request_timed_out)

        for place, result in self.appended.items():
            partition = self.parts[place].partition
            partition.wait(result.next_offset, partial(settled, place))
        if missing:
            self.api.timers.at(self._now_ms + max(self.request.timeout_ms, 0), too_late)

    def _reply(self) -> None:
        if self.request.acks == 0:
            # No answer could say it: the broker closes the connection.
            self.later.finish(None, closes=bool(self.errors))
            return
        endpoints: dict[int, Endpoint] = {}
        topics = []
        for at, (key, partitions) in enumerate(self.request.topics):
            answers = []
            for n, (index, _) in enumerate(partitions):
                error = self.errors.get((at, n), OK)
                if error is OK:
                    answers.append(PartitionAnswer(index, 0, self.appended[at, n].base_offset))
                elif error is ErrorCode.not_leader_or_follower:
                    answers.append(self._not_leader(key, index, endpoints))
                else:
                    answers.append(PartitionAnswer(index, error))
            topics.append((key, answers))
        throttle_ms = self.api.throttle_ms()
        if throttle_ms:
            self.session.muted_until_ms = self._now_ms + throttle_ms
        self.later.finish(produce_answer(self.head, topics, list(endpoints.values()), throttle_ms))

    def _not_leader(self, key: bytes, index: int, endpoints: dict[int, Endpoint]) -> PartitionAnswer:
        """KIP-951: version 10 and newer name the leader."""
        code = ErrorCode.not_leader_or_follower
        found = self.api.partition(key, index, self.head.api_version)
        if isinstance(found, ErrorCode) or found.leader is None:
            return PartitionAnswer(index, code)
        endpoints[found.leader] = self.api.nodes.endpoint(found.leader, self.session.listener.name)
        return PartitionAnswer(index, code, -1, found.leader_epoch, found.leader)
