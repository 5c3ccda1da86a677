"""Events of one client connection, published through the process's `Recorder`. PURE.

`forwarded` is called for every Produce with a producer id and costs less than a microsecond. The connection
itself counts `requests`, `bytes_in` and `bytes_out`. All other methods are called rarely.

The user is unknown when a connection opens, so the "open" event is published with the connection's first
other event. It carries the time of the opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from pidgate.events.definitions import (
    ConnectionEvent,
    DecisionEvent,
    DecisionWord,
    InitProducerIdEvent,
    ProduceErrorEvent,
    RefusalOutcomeEvent,
    TransactionalIdEvent,
)
from pidgate.events.redaction import TRANSACTIONAL_ID, pseudonym
from pidgate.gateway.cluster.seen_answers import Answer
from pidgate.gateway.recording.guarded import guarded
from pidgate.gateway.recording.recorder import Recorder
from pidgate.gateway.recording.sampling import Summed, count
from pidgate.gateway.recording.usage import NO_USAGES, Carried, IdUsage
from pidgate.protocol.errors import ErrorCode
from pidgate.protocol.headers import RequestHead
from pidgate.protocol.messages import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    EndTxnAnswer,
    EndTxnRequest,
    InitProducerIdAnswer,
    InitProducerIdRequest,
)
from pidgate.protocol.produce import transactional_id
from pidgate.protocol.produce_answers import PartitionError
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.decisions import Client, Decision, ProducerBatch, Reason
from pidgate.quota.entities import BY_CERTIFICATE

Buffer = bytes | bytearray | memoryview

LEAVING_AT_CLOSE: Final = 10
"""Usages and error counts published when a connection closes; the rest waits for the next second."""


NO_ERRORS: Final[dict[tuple[int, int], int]] = {}
"""Of a connection that has seen no error. Never written to."""


class ConnectionRecorder:
    """Recorder of one connection, from the accepted socket until `closed`."""

    __slots__ = (
        "_client",
        "_errors",
        "_fresh",
        "_opened_ms",
        "_opened_wall_ms",
        "_recorder",
        "_sasl",
        "bytes_in",
        "bytes_out",
        "certified",
        "connection_id",
        "is_introduced",
        "listener",
        "node_id",
        "requests",
        "software",
        "usages"
    )  # fmt: skip

    def __init__(
        self, recorder: Recorder, client: Client, sasl: SaslExchange, listener: str, node_id: int | None
    ) -> None:
        self._recorder = recorder
        self._fresh = recorder.usage.fresh
        self._client = client
        self._sasl = sasl
        self.node_id = node_id
        self.listener = listener
        self.connection_id = client.connection_id
        self.software = ("", "")
        """Name and version of the client library, from ApiVersions; truncated."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.usages = NO_USAGES
        """Usages of the ids used by this connection in this slice."""
        self._errors = NO_ERRORS
        """Errors in Produce answers, by producer id and error code."""
        self.certified = False
        """The user comes from a certificate, until a login names another."""
        self.is_introduced = False
        """The "open" event was published."""
        self._opened_ms = recorder.now_ms()
        self._opened_wall_ms = recorder.wall_ms()

    def failed(self, error: Exception) -> None:
        """Count and report a failure of the recorder; never raises."""
        self._recorder.failed(error)

    def about(self) -> dict[str, Any]:
        """Return the client's part of the event envelope."""
        client = self._client
        name, version = self.software
        return {
            "connection_id": self.connection_id,
            "listener": self.listener,
            "user": client.user,
            "client_id": client.client_id,
            "software_name": name,
            "software_version": version,
            "address": client.address,
        }

    # ---- requests --------------------------------------------------------------------------------------

    def forwarded(
        self, batches: list[ProducerBatch], record_counts: list[int], frame_bytes: int, now_ms: int
    ) -> None:
        """Count a Produce forwarded to the broker. Hot path: no guard that costs an extra call."""
        try:
            batch = batches[0]
            usage = self.usages.get(batch[0]) or self._begin(batch[0], now_ms)
            if usage is not None:
                usage.requests += 1
                usage.bytes += frame_bytes
                usage.last_ms = now_ms
                if len(batches) == 1:
                    usage.count(batch, record_counts[0])
                elif not usage.count_all(batches, record_counts):
                    self._count_each(batches, record_counts, now_ms)
            else:
                self._count_each(batches, record_counts, now_ms)
            if self._fresh:
                self._note_pairs(now_ms)
        except Exception as error:  # noqa: BLE001 - see guarded.py
            self.failed(error)

    def repeated(self, request: RepeatedProduce, frame_bytes: int, now_ms: int) -> None:
        """Count a recognised Produce, as `forwarded` does. Hot path."""
        try:
            usage = self.usages.get(request.producer_id) or self._begin(request.producer_id, now_ms)
            if usage is not None:
                usage.requests += 1
                usage.bytes += frame_bytes
                usage.last_ms = now_ms
                usage.count_recognised(
                    request.epoch, request.topics, request.partitions, request.batches, request.record_count
                )
            else:
                for topic, partitions in zip(request.topics, request.partitions, strict=True):
                    self._fresh += ((request.producer_id, topic, partition) for partition in partitions)
            if self._fresh:
                self._note_pairs(now_ms)
        except Exception as error:  # noqa: BLE001 - see guarded.py
            self.failed(error)

    @guarded
    def carried(self, producer_id: int, epoch: int, carried: Carried) -> None:
        """Count what a lane has carried of one id."""
        usage = self.usages.get(producer_id) or self._begin(producer_id, carried.last_ms)
        if usage is not None:
            usage.count_carried(epoch, carried)
        else:
            for topic, bits in carried.written.items():
                self._fresh += ((producer_id, topic, at) for at in range(bits.bit_length()) if bits >> at & 1)
        if self._fresh:
            self._note_pairs(carried.last_ms)

    def _note_pairs(self, now_ms: int) -> None:
        """Pass on the pairs of id and partition that were used for the first time in a while."""
        try:
            self._recorder.pairs_used(self._client, self.node_id, self._fresh, now_ms)
        finally:
            self._fresh.clear()

    def _count_each(self, batches: list[ProducerBatch], record_counts: list[int], now_ms: int) -> None:
        """Count a request of several ids for each of them, with its bytes for the first only.

        Clients send one id.
        """
        counted = {batches[0][0]}
        for batch, records in zip(batches, record_counts, strict=True):
            usage = self.usages.get(batch[0]) or self._begin(batch[0], now_ms)
            if usage is None:
                self._fresh.append((batch[0], batch[3], batch[4]))
                continue
            if batch[0] not in counted:
                usage.requests += 1
                usage.last_ms = now_ms
                counted.add(batch[0])
            usage.count(batch, records)

    def _begin(self, producer_id: int, now_ms: int) -> IdUsage | None:
        self._recorder.in_slice[self] = None
        return self._recorder.usage.begin(self, self._client.user, producer_id, now_ms)

    @guarded
    def decided(self, decisions: Iterable[Decision], buf: Buffer, head: RequestHead, now_ms: int) -> None:
        """Publish the admission or refusal decisions about the Produce request in `buf`."""
        self.introduce()
        of_transaction: str | None = None
        for decision in decisions:
            if decision.transactional and of_transaction is None:
                of_transaction = _hash_of(transactional_id(buf, head))
            self._decided(decision, of_transaction, now_ms)

    @guarded
    def decided_later(self, decisions: Iterable[Decision], of_transaction: str | None, now_ms: int) -> None:
        """Publish the decisions about a beginning of a transaction, which events name by `of_transaction`."""
        self.introduce()
        for decision in decisions:
            self._decided(decision, of_transaction, now_ms)

    def _decided(self, decision: Decision, of_transaction: str | None, now_ms: int) -> None:
        recorder, client = self._recorder, self._client
        user, producer_id = decision.user, decision.producer_id
        word: DecisionWord = "admit" if decision.admitted else "refuse"
        if decision.reason is Reason.HELD:
            word = "hold"
        elif not decision.admitted:
            recorder.refused_ids.refused(user, producer_id, client.client_id, client.address)
        about = self.about()
        about["user"] = user
        recorder.publish(
            DecisionEvent(
                **recorder.stamp(now_ms),
                **about,
                producer_id=producer_id,
                epoch=decision.epoch,
                transactional=decision.transactional,
                transactional_id_hash=of_transaction if decision.transactional else None,
                topic=recorder.name_of(decision.topic),
                partition=decision.partition,
                base_sequence=decision.base_sequence,
                request_partitions=decision.request_partitions,
                decision=word,
                reason=decision.reason.value,
                would_refuse=decision.would_refuse,
                tokens_before=decision.tokens_before,
                tokens_after=decision.tokens_after,
                token_units=None if decision.tokens_after is None else recorder.token_units,
                throttle_time_ms=decision.throttle_time_ms,
                queue_position=decision.queue_position,
                waited_ms=decision.waited_ms,
                quota_version=recorder.quota_version,
                applied_offsets=recorder.applied_offsets(),
            )
        )
        if decision.admitted and decision.waited_ms is not None:
            refused = recorder.refused_ids.ended(user, producer_id)
            recorder.publish(
                RefusalOutcomeEvent(
                    **recorder.stamp(now_ms),
                    **about,
                    producer_id=producer_id,
                    attempts=refused.attempts if refused else 1,
                    waited_ms=decision.waited_ms,
                    outcome="admitted",
                )
            )

    # ---- answers ---------------------------------------------------------------------------------------

    @guarded
    def produce_answered(self, asked: object, errors: Sequence[PartitionError]) -> None:
        """Count the error codes of an answer.

        `asked`: the request's batches or its only id; otherwise it had none. Very many batches with several
        ids are reduced to the distinct ids; the first id counts then.
        """
        first = asked[0] if isinstance(asked, tuple) else asked
        only_id = first if isinstance(first, int) else -1
        ids = {(batch[3], batch[4]): batch[0] for batch in asked} if isinstance(asked, list) else {}
        for topic, partition, code in errors:
            self._count_error((ids.get((topic, partition), only_id), code))

    def _count_error(self, key: tuple[int, int]) -> None:
        counts = self._errors
        if key not in counts and not self._recorder.may_count_error():
            return
        if counts is NO_ERRORS:
            counts = self._errors = {}
            self._recorder.in_slice[self] = None
        counts[key] = counts.get(key, 0) + 1

    @guarded
    def producer_id_given(self, asked: object, answer: InitProducerIdAnswer, now_ms: int) -> None:
        """Publish the broker's answer to InitProducerId, an id or an error. `asked` is the request."""
        if answer.producer_epoch == 0:  # a known transactional id keeps its producer id, with a higher epoch
            self._recorder.id_blocks.note_given(self.node_id, answer.producer_id, now_ms)
        if isinstance(asked, InitProducerIdRequest):
            of_transaction = asked.transactional_id is not None
            self._given(asked, answer, of_transaction, now_ms)

    @guarded
    def producer_id_withheld(self, asked: InitProducerIdRequest, now_ms: int) -> None:
        """Publish the gateway's own refusal of InitProducerId; no broker saw the request."""
        answer = InitProducerIdAnswer(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        )
        self._given(asked, answer, asked.transactional_id is not None, now_ms, by_broker=False)

    @guarded
    def transactional_id_admitted(self, name_hash: str, decisions: Iterable[Decision], now_ms: int) -> None:
        """Publish that the transactional id with this hash counts as used, for other gateways and a restart."""
        self.introduce()
        recorder = self._recorder
        for decision in decisions:
            recorder.publish(
                TransactionalIdEvent(
                    **recorder.stamp(now_ms),
                    **self.about(),
                    transactional_id_hash=name_hash,
                    reason=decision.reason.value,
                    would_refuse=decision.would_refuse,
                    tokens_after=decision.tokens_after,
                    token_units=None if decision.tokens_after is None else recorder.token_units,
                    quota_version=recorder.quota_version,
                )
            )

    @guarded
    def transaction_ended(
        self, asked: EndTxnRequest, answer: EndTxnAnswer, is_inherited: bool, now_ms: int
    ) -> None:
        """Publish the producer id returned by EndTxn (v5+), if it is a new one."""
        if answer.producer_id in (-1, asked.producer_id):
            return
        self._given(asked, answer, True, now_ms)
        if is_inherited:
            user, new_id, epoch = self._client.user, answer.producer_id, answer.producer_epoch
            inherited = Decision(user, new_id, epoch, True, b"", -1, -1, 0, True, Reason.INHERITED)
            self._decided(inherited, _hash_of(asked.transactional_id.encode()), now_ms)

    def _given(
        self,
        asked: InitProducerIdRequest | EndTxnRequest,
        answer: InitProducerIdAnswer | EndTxnAnswer,
        of_transaction: bool,
        now_ms: int,
        *,
        by_broker: bool = True,
    ) -> None:
        self.introduce()
        recorder = self._recorder
        total = recorder.sampler.sum_of(InitProducerIdEvent.type, answer.error_code, self._client, now_ms)
        if total is not None:
            count(total, recorder.wall_ms(), now_ms)
            return
        event = InitProducerIdEvent(
            **recorder.stamp(now_ms),
            **self.about(),
            asked_producer_id=asked.producer_id,
            asked_epoch=asked.producer_epoch,
            answered_producer_id=answer.producer_id,
            answered_epoch=answer.producer_epoch,
            error=answer.error_code,
            node_id=self.node_id if by_broker else None,
            transactional=of_transaction,
        )
        recorder.publish_sampled(event, now_ms)

    @guarded
    def metadata_passes(self, answer: Answer, version: int, hashed: int) -> None:
        """Offer a Metadata answer to the topology."""
        self._recorder.metadata_passes(answer, version, hashed)

    # ---- the connection itself -------------------------------------------------------------------------

    @guarded
    def identified(self) -> None:
        """Handle a change of user: earlier counts stay with the earlier user."""
        self._recorder.usage.connection_closed(self)

    @guarded
    def introduced(self) -> None:
        """Publish the opening: the client is identified and sends its first request."""
        self.introduce()

    def introduce(self) -> None:
        """Publish the opening of the connection, once."""
        if self.is_introduced:
            return
        self.is_introduced = True
        total = self._sum_of("open")
        if total is not None:
            count(total, self._opened_wall_ms, self._opened_ms)
            return
        event = self._event("open")
        event.wall_time_ms, event.decision_time_ms = self._opened_wall_ms, self._opened_ms
        self._recorder.publish_sampled(event, self._recorder.now_ms())

    @guarded
    def closed(self, cause: str) -> None:
        """Publish that both sockets are closed; the last call."""
        recorder = self._recorder
        recorder.in_slice.pop(self, None)
        self.introduce()
        self._leave_errors()
        recorder.usage.connection_closed(self)
        recorder.publish_leaving(LEAVING_AT_CLOSE)
        now_ms = recorder.now_ms()
        seconds = (now_ms - self._opened_ms) / 1000
        total = self._sum_of("close")
        if isinstance(total, ConnectionEvent):
            count(total, recorder.wall_ms(), now_ms)
            total.seconds += seconds
            total.bytes_in += self.bytes_in
            total.bytes_out += self.bytes_out
            total.requests += self.requests
            return
        event = self._event("close")
        event.close_reason = cause
        event.seconds = seconds
        event.bytes_in, event.bytes_out, event.requests = self.bytes_in, self.bytes_out, self.requests
        recorder.publish_sampled(event, now_ms)

    def end_slice(self) -> None:
        """Drop the usages, which have left the table, and publish the error counts."""
        self.usages = NO_USAGES
        self._leave_errors()

    def _leave_errors(self) -> None:
        counts, self._errors = self._errors, NO_ERRORS
        if counts:
            publish = partial(self._publish_error, self.about(), self.node_id)
            self._recorder.later.extend(partial(publish, *key, count) for key, count in counts.items())

    def _publish_error(
        self, about: dict[str, Any], node_id: int | None, producer_id: int, code: int, count: int
    ) -> None:
        recorder = self._recorder
        recorder.error_counts -= 1
        stamp = recorder.stamp(recorder.now_ms())
        recorder.publish(
            ProduceErrorEvent(
                **stamp, **about, producer_id=producer_id, code=code, count=count, node_id=node_id
            )
        )

    def _sum_of(self, phase: str) -> Summed | None:
        recorder = self._recorder
        return recorder.sampler.sum_of(ConnectionEvent.type, phase, self._client, recorder.now_ms())

    def _event(self, phase: str) -> ConnectionEvent:
        identity = self._sasl.identity
        without_login = BY_CERTIFICATE if self.certified else ""
        return ConnectionEvent(
            **self._recorder.stamp(self._recorder.now_ms()),
            **self.about(),
            phase="open" if phase == "open" else "close",
            node_id=self.node_id,
            principal_mechanism=identity.mechanism if identity is not None else without_login,
        )


def _hash_of(name: bytes | None) -> str | None:
    return None if name is None else pseudonym(TRANSACTIONAL_ID, name.decode("utf-8", "replace"))
