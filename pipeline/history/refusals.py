"""Users under enforcement: their ids are judged by the quota's own code, and their clients come back as clients do."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from pidgate.pipeline.history.cast import User
from pidgate.pipeline.history.sessions import NEVER, Sessions
from pidgate.pipeline.history.shard import Day
from pidgate.pipeline.history.world import DAY_MS, REMEMBER_MS, WINDOW_MS
from pidgate.quota import AskedId, Mode, ProducerIdQuota, ProducerIdSettings, Question, Quotas, UserQuota

DELIVERY_TIMEOUT_MS = 120_000
"""Java's and librdkafka's patience for a batch is 2 to 5 minutes; then the send fails."""
TOKEN_UNITS = WINDOW_MS * 1_000
SETTINGS = ProducerIdSettings(window_ms=WINDOW_MS, remember_ms=REMEMBER_MS)
_TOPIC = b"t"


@dataclass
class Judged:
    """Decisions and outcomes of one user, row by row. `admitted`: session -> when."""

    decisions: list[tuple[int, int, bool, str, int | None, int | None, int, int | None, int | None]] = field(
        default_factory=list
    )
    """session, at_ms, admitted, reason, tokens before and after, throttle_time_ms, queue_position, waited_ms."""
    outcomes: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    """session, at_ms, attempts, waited_ms, admitted."""
    admitted: dict[int, int] = field(default_factory=dict)


def quotas(users: tuple[User, ...]) -> Quotas:
    """Return the quotas of these users: observe, but enforce for those who have a rate."""
    rates = {
        user.name: UserQuota.per_window(user.rate_per_hour, mode=Mode.ENFORCE)
        for user in users
        if user.rate_per_hour is not None
    }
    return Quotas(mode=Mode.OBSERVE, producer_ids=SETTINGS, users=rates)


def judged(day: Day, seen: Sessions, user: User, mine: np.ndarray, roll: np.random.Generator) -> Judged:
    """Decide on a user's new ids of one day; `mine`: its sessions that bring one.

    Each day begins with all tokens: the state that the day before left behind is another task's.
    """
    # Of the day itself and of nothing else, so that a day is the same whoever computes it.
    seeds = iter(roll.integers(9, 2**31, 64).tolist())
    begin_ms = int(seen.begin_ms.min()) // DAY_MS * DAY_MS
    state = ProducerIdQuota(quotas((user,)), lambda: next(seeds), 0)
    decided = Judged()
    first_ms: dict[int, int] = {}
    attempts: dict[int, int] = {}
    deadline_ms: dict[int, int] = {}
    due = [(int(seen.first_use_ms[one]), int(one)) for one in mine]
    heapq.heapify(due)
    while due:
        at_ms, session = heapq.heappop(due)
        life = int(seen.life[session])
        asked = AskedId(
            int(day.producer_id[life]), int(day.lives.epoch[life]), 0, _TOPIC, 0,
            came_back=session in first_ms,
            deadline_ms=deadline_ms.get(session, 0) - begin_ms if session in deadline_ms else 0,
            first_refused_ms=first_ms[session] - begin_ms if session in first_ms else None,
        )  # fmt: skip
        address, client_id = (
            day.address_words[day.address_code[life]],
            day.client_words[day.client_code[life]],
        )
        transactional = day.deployments[day.deployment_place[life]].is_transactional
        question = Question(user.name, address, client_id, transactional, 1, (asked,))
        answer = state.decide(question, at_ms - begin_ms)
        decision = answer.decisions[0] if answer.decisions else None
        waited_ms = at_ms - first_ms[session] if session in first_ms else None
        if decision is not None:
            decided.decisions.append(
                (session, at_ms, not answer.refused, decision.reason.value, decision.tokens_before,
                 decision.tokens_after, decision.throttle_time_ms, decision.queue_position, waited_ms)
            )  # fmt: skip
        if not answer.refused:
            decided.admitted[session] = at_ms
            if waited_ms is not None:
                decided.outcomes.append((session, at_ms, attempts[session], waited_ms, True))
            continue
        assert decision is not None
        first_ms.setdefault(session, at_ms)
        attempts[session] = attempts.get(session, 0) + 1
        deadline_ms[session] = at_ms + decision.throttle_time_ms
        next_ms = at_ms + decision.throttle_time_ms + int(roll.integers(5, 400))
        patience_ms = DAY_MS if day.is_lasting[life] else DELIVERY_TIMEOUT_MS
        if next_ms < min(int(seen.end_ms[session]), first_ms[session] + patience_ms):
            heapq.heappush(due, (next_ms, session))
        elif attempts[session] > 1:
            # An id that never comes back never stood in line, and has no refusal_outcome.
            gone_ms = at_ms + SETTINGS.max_throttle_ms + 30_000
            decided.outcomes.append((session, gone_ms, attempts[session], at_ms - first_ms[session], False))
    return decided


def apply(seen: Sessions, decided: Judged, mine: np.ndarray) -> None:
    """Set the first use of sessions to their admission, or to never."""
    seen.first_use_ms[mine] = [decided.admitted.get(int(one), NEVER) for one in mine]
    seen.first_use_ms[mine] = np.where(
        seen.first_use_ms[mine] >= seen.end_ms[mine], NEVER, seen.first_use_ms[mine]
    )
