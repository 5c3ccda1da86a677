"""Produce: admitted, or refused with NOT_ENOUGH_REPLICAS and a mute. PURE.

Its bytes count against a byte rate when it is forwarded. Above the rate the channel is muted (KIP-13,
KIP-219), and the answer carries the rest of the mute as throttle time. On other connections that share the
rate Produce waits until the debt is paid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import repeat
from typing import Final

from pidgate.gateway.proxy.apis.api import (
    FORWARD,
    HOLD,
    NO_PRODUCE,
    Api,
    ApiContext,
    InFlightRequest,
    Request,
    Step,
)
from pidgate.gateway.proxy.apis.responses import WHOLE, Response
from pidgate.gateway.proxy.waits import Why
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError, MalformedFrame
from pidgate.protocol.produce import PRODUCE, ForbiddenTopic, walk_counting
from pidgate.protocol.produce_answers import (
    FIRST_WITH_ENDPOINTS,
    PartitionError,
    behind_header,
    may_hold_endpoints,
    may_hold_errors,
    read_errors,
    refusal,
    rewrite_end,
)
from pidgate.protocol.repeated_produce import RepeatedProduce
from pidgate.protocol.throttle import last_throttle_at, may_be_before_tags, raise_to
from pidgate.protocol.work import JUDGED_FOR_PLACE, STEPS_PER_TURN, Steps, Walk
from pidgate.quota.byte_quota import Kind
from pidgate.quota.decisions import (
    MOST_IDS_PER_REQUEST,
    Close,
    Forward,
    ProducerBatch,
    Refuse,
    error_message,
    names_too_many_ids,
)

MOST_BATCHES_NOTED: Final = 8
"""Batches noted of a Produce in flight; of a larger one only the distinct producer ids are noted."""

JUDGED_BY_LEADER: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
    }
)
"""Errors of a broker that leads the partition and has looked at the batch: the next batch belongs there too. After any
other error, known or not, the partition may have moved to another leader while later batches are on their way.
"""

RESTORED_WITHIN_MS: Final = 10_000
LOOK_AGAIN_MS: Final = 200
HEARD_WITHIN_MS: Final = 2_000
"""Within this time the other gateways know of an admission."""

GATEWAY_TOPIC_MESSAGE: Final = "This topic belongs to the gateway."


class ProduceApi(Api):
    """Produce. Its answer is buffered whole, and parsed only when it may hold an error or a leader's address."""

    passing = WHOLE
    paid_by: Kind | None = Kind.PRODUCE

    def __init__(self, *, is_throttled: bool = False) -> None:
        """`is_throttled`: of a request above its byte rate, whose answer carries the rest of the mute."""
        self._is_throttled = is_throttled

    def handle_request(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        buf, head, request_bytes = request.buf, request.head, request.end - request.start
        if context.repeated is NO_PRODUCE:
            context.repeated = RepeatedProduce(context.at.gateway_topics.produced)
        try:
            acks, transactional, batches = context.repeated.walk(buf, head)
        except ForbiddenTopic as forbidden:
            return _to_gateway_topic(context, request, forbidden.acks)
        context.account.spent += JUDGED_FOR_PLACE * context.repeated.places
        if batches:
            if names_too_many_ids(batches):
                return _close_for_ids(context)
            state = context.admission.state
            if not state.is_restored and state.awaits_restore(
                state.account(context.client), _ids_in_order(batches), transactional=transactional
            ):
                return _await_restore(context, request, batches, acks, now_ms, transactional=transactional)
            if context.client.traits.is_refused_at_init and _hears_later(
                context, request, batches, now_ms, transactional=transactional
            ):
                return HOLD
            verdict = context.judge(batches, transactional=transactional, now_ms=now_ms)
            recorder = context.recorder
            if not isinstance(verdict, Forward):
                return _stop(context, request, verdict, acks, now_ms)
            if verdict.decisions and recorder is not None:
                recorder.decided(verdict.decisions, buf, head, now_ms)
            if recorder is not None:
                recorder.forwarded(batches, context.repeated.record_counts, request_bytes, now_ms)
            request.note = _noted(batches, context.client.user in context.admission.sticky.watched)
        request.api = count_bytes(context, request_bytes, now_ms)
        return context.forward(request) if acks else FORWARD

    def note_held(self, context: ApiContext, request: Request, now_ms: int) -> None:
        try:
            _, transactional, batches, _, places = walk_counting(request.buf, request.head)
        except KafkaProtocolError:
            return
        context.account.spent += JUDGED_FOR_PLACE * places
        context.admission.held_beginnings.note(context.client.user, batches, now_ms)
        if context.recorder is not None and now_ms < context.muted_until_ms:
            told = context.admission.hold_decisions(
                context.client, batches, transactional=transactional, now_ms=now_ms
            )
            if told:
                context.recorder.decided(told, request.buf, request.head, now_ms)

    def handle_while_muted(self, context: ApiContext, request: Request, now_ms: int) -> Step:
        acks, transactional, batches, _, places = walk_counting(request.buf, request.head)
        context.account.spent += JUDGED_FOR_PLACE * places
        if not batches:
            return HOLD
        if names_too_many_ids(batches):
            return _close_for_ids(context)
        verdict = context.judge_while_muted(batches, transactional=transactional, now_ms=now_ms)
        if verdict is None:
            return HOLD
        context.counters.requests[PRODUCE] += 1
        return _stop(context, request, verdict, acks, now_ms)

    def handle_response(
        self, context: ApiContext, request: InFlightRequest, response: Response
    ) -> bytes | Walk | None:
        buf, start, end, version = response.buf, response.start, response.end, request.api_version
        throttle_ms = context.mute_left_to_tell_ms(response.now_ms) if self._is_throttled else 0
        if throttle_ms and may_be_before_tags(buf, start, end, version):
            return Walk(_looked_at(context, request, buf, start, end, throttle_ms))
        may_need_walk = may_hold_errors(buf, start, end, version) or (
            version >= FIRST_WITH_ENDPOINTS and may_hold_endpoints(buf, start, end)
        )
        at = last_throttle_at(buf, start, end, version) if throttle_ms else None
        if at is not None:
            raise_to(buf, at, throttle_ms)
        return Walk(_looked_at(context, request, buf, start, end)) if may_need_walk else None


def _looked_at(
    context: ApiContext, request: InFlightRequest, buf: bytearray, start: int, end: int, throttle_ms: int = 0
) -> Steps:
    """Parse an answer that may hold errors, or addresses or `throttle_ms` before its end."""
    version, note = request.api_version, request.note
    answer = behind_header(buf, start, end, version)
    rewritten = None
    ends_in_tags = may_be_before_tags(buf, start, end, version)
    try:
        errors = yield from read_errors(answer, version)
    except MalformedFrame:
        if throttle_ms or (ends_in_tags and version >= FIRST_WITH_ENDPOINTS):
            raise
        return None  # a broker's answer, left to the client
    if throttle_ms and ends_in_tags:
        raise_to(buf, answer.pos, throttle_ms)
    if ends_in_tags and version >= FIRST_WITH_ENDPOINTS:
        rewritten = yield from rewrite_end(answer, start, context.at.translate)
    if errors:
        yield from _not_taken(context, note, errors)
        if context.recorder is not None:
            context.recorder.produce_answered(note, errors)
    return rewritten


PRODUCE_API: Final = ProduceApi()
THROTTLED_PRODUCE: Final = ProduceApi(is_throttled=True)


def count_bytes(context: ApiContext, request_bytes: int, now_ms: int) -> ProduceApi:
    """Count a forwarded Produce against its byte rate, if it has one. Returns the handler of its answer."""
    if context.byte_quota.is_on:
        sensors = context.sensors(now_ms)[0]
        if sensors is not None and context.record_bytes(sensors, request_bytes, now_ms):
            return THROTTLED_PRODUCE
    return PRODUCE_API


def _noted(batches: list[ProducerBatch], is_watched: bool) -> object:
    """Return the note for a request in flight: usually the producer id alone, to keep it small.

    `is_watched`: ids of its user are watched, and their entries may have to move back to a batch of it.
    """
    if (is_watched or len(batches) > 1) and len(batches) <= MOST_BATCHES_NOTED:
        return batches
    ids = _ids_in_order(batches)
    return ids[0] if len(ids) == 1 else ids


def _ids_of(note: object) -> Collection[int]:
    """Return a request's producer ids from its note."""
    if isinstance(note, int):
        return (note,)
    if isinstance(note, tuple):
        return note
    return {batch[0] for batch in note} if isinstance(note, list) else ()


def _ids_in_order(batches: list[ProducerBatch]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(batch[0] for batch in batches))


def _not_taken(context: ApiContext, note: object, errors: list[PartitionError]) -> Iterator[None]:
    """Judge batches of watched ids again when they are retried after a broker that may not lead them refused them.

    Each batch has a turn of its own, as the topics of the request and the answer may be thousands. No known
    client mixes ids in a request.
    """
    sticky, user = context.admission.sticky, context.client.user
    if user in sticky.watched:
        keys = [(topic, partition) for topic, partition, error in errors if error not in JUDGED_BY_LEADER]
        for at, producer_id in enumerate(_ids_of(note)):
            if at:
                yield from repeat(None, STEPS_PER_TURN)
            batches = [batch for batch in note if batch[0] == producer_id] if isinstance(note, list) else ()
            sticky.forget_failed_batches(user, producer_id, keys, batches)


def _stop(context: ApiContext, request: Request, verdict: Refuse | Close, acks: int, now_ms: int) -> Step:
    """Answer a refusal and mute the channel, or close the connection where no answer is possible."""
    if isinstance(verdict, Close):
        return context.close("quota", verdict.reason)
    buf, head = request.buf, request.head
    if context.recorder is not None:
        context.recorder.decided(verdict.decisions, buf, head, now_ms)
    if acks == 0:
        # As Kafka does on an error with acks=0: there is no answer that could carry it.
        return context.close("acks0_refused", "a refused Produce with acks=0 can be answered by closing only")
    context.refuse(verdict, verdict.reason, now_ms, rearms_mute=verdict.rearms_mute)
    throttle_ms = context.told_ms(verdict.throttle_time_ms)
    text = error_message(verdict, context.admission.quotas.help_url)
    return context.respond(refusal(buf, head, throttle_ms, text, ErrorCode.NOT_ENOUGH_REPLICAS))


def _await_restore(
    context: ApiContext,
    request: Request,
    batches: list[ProducerBatch],
    acks: int,
    now_ms: int,
    *,
    transactional: bool,
) -> Step:
    """Hold a request until the quota's state is restored, RESTORED_WITHIN_MS at most; then refuse it."""
    if _holds_within(context, request, RESTORED_WITHIN_MS, Why.RESTORING, now_ms):
        return HOLD
    verdict = context.admission.refuse_while_restoring(
        context.client, batches, transactional=transactional, now_ms=now_ms
    )
    return _stop(context, request, verdict, acks, now_ms)


def _hears_later(
    context: ApiContext,
    request: Request,
    batches: list[ProducerBatch],
    now_ms: int,
    *,
    transactional: bool,
) -> bool:
    """Hold the first batch of an id that another gateway may just have admitted, HEARD_WITHIN_MS at most."""
    return context.admission.may_be_admitted_elsewhere(
        context.client, _ids_in_order(batches), transactional, now_ms
    ) and _holds_within(context, request, HEARD_WITHIN_MS, Why.OTHER_GATEWAY, now_ms)


def _holds_within(context: ApiContext, request: Request, longest_ms: int, why: Why, now_ms: int) -> bool:
    """Hold a request and look again soon. Return False once it has waited for so long."""
    until_ms = request.note = request.note if isinstance(request.note, int) else now_ms + longest_ms
    if now_ms < until_ms:
        context.mute(now_ms + LOOK_AGAIN_MS)
        context.note_wait(why, now_ms, until_ms)
        return True
    return False


def _close_for_ids(context: ApiContext) -> Step:
    return context.close("limit", f"a Produce request names more than {MOST_IDS_PER_REQUEST} producer ids")


def _to_gateway_topic(context: ApiContext, request: Request, acks: int) -> Step:
    answer = None
    if acks:
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = refusal(request.buf, request.head, 0, GATEWAY_TOPIC_MESSAGE, denied)
    return context.refuse_gateway_topic(PRODUCE, answer)


def has_no_answer(request: Request) -> bool:
    """Return whether it is a Produce with acks=0.

    Its client regards it as sent and may disconnect afterwards.
    """
    if request.api_key != PRODUCE:
        return False
    try:
        acks, *_ = walk_counting(request.buf, request.head)
    except KafkaProtocolError:
        return False
    return acks == 0
