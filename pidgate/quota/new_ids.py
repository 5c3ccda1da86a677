"""Judging of InitProducerId, with which a client asks a broker for a new producer id. PURE."""

from __future__ import annotations

from pidgate.quota.admission import Admission
from pidgate.quota.entities import is_asked_at_init
from pidgate.quota.refusing import refusal_of
from pidgate.quota.state import new_id_question
from pidgate.quota.verdicts import FORWARD, Forward, Refuse, Session


def judge_new_id(
    admission: Admission, session: Session, now_ms: int, transactional_id: int | None
) -> Forward | Refuse:
    """Judge InitProducerId, without or with a transactional id (64 bits of its hash), as Admission does a Produce.

    No entry and no deadline is kept of a refusal: nothing was sent that could be lost, and the client is refused
    again, on any connection, while there are no tokens.
    """
    quotas = admission.quotas
    if not is_asked_at_init(quotas, session.user, transactional=transactional_id is not None):
        return FORWARD
    question = new_id_question(session.user, session.address, session.client_id, transactional_id)
    answer = admission.decide(question, now_ms)
    if not answer.decisions:
        return FORWARD
    counters = admission.counters.of(session.user, now_ms)
    if answer.refused:
        counters.count_new_ids(answer.decisions, now_ms)
        return refusal_of(quotas, answer)
    for decision in answer.decisions:
        counters.count(decision, now_ms)
    return Forward(answer.decisions)
