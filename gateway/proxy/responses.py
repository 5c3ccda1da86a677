"""What is done with those answers of the broker that are looked at.

Everything here gets one whole answer and returns what the client gets instead, framed, or None: as it came.
Rewriting learns, too: `translate` is called with every real address, before the answer leaves.
"""

from __future__ import annotations

from collections.abc import Callable

from pidgate.gateway.cluster.gateway_topics import GatewayTopics, add_refusals
from pidgate.gateway.cluster.topic_names import TopicNames
from pidgate.gateway.proxy.in_flight_requests import Forwarded
from pidgate.gateway.proxy.treatments import METADATA, Treatment
from pidgate.gateway.quotas.kafka_api import QuotaExchange, described
from pidgate.gateway.recording.connection_recorder import ConnectionRecorder
from pidgate.protocol import addresses, messages, produce
from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.admission import Admission
from pidgate.quota.verdicts import Session

Translate = Callable[[int, str, int], tuple[str, int]]
Buffer = bytes | bytearray | memoryview


class Answers:
    """The answers of one connection's broker, seen with the eyes of its listener and its quota."""

    __slots__ = (
        "_admission",
        "_gateway_topics",
        "_recorder",
        "_sasl",
        "_session",
        "_topic_names",
        "_translate",
    )

    def __init__(
        self,
        admission: Admission,
        session: Session,
        sasl: SaslExchange,
        translate: Translate,
        topic_names: TopicNames,
        gateway_topics: GatewayTopics,
        recorder: ConnectionRecorder | None = None,
    ) -> None:
        self._admission = admission
        self._session = session
        self._sasl = sasl
        self._translate = translate
        self._topic_names = topic_names
        self._gateway_topics = gateway_topics
        self._recorder = recorder

    def look(self, request: Forwarded, buf: Buffer, start: int, end: int, now_ms: int) -> bytes | None:
        """One whole answer, buf[start:end] without its size prefix. Raises MalformedFrame."""
        treatment, note = request.treatment, request.note
        api_key, api_version = request.api_key, request.api_version
        if treatment is Treatment.PRODUCE or treatment is Treatment.PRODUCE_THROTTLED:
            return produce.rewrite_response(buf, start, end, api_version, self._translate)
        if treatment is Treatment.ADDRESSES:
            if api_key == METADATA:
                self._topic_names.offer(memoryview(buf)[start:end], api_version)
                if self._recorder is not None:
                    self._recorder.metadata_passes(memoryview(buf)[start:end], api_version)
                answer = addresses.rewrite(api_key, api_version, buf, start, end, self._translate)
                listed = self._gateway_topics.filter_response(api_key, api_version, answer, 4, len(answer))
                answer = listed or answer
                return add_refusals(answer, api_version, note) if isinstance(note, tuple) else answer
            return addresses.rewrite(api_key, api_version, buf, start, end, self._translate)
        if treatment is Treatment.TOPICS:
            return self._gateway_topics.filter_response(api_key, api_version, buf, start, end)
        if treatment is Treatment.API_VERSIONS:
            return messages.cap_api_versions(buf, start, end, api_version)
        if treatment is Treatment.SASL_AUTHENTICATE:
            self._authenticated(buf, start, end, api_version)
        elif treatment is Treatment.DESCRIBE_QUOTAS:
            return described(buf, start, end, api_version, note, self._admission.quotas)
        elif treatment is Treatment.ALTER_QUOTAS:
            assert isinstance(note, QuotaExchange)
            note.answered(buf, start, end)
            return b""
        elif treatment is Treatment.INIT_PRODUCER_ID:
            self._producer_id_given(buf, start, end, api_version, note, now_ms)
        elif treatment is Treatment.END_TXN:
            self._transaction_ended(buf, start, end, api_version, note, now_ms)
        return None

    def _authenticated(self, buf: Buffer, start: int, end: int, api_version: int) -> None:
        error_code, token = messages.sasl_answer(buf, start, end, api_version)
        identity = self._sasl.broker_answer(error_code, token)
        if identity is not None:
            before = self._session.user
            self._session.identify(identity.user)
            if self._recorder is not None and self._session.user != before:
                self._recorder.identified()

    def _producer_id_given(
        self, buf: Buffer, start: int, end: int, api_version: int, note: object, now_ms: int
    ) -> None:
        answer = messages.init_producer_id_answer(buf, start, end, api_version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            session = self._session
            self._admission.owners.learnt(
                session.user, answer.producer_id, answer.producer_epoch, session.connection_id
            )
        if self._recorder is not None:
            self._recorder.producer_id_given(note, answer, now_ms)

    def _transaction_ended(
        self, buf: Buffer, start: int, end: int, api_version: int, note: object, now_ms: int
    ) -> None:
        answer = messages.end_txn_answer(buf, start, end, api_version)
        if answer.error_code == 0 and answer.producer_id >= 0 and isinstance(note, messages.EndTxnRequest):
            inherited = self._admission.inherits(
                self._session.user, note.producer_id, answer.producer_id, now_ms
            )
            if self._recorder is not None:
                self._recorder.transaction_ended(note, answer, inherited, now_ms)
