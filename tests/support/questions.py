"""Requests as the quota's state sees them: `state.decide(*question("alice", 7), now_ms)`."""

from __future__ import annotations

from pidgate.quota.decisions import (
    Client,
    Close,
    Decision,
    Forward,
    Refuse,
    batch_decision,
    init_decision,
)
from pidgate.quota.producer_ids import ProducerIdQuota

Question = tuple[Client, list[Decision]]


def question(
    user: str,
    *ids: int,
    transactional: bool = False,
    came_back: bool = False,
    above_0: bool = False,
    address: str = "10.0.0.1",
    client_id: str = "app",
) -> Question:
    """A Produce with these ids; without ids, an InitProducerId."""
    client = Client(user, client_id, address, 1)
    decisions = [batch_decision(user, (one, 0, 0, b"t", 0), len(ids), transactional) for one in ids]
    for decision in decisions:
        decision.came_back, decision.above_0 = came_back, above_0
    return client, decisions or [init_decision(user, transactional)]


def decide_name(state: ProducerIdQuota, user: str, hashed: int, now_ms: int = 0) -> Forward | Refuse:
    """The verdict about a transactional id, by its hash."""
    return state.decide(*question(user, transactional=True), now_ms, hashed)


def is_refused(verdict: Forward | Refuse | Close) -> bool:
    return isinstance(verdict, Refuse)
