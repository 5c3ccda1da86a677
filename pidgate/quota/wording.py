"""The error_message of a refusal (Produce v8+), which clients log. PURE."""

from __future__ import annotations

from pidgate.quota.verdicts import Bound, Reason, Refuse
from pidgate.units import show_duration, show_milli


def error_message(refusal: Refuse, help_url: str = "") -> str:
    """Return one line with what happened, what follows, and where to read on."""
    more = f"; see {help_url}" if help_url else ""
    return f"{_what_happened(refusal)}; retry in {refusal.throttle_time_ms} ms{more}"


def _what_happened(refusal: Refuse) -> str:
    producer_id = refusal.producer_id
    if refusal.reason is Reason.STICKY:
        return f"an earlier batch of producer id {producer_id} was refused and has to be sent first"
    if refusal.reason is Reason.ESTABLISHED:
        return (
            f"producer id {producer_id} of user {refusal.user} is not known here and starts above sequence 0"
        )
    if refusal.reason is Reason.FAIL_OPEN:
        return f"the gateway could not decide about producer id {producer_id} of user {refusal.user}"
    if refusal.reason is Reason.BLOCKED:
        return f"user {refusal.user} may not bring new producer ids: producer id {producer_id} is new"
    whose = "of the cluster" if refusal.bound is Bound.CLUSTER else f"of user {refusal.user}"
    rate = f"{show_milli(refusal.rate_milli or 0)} per {show_duration(refusal.window_ms)}"
    return f"producer_ids_rate quota {whose} exceeded ({rate}): producer id {producer_id} is new"
