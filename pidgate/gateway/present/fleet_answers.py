"""What all gateways of the fleet show now: who waits, who is present, whose quotas differ.

A gateway that is asked over HTTP asks the others through the events topic, and they answer there: no gateway connects
to another, and no token leaves its address. Questions and answers are lifecycle events. An answer holds the clients
that are closest to a loss; redacted fields are hashed in it, as in every event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from pidgate.events.definitions import LifecycleEvent
from pidgate.events.redaction import pseudonym
from pidgate.gateway.logs import guarded
from pidgate.gateway.present.present import Present
from pidgate.gateway.present.wait_words import Named, lifts, says
from pidgate.gateway.present.waits import WaitRow
from pidgate.gateway.proxy.waits import Why
from pidgate.quota.entities import shown
from pidgate.quota.settings import Quotas

JsonObject = dict[str, Any]

MOST_ROWS: Final = 50
"""Of one answer: some 15 KB."""
LONGEST_NAME: Final = 100
PATIENCE_S: Final = 5.0
"""An event is written within 0.2 s, and read at once."""
ANSWER_EVERY_S: Final = 1.0
KEPT_S: Final = 1.0
STALE_MS: Final = 10_000
"""A question that is older is of the past: somebody reads the topic's history."""
HASHED_PER_TURN: Final = 200
_OF_ROW: Final = (
    "library", "since_wall_ms", "until_wall_ms", "gives_up_wall_ms", "producer_id", "place", "attempts", "node_id"
)  # fmt: skip


class FleetAnswers:
    """`ask` for a request, `handle_event` for a question or an answer of another gateway."""

    def __init__(self, present: Present, redact: Iterable[str]) -> None:
        self._present = present
        self._redact = frozenset(redact)
        self._one_at_a_time = asyncio.Lock()
        self._asked_s = float("-inf")
        self._answered_s = float("-inf")
        self._last: JsonObject = {}
        self._answering: asyncio.Task[None] | None = None
        self._heard: dict[str, JsonObject] = {}
        """Answers to the present question, by run."""
        self._is_heard = asyncio.Event()

    # ---- asking ----------------------------------------------------------------------------------------

    async def ask(self) -> JsonObject:
        """Return what every gateway shows; one that does not answer within PATIENCE_S is named."""
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            if loop.time() - self._asked_s >= KEPT_S:
                self._last = await self._ask()
                self._asked_s = loop.time()
            return self._last

    async def _ask(self) -> JsonObject:
        present = self._present
        self._heard = {}
        own = await self._answer()
        members = {member.run: member for member in present.fleet.members()}
        if members:
            present.tell_fleet("asked", "")
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while members.keys() - self._heard.keys():
                    self._is_heard.clear()
                    await self._is_heard.wait()
        now = present.moment()
        gateways = [_gateway(present.gateway_id, own, own)]
        rows = list(self._rows(present.gateway_id, own))
        for run, member in sorted(members.items(), key=lambda item: item[1].gateway_id):
            answer = self._heard.get(run)
            row = _gateway(member.gateway_id, answer, own)
            row["heard_ms"] = now.now_ms - member.latest_ms
            gateways.append(row)
            if answer is not None:
                rows += self._rows(member.gateway_id, answer)
        rows.sort(
            key=lambda row: (
                row["gives_up_wall_ms"] is None,
                row["gives_up_wall_ms"] or 0,
                row["since_wall_ms"],
            )
        )
        return {
            "gateway": present.gateway_id,
            "wall_ms": now.wall_ms,
            "has_topic": present.has_topic,
            "gateways": gateways,
            "waits": {"rows": rows, "total": sum(row["waiting"] or 0 for row in gateways)},
            "limits": [],
        }

    def _rows(self, gateway_id: str, answer: JsonObject) -> Iterator[JsonObject]:
        """Yield the waits of an answer with their sentences: the quotas are those of this gateway."""
        present = self._present
        for one in answer["waits"]:
            user, why = present.names.user_of(one["user"]), Why(one["why"])
            number = -1 if one["producer_id"] is None else one["producer_id"]
            named = Named(
                user, one["client_id"], number, present.quotas.in_force.quotas, present.per_user_per_s
            )
            yield {
                **one,
                "gateway": gateway_id,
                "user": user,
                "name": shown(user) if user else "(not logged in)",
                "says": says(why, named),
                "lifts": lifts(why, named),
            }

    # ---- answering -------------------------------------------------------------------------------------

    def handle_event(self, event: LifecycleEvent, age_ms: int) -> None:
        """Handle a question or an answer of another gateway."""
        if age_ms > STALE_MS:
            return
        if event.phase == "answered":
            answer = _read(event.text)
            if answer is not None:
                self._heard[event.incarnation] = answer
                self._is_heard.set()
        elif self._answering is None or self._answering.done():
            task = guarded("answer to the fleet", self._publish_answer())
            self._answering = asyncio.get_running_loop().create_task(task)

    async def _publish_answer(self) -> None:
        """Answer all questions of the last second at once."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._answered_s + ANSWER_EVERY_S - loop.time())
        self._answered_s = loop.time()
        answer = await self._answer()
        self._present.tell_fleet("answered", json.dumps(answer, separators=(",", ":")))

    async def _answer(self) -> JsonObject:
        present = self._present
        now, quotas = present.moment(), present.quotas.in_force.quotas
        waits = await present.waits.rows(now)
        head = present.head(now, waits)
        return {
            "version": head["version"],
            "is_ready": head["is_ready"],
            "not_ready": head["not_ready"],
            "connections": head["connections"],
            "waiting": len(waits),
            "mode": str(quotas.mode),
            "changes": len(present.quotas.in_force.changes),
            "quotas": await _digest(quotas),
            "waits": [self._row(row) for row in waits[:MOST_ROWS]],
        }

    def _row(self, row: WaitRow) -> JsonObject:
        names = {
            "user": self._present.names.in_events(row.user),
            "client_id": self._redacted("client_id", row.client_id),
            "address": self._redacted("address", row.address),
        }
        return {**names, "why": str(row.why), **{name: getattr(row, name) for name in _OF_ROW}}

    def _redacted(self, field: str, text: str) -> str:
        return pseudonym(field, text) if field in self._redact else text[:LONGEST_NAME]


def _gateway(gateway_id: str, answer: JsonObject | None, own: JsonObject) -> JsonObject:
    """Return the row of a gateway. `answer` None: it did not answer."""
    names = ("version", "is_ready", "not_ready", "connections", "waiting", "mode", "changes")
    return {
        "gateway": gateway_id,
        "is_own": answer is own,
        "answered": answer is not None,
        "heard_ms": 0,
        "same_quotas": None if answer is None else answer["quotas"] == own["quotas"],
        **{name: None if answer is None else answer[name] for name in names},
    }


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "user": (str,),
    "client_id": (str,),
    "address": (str,),
    "library": (str,),
    "since_wall_ms": (int,),
    **dict.fromkeys(_OF_ROW[2:], (int, type(None))),
}
_OF_ANSWER: Final[dict[str, type]] = {
    "version": str,
    "is_ready": bool,
    "not_ready": str,
    "connections": int,
    "waiting": int,
    "mode": str,
    "changes": int,
    "quotas": str,
    "waits": list,
}


def _read(text: str) -> JsonObject | None:
    """Return the answer in an event. None: it is not of this version."""
    try:
        found = json.loads(text)
        if all(isinstance(found[name], kind) for name, kind in _OF_ANSWER.items()) and all(
            isinstance(row[name], kinds) for row in found["waits"] for name, kinds in _KINDS.items()
        ):
            found["waits"] = [row for row in found["waits"][:MOST_ROWS] if Why(row["why"])]
            return dict(found)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


async def _digest(quotas: Quotas) -> str:
    """Return a hash of the quotas in force, whatever the order of their users. In turns with the traffic."""
    found = 0
    shared = replace(quotas, help_url="", users={}, bytes=replace(quotas.bytes, rates={}))
    parts: list[object] = [shared, *quotas.users.items(), *quotas.bytes.rates.items()]
    for number, part in enumerate(parts, 1):
        found ^= int.from_bytes(blake2b(repr(part).encode(errors="replace"), digest_size=8).digest())
        if number % HASHED_PER_TURN == 0:
            await asyncio.sleep(0)
    return f"{found:016x}"
