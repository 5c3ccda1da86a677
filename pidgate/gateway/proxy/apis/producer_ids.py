"""InitProducerId and EndTxn: new producer ids, refused or learnt. PURE."""

from __future__ import annotations

from pidgate.events.redaction import TRANSACTIONAL_ID, hash64, pseudonym
from pidgate.gateway.metrics.counters import INIT_REFUSED
from pidgate.gateway.proxy.apis.api import Api, ApiContext, InFlightRequest, Request, Step
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.names import bounded
from pidgate.protocol import messages
from pidgate.protocol.work import DECIDED_FOR
from pidgate.quota.decisions import Refuse


class InitProducerIdApi(Api):
    """InitProducerId.

    Refused with COORDINATOR_LOAD_IN_PROGRESS and a mute if the quota asks for that, or above the rate of
    transactional ids. The assigned producer id is learnt from the answer.
    """

    passing = WHOLE
    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        wanted = messages.init_producer_id_request(request.buf, request.head)
        name = wanted.transactional_id
        request.note = wanted if name is None else wanted._replace(transactional_id=bounded(name))
        # Without a transactional id a broker assigns a new producer id, whatever id the request carries
        # (Kafka's TransactionCoordinator.handleInitProducerId). With one it knows the producer and usually
        # keeps its id. An empty transactional id is refused by the broker.
        if name == "":
            return context.forward(request)
        hashed = None if name is None else hash64(TRANSACTIONAL_ID, name)
        verdict = context.admission.judge_new_id(context.client, now_ms, hashed)
        context.account.spent += DECIDED_FOR
        if isinstance(verdict, Refuse):
            return _refuse(context, request, verdict, wanted, now_ms)
        if name is not None and verdict.decisions and context.recorder is not None:
            context.recorder.transactional_id_admitted(
                pseudonym(TRANSACTIONAL_ID, name), verdict.decisions, now_ms
            )
        return context.forward(request)

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        answer = messages.init_producer_id_answer(buf, start, end, request.api_version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            client = context.client
            context.admission.owners.learnt(
                client.user, answer.producer_id, answer.producer_epoch, client.connection_id
            )
            if _is_plain(request.note) and context.admission.pays_at_init(client):
                _admit(context, answer, response.now_ms)
        if context.recorder is not None:
            context.recorder.producer_id_given(request.note, answer, response.now_ms)
        return None


def _is_plain(wanted: object) -> bool:
    return isinstance(wanted, messages.InitProducerIdRequest) and wanted.transactional_id is None


def _admit(context: ApiContext, answer: messages.InitProducerIdAnswer, now_ms: int) -> None:
    """Admit the id before its client knows it. The client may not survive a refusal of its first batch."""
    decisions = context.admission.admit_given_id(
        context.client, answer.producer_id, answer.producer_epoch, now_ms
    )
    if decisions and context.recorder is not None:
        context.recorder.decided_later(decisions, None, now_ms)


def _refuse(
    context: ApiContext,
    request: Request,
    verdict: Refuse,
    wanted: messages.InitProducerIdRequest,
    now_ms: int,
) -> Step:
    if context.recorder is not None:
        context.recorder.producer_id_withheld(wanted, now_ms)
    context.refuse(verdict, INIT_REFUSED, now_ms)
    correlation_id, throttle_ms = request.correlation_id, context.told_ms(verdict.throttle_time_ms)
    return context.respond(
        messages.init_producer_id_refused(correlation_id, request.api_version, throttle_ms)
    )


class EndTxnApi(Api):
    """EndTxn with a possible new producer id in its answer (KIP-890), which inherits the old id's admission."""

    passing = WHOLE
    introduces = False

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        ending = messages.end_txn_request(request.buf, request.head)
        request.note = ending._replace(transactional_id=bounded(ending.transactional_id))
        return context.forward(request)

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | None:
        buf, start, end = response.buf, response.start, response.end
        ended = request.note
        answer = messages.end_txn_answer(buf, start, end, request.api_version)
        if answer.error_code == 0 and answer.producer_id >= 0 and isinstance(ended, messages.EndTxnRequest):
            inherited = context.admission.admit_inherited(
                context.client.user, ended.producer_id, answer.producer_id, response.now_ms
            )
            if context.recorder is not None:
                context.recorder.transaction_ended(ended, answer, inherited, response.now_ms)
        return None
