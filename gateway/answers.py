"""What is done with those answers of the broker that are looked at.

Everything here gets one whole answer and returns what the client gets instead, framed, or None: as it came.
Rewriting learns, too: `translate` is called with every real address, before the answer leaves.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.answer_line import Forwarded
from gateway.connection_recorder import ConnectionRecorder
from gateway.conversation import DISGUISED
from gateway.own_topics import OwnTopics
from gateway.quota_exchange import QuotaExchange, described
from gateway.topic_names import TopicNames
from gateway.treatments import METADATA, Treatment
from protocol import addresses, messages, produce
from protocol.sasl import SaslExchange
from quota.admission import Admission, Visitor

Translate = Callable[[int, str, int], tuple[str, int]]
Buffer = bytes | bytearray | memoryview


class Answers:
    """The answers of one connection's broker, seen with the eyes of its listener and its quota."""

    __slots__ = ("_admission", "_own_topics", "_recorder", "_sasl", "_topic_names", "_translate", "_visitor")

    def __init__(
        self,
        admission: Admission,
        visitor: Visitor,
        sasl: SaslExchange,
        translate: Translate,
        topic_names: TopicNames,
        own_topics: OwnTopics,
        recorder: ConnectionRecorder | None = None,
    ) -> None:
        self._admission = admission
        self._visitor = visitor
        self._sasl = sasl
        self._translate = translate
        self._topic_names = topic_names
        self._own_topics = own_topics
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
                without_own = self._own_topics.conceal(
                    api_key, api_version, answer, 4, len(answer), was_disguised=note is DISGUISED
                )
                return without_own or answer
            return addresses.rewrite(api_key, api_version, buf, start, end, self._translate)
        if treatment is Treatment.TOPICS:
            return self._own_topics.conceal(
                api_key, api_version, buf, start, end, was_disguised=note is DISGUISED
            )
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
            before = self._visitor.user
            self._visitor.identify(identity.user)
            if self._recorder is not None and self._visitor.user != before:
                self._recorder.identified()

    def _producer_id_given(
        self, buf: Buffer, start: int, end: int, api_version: int, note: object, now_ms: int
    ) -> None:
        answer = messages.init_producer_id_answer(buf, start, end, api_version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            visitor = self._visitor
            self._admission.owner_learnt(
                visitor.user, answer.producer_id, answer.producer_epoch, visitor.connection_id, now_ms
            )
        if self._recorder is not None:
            self._recorder.producer_id_given(note, answer, now_ms)

    def _transaction_ended(
        self, buf: Buffer, start: int, end: int, api_version: int, note: object, now_ms: int
    ) -> None:
        answer = messages.end_txn_answer(buf, start, end, api_version)
        if answer.error_code == 0 and answer.producer_id >= 0 and isinstance(note, messages.EndTxnRequest):
            inherited = self._admission.inherits(
                self._visitor.user, note.producer_id, answer.producer_id, now_ms
            )
            if self._recorder is not None:
                self._recorder.transaction_ended(note, answer, inherited, now_ms)
