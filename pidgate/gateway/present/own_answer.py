"""What a client is told about its own user: is it throttled, why, until when, and what to change.

Over Kafka's protocol, to a connection of that user (proxy/apis/client_quotas.py). One answer is made at a time, in
turns with the traffic, and takes a tenth of the process at most.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pidgate.gateway.logs import Event, logger
from pidgate.gateway.present.explaining import explanation
from pidgate.gateway.present.present import Present, as_json
from pidgate.gateway.present.user_words import sentences
from pidgate.quota.entities import User, is_unidentified, shown

if TYPE_CHECKING:
    from pidgate.gateway.present.patterns import Patterns

log = logger()

MOST_ROWS: Final = 20
MOST_PATTERNS: Final = 3
LONGEST_NAME: Final = 200
LONGEST_ANSWER: Final = 30_000
"""A string of Kafka's protocol has 32,767 bytes at most."""
_NONE: Final[dict[str, Any]] = {"rows": [], "total": 0}
PAUSE_FOR_WORK: Final = 9.0
"""Times what the last answer took."""
KEPT_MS: Final = 500
MOST_KEPT: Final = 100
_OF_OPERATORS: Final = ("lifts", "connection_id", "user", "name", "node_id")

OnTold = Callable[[str], None]


class OwnAnswers:
    """`tell` answers in a task of its own."""

    def __init__(self, present: Present, gateway_id: str) -> None:
        self._present = present
        self._gateway_id = gateway_id
        self._patterns: Patterns | None = None
        self._one_at_a_time = asyncio.Lock()
        self._not_before_s = 0.0
        self._kept: dict[User, tuple[int, str]] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, user: User, on_told: OnTold) -> None:
        """Call `on_told` with the answer to the user, as JSON; empty if there is none."""
        task = asyncio.get_running_loop().create_task(self._tell(user, on_told))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, user: User, on_told: OnTold) -> None:
        text = ""
        try:
            async with self._one_at_a_time:
                text = await self._kept_or_made(user)
        except Exception as error:
            log.exception(Event.UNEXPECTED_ERROR, reason=f"the present of a user: {error}")
        on_told(text)

    async def _kept_or_made(self, user: User) -> str:
        now_ms = self._present.now_ms()
        kept = self._kept.get(user)
        if kept is not None and now_ms - kept[0] < KEPT_MS:
            return kept[1]
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._not_before_s - loop.time())
        began_s = loop.time()
        answer = await self._answer(user)
        text = json.dumps(answer)
        if len(text) > LONGEST_ANSWER:
            text = json.dumps(
                {**answer, "lines": answer["lines"][:MOST_PATTERNS], "waits": _NONE, "advice": []}
            )
        self._not_before_s = loop.time() + PAUSE_FOR_WORK * (loop.time() - began_s)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[user] = self._present.now_ms(), text
        return text

    async def _answer(self, user: User) -> dict[str, Any]:
        # Users without a readable name share one account: one of them is not told of the others' clients.
        is_shared = is_unidentified(user)
        present, now = self._present, self._present.moment()
        in_force = present.quotas.in_force
        waits = [] if is_shared else await present.waits.rows(now, user)
        found = explanation(user, None, state=present.state, in_force=in_force, moment=now)
        advice = [] if is_shared else await self._advice(user, now.wall_ms)
        return {
            "gateway": self._gateway_id,
            "user": shown(user),
            "wall_ms": now.wall_ms,
            "lines": list(sentences(found, is_own=True)),
            "waits": {"rows": [_own_row(as_json(row)) for row in waits[:MOST_ROWS]], "total": len(waits)},
            "limits": [],
            "advice": advice,
        }

    async def _advice(self, user: User, wall_ms: int) -> list[dict[str, str]]:
        if self._patterns is None:
            from pidgate.gateway.present.patterns import Patterns

            self._patterns = Patterns(self._present.recent, self._present.names)
        found = await self._patterns.of(user, wall_ms)
        return [{"text": one.text[:1_000], "remedy": one.remedy[:1_000]} for one in found[:MOST_PATTERNS]]


def _own_row(row: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in row.items() if key not in _OF_OPERATORS}
    own["client_id"] = own["client_id"][:LONGEST_NAME]
    return {**own, "name": row["name"][:LONGEST_NAME], "lifts": ()}
