"""A large Produce that is passed on as it comes, because nothing in it is to be decided. PURE.

It repeats the one before it on its connection, with one batch, of an id that is known where it goes: what its beginning
shows is all that would be looked at in the whole frame. Brokers act on whole frames only, so it has not happened
before its last byte: until then it is neither in flight nor counted, and a connection that ends in its middle has sent
nothing. Whatever may be refused, held or asked about is kept whole, as every smaller frame is.
"""

from __future__ import annotations

from pidgate.gateway.proxy.apis.api import ApiContext, InFlightRequest
from pidgate.gateway.proxy.apis.produce import count_bytes
from pidgate.protocol.produce import PRODUCE


def may_pass(context: ApiContext, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    """Return whether a request of so many bytes, with this beginning, may be passed on as it comes, on a channel where
    nothing waits. It is the one that `has_passed` speaks of then.
    """
    repeated = context.repeated
    return (
        (context.recorder is None or context.recorder.is_introduced)
        and repeated.recognise_beginning(beginning, request_bytes)
        and context.admission.knows(
            context.session,
            repeated.producer_id,
            repeated.epoch,
            repeated.topics,
            repeated.partitions,
            repeated.transactional,
            now_ms,
        )
    )


def has_passed(context: ApiContext, request_bytes: int, now_ms: int) -> None:
    """Do what is done with every Produce that is forwarded: its last byte has come."""
    repeated, recorder = context.repeated, context.recorder
    context.counters.requests[PRODUCE] += 1
    if recorder is not None:
        recorder.requests += 1
        recorder.repeated(repeated, request_bytes, now_ms)
    api = count_bytes(context, request_bytes, now_ms)
    if repeated.acks:
        context.in_flight(
            InFlightRequest(api, PRODUCE, repeated.version, repeated.correlation_id, repeated.producer_id)
        )
