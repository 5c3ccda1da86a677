"""A large Produce that is forwarded while it arrives, because it needs no decision. PURE.

It repeats the previous one of its connection, with one batch of an id already known to the broker, so its
beginning shows everything the gateway would read in the whole frame. Brokers act on whole frames only. Until
its last byte has arrived it is therefore not in flight, and a connection that ends in the middle has sent
nothing. Its bytes count against a byte rate as they leave. A request that may still be refused, held or
looked up is buffered until its last byte has arrived, as every smaller frame is.
"""

from __future__ import annotations

from pidgate.gateway.proxy.apis.api import ApiContext, InFlightRequest
from pidgate.gateway.proxy.apis.produce import count_bytes
from pidgate.protocol.produce import PRODUCE
from pidgate.quota.byte_quota import Kind


def may_pass(context: ApiContext, beginning: bytes, request_bytes: int, now_ms: int) -> bool:
    """Return whether a request of this size and beginning may be forwarded while it arrives.

    Expects a channel on which nothing waits. `has_passed` later refers to this request.
    """
    return (
        context.repeated.recognise_beginning(beginning, request_bytes)
        and context.knows_repeated(now_ms)
        and context.account_in_debt(Kind.PRODUCE, now_ms) is None
    )


def count_passing(context: ApiContext, nbytes: int, now_ms: int) -> None:
    """Count bytes of a request that is still arriving. Its throttle begins after the last byte."""
    if context.byte_quota.is_on:
        sensors = context.sensors(now_ms)[0]
        if sensors is not None:
            sensors.count(nbytes, now_ms)


def has_passed(context: ApiContext, request_bytes: int, now_ms: int) -> None:
    """Record a forwarded Produce after its last byte, as for every other forwarded Produce."""
    repeated, recorder = context.repeated, context.recorder
    context.counters.requests[PRODUCE] += 1
    if recorder is not None:
        recorder.requests += 1
        recorder.repeated(repeated, request_bytes, now_ms)
    api = count_bytes(context, 0, now_ms)
    if repeated.acks:
        context.forward(
            InFlightRequest(api, PRODUCE, repeated.version, repeated.correlation_id, repeated.producer_id)
        )
