"""The error_message of a refusal (Produce v8+), which clients log. PURE."""

from __future__ import annotations

from pidgate.quota.verdicts import Bound, Reason, Refuse

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


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
    if refusal.reason is Reason.BUSY:
        return f"nobody could decide in time about producer id {producer_id} of user {refusal.user}"
    if refusal.reason is Reason.BLOCKED:
        return f"user {refusal.user} may not bring new producer ids: producer id {producer_id} is new"
    whose = "of the cluster" if refusal.bound is Bound.CLUSTER else f"of user {refusal.user}"
    rate = f"{_thousandths(refusal.rate_milli or 0)} per {duration(refusal.window_ms)}"
    return f"producer_ids_rate quota {whose} exceeded ({rate}): producer id {producer_id} is new"


def duration(duration_ms: int) -> str:
    """Return the duration in the largest unit that divides it: 1h, 90m, 1500ms."""
    unit, length_ms = next(pair for pair in _UNITS if duration_ms % pair[1] == 0)
    return f"{duration_ms // length_ms}{unit}"


def _thousandths(value: int) -> str:
    whole, rest = divmod(value, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)
