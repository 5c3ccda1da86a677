"""The sentence that a refused client finds in its log (Produce v8+ carries an error message). PURE."""

from __future__ import annotations

from gateway.units import show_duration
from quota.admission import Reason, Refuse


def refusal_text(refusal: Refuse, help_url: str | None) -> str:
    """What happened, in an application developer's words, and where to read on."""
    quota = f"producer_ids_rate quota of user {refusal.user} exceeded ({_quota(refusal)})"
    who = f"producer id {refusal.producer_id}"
    if refusal.reason is Reason.BLOCKED:
        text = f"user {refusal.user} may not bring new producer ids (producer_ids_rate 0): {who} is new"
    elif refusal.reason is Reason.STICKY:
        text = f"{who}: an earlier batch of this partition was refused and has to come first"
    elif refusal.reason is Reason.ESTABLISHED:
        text = f"{who} is not known here and does not begin at sequence 0: send the batch again"
    else:
        text = f"{quota}: {who} is new"
    retry = f"; retry in {refusal.throttle_time_ms} ms"
    return text + retry + (f"; see {help_url}" if help_url else "")


def _quota(refusal: Refuse) -> str:
    rate_milli = refusal.rate_milli or 0
    rate = f"{rate_milli / 1000:g}"
    return f"{rate} per {show_duration(refusal.window_ms)}"
