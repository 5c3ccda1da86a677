"""Enforced users: the quota's own code judges their ids, and refused clients return as real ones do."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from pidgate.quota.decisions import Client, Refuse, batch_decision
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tools.history.cast import User
from tools.history.sessions import NEVER, Sessions
from tools.history.shard import Day
from tools.history.world import DAY_MS, REMEMBER_MS, WINDOW_MS

DELIVERY_TIMEOUT_MS = 120_000
"""Java's and librdkafka's delivery timeout is 2 to 5 minutes; then the send fails."""
TOKEN_UNITS = WINDOW_MS * 1_000
SETTINGS = ProducerIdSettings(window_ms=WINDOW_MS, remember_ms=REMEMBER_MS)
_TOPIC = b"t"
BALANCE = ("tokens_before", "tokens_after", "throttle_time_ms", "queue_position")
"""Fields of a decision about the bucket and the queue."""


Row = dict[str, Any]


def quotas(users: tuple[User, ...]) -> Quotas:
    """Return the quotas of these users: enforce with a rate, otherwise observe."""
    rates = {
        user.name: UserQuota.per_window(user.rate_per_hour, mode=Mode.ENFORCE)
        for user in users
        if user.rate_per_hour is not None
    }
    return Quotas(mode=Mode.OBSERVE, producer_ids=SETTINGS, users=rates)


def judged(
    day: Day, seen: Sessions, user: User, mine: np.ndarray, roll: np.random.Generator
) -> tuple[list[Row], list[Row]]:
    """Decide on a user's new ids of one day; return rows of decisions and of refusal outcomes.

    `mine`: its sessions with an id; their first use becomes the admission time, or never. Each day starts
    with a full bucket, because the previous day is another task's.
    """
    # Depends on the day only, so that any task computes the same.
    seeds = iter(roll.integers(9, 2**31, 64).tolist())
    begin_ms = int(seen.begin_ms.min()) // DAY_MS * DAY_MS
    state = ProducerIdQuota(quotas((user,)), lambda: next(seeds), 0)
    decisions: list[Row] = []
    outcomes: list[Row] = []
    lives = day.lives
    producer_id, epoch, is_lasting = lives.producer_id, lives.epoch, lives.is_lasting
    # When, which session, number of attempts; for refused ones the first refusal and the end.
    due = [(int(seen.first_use_ms[one]), int(one), 0, 0, 0) for one in mine]
    heapq.heapify(due)
    seen.first_use_ms[mine] = NEVER
    while due:
        at_ms, session, attempts, first_ms, deadline_ms = heapq.heappop(due)
        came_back = attempts > 0
        life = int(seen.life[session])
        waited_ms = at_ms - first_ms if came_back else None
        client = Client(
            user.name,
            day.client_words[day.client_code[life]],
            day.address_words[day.address_code[life]],
            session,
        )
        transactional = day.deployments[day.deployment_place[life]].is_transactional
        batch = int(producer_id[life]), int(epoch[life]), 0, _TOPIC, 0
        asked = batch_decision(user.name, batch, 1, transactional)
        asked.came_back, asked.waited_ms = came_back, waited_ms
        asked.deadline_left_ms = deadline_ms - at_ms if came_back else 0
        verdict = state.decide(client, [asked], at_ms - begin_ms)
        decision = verdict.decisions[0] if verdict.decisions else None
        admitted = not isinstance(verdict, Refuse)
        row = {"session": session, "at_ms": at_ms, "admitted": admitted, "waited_ms": waited_ms}
        if decision is not None:
            balance = {name: getattr(decision, name) for name in BALANCE}
            own = {"reason": decision.reason.value, "is_refresh": False, "base_sequence": 0}
            decisions.append(row | balance | own)
        if admitted:
            if at_ms < seen.end_ms[session]:
                seen.first_use_ms[session] = at_ms
            if came_back:
                outcomes.append(row | {"attempts": attempts})
            continue
        assert decision is not None
        first_ms = first_ms if came_back else at_ms
        attempts += 1
        deadline_ms = at_ms + decision.throttle_time_ms
        next_ms = deadline_ms + int(roll.integers(5, 400))
        patience_ms = DAY_MS if is_lasting[life] else DELIVERY_TIMEOUT_MS
        if next_ms < min(int(seen.end_ms[session]), first_ms + patience_ms):
            heapq.heappush(due, (next_ms, session, attempts, first_ms, deadline_ms))
        elif attempts > 1:
            # An id that never returns was not queued and has no refusal_outcome.
            gone_ms = at_ms + SETTINGS.max_throttle_ms + 30_000
            outcomes.append(row | {"at_ms": gone_ms, "attempts": attempts})
    return decisions, outcomes
