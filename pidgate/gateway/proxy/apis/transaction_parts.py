"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit: judged by producer id, like a batch at sequence 0.
PURE.

Where transactions are enforced, a new id is refused here, before the transaction's timeout starts.
"""

from __future__ import annotations

from typing import Final

from pidgate.events.redaction import TRANSACTIONAL_ID, pseudonym
from pidgate.gateway.proxy.apis.api import Api, ApiContext, Request, Step
from pidgate.protocol.errors import FrameTooLarge
from pidgate.protocol.transaction_parts import part_refused, transaction_part
from pidgate.quota.decisions import Close, ProducerBatch, Refuse

_NO_PARTITION: Final = -1
"""Partition of the batch that represents such a request: no real batch precedes or follows it."""


class TransactionPartApi(Api):
    """Refused with COORDINATOR_LOAD_IN_PROGRESS and a mute: every client retries it."""

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        step = context.refuse_if_guarded(request)
        if step is not None:
            return step
        part = transaction_part(request.buf, request.head)
        if part.producer_id < 0:
            return context.forward(request)  # names no producer: brokers refuse it
        batch: ProducerBatch = (part.producer_id, part.producer_epoch, 0, part.topic, _NO_PARTITION)
        verdict = context.judge([batch], transactional=True, now_ms=now_ms)
        recorder = context.recorder
        if isinstance(verdict, Close):
            return context.close("quota", verdict.reason)
        if recorder is not None and verdict.decisions:
            of_transaction = pseudonym(TRANSACTIONAL_ID, part.transactional_id)
            recorder.decided_later(verdict.decisions, of_transaction, now_ms)
        if isinstance(verdict, Refuse):
            return _refuse(context, request, verdict, now_ms)
        return context.forward(request)


def _refuse(context: ApiContext, request: Request, verdict: Refuse, now_ms: int) -> Step:
    context.refuse(verdict, verdict.reason, now_ms)
    try:
        return context.respond(part_refused(request.buf, request.head))
    except FrameTooLarge:
        return context.close(
            "limit", "a refused part of a transaction names too many partitions to be answered"
        )
