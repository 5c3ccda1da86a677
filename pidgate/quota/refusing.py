"""Verdicts that refuse a request, built from decisions. PURE. Must not know how anything is decided."""

from __future__ import annotations

from pidgate.quota.entities import User, resolve
from pidgate.quota.settings import Quotas
from pidgate.quota.state import NO_PRODUCER_ID, Answer
from pidgate.quota.verdicts import Bound, Decision, ProducerBatch, Reason, Refuse


def local_decision(
    user: User,
    cause: ProducerBatch,
    request_partitions: int,
    transactional: bool,
    reason: Reason,
    throttle_time_ms: int,
) -> Decision:
    """Return the decision that refuses `cause` without asking the state."""
    producer_id, epoch, base_sequence, topic, partition = cause
    return Decision(
        user,
        producer_id,
        epoch,
        transactional,
        topic,
        partition,
        base_sequence,
        request_partitions,
        False,
        reason,
        throttle_time_ms=throttle_time_ms,
    )


def refusal_with(quotas: Quotas, decision: Decision, decisions: tuple[Decision, ...]) -> Refuse:
    """Return the refusal of a request for `decision`, one of `decisions`."""
    return Refuse(
        decision.throttle_time_ms,
        decision.reason,
        decision.producer_id,
        True,
        decision.user,
        resolve(quotas, decision.user).rate_milli,
        quotas.producer_ids.window_ms,
        decisions=decisions,
    )


def local_refusal(quotas: Quotas, decision: Decision) -> Refuse:
    """Return the refusal of a request for a decision that no state was asked about."""
    refusal = refusal_with(quotas, decision, (decision,))
    refusal.rearms_mute = decision.reason is Reason.ESTABLISHED
    return refusal


def refusal_of(quotas: Quotas, answer: Answer) -> Refuse:
    """Return the refusal for the state's answer: that with the longest throttle counts."""
    longest = max(answer.decisions, key=lambda decision: decision.throttle_time_ms)
    refusal = refusal_with(quotas, longest, answer.decisions)
    refusal.bound = answer.bound
    if longest.producer_id == NO_PRODUCER_ID and longest.transactional:
        refusal.rate_milli = resolve(quotas, longest.user).transactional_ids_rate_milli
    if answer.bound is Bound.CLUSTER:
        refusal.rate_milli = quotas.cluster_rate_milli
    return refusal
