"""Quotas over HTTP as JSON: values in force and their authors, changes, commands, and explained refusals.

    GET  /v1/quotas[?user=alice]                        quotas per user and their origin
    GET  /v1/explain?user=alice[&producer_id=4711]      state of a user and of an id
    GET  /v1/events[?since_ms=3600000]                  newest events of this gateway, from its memory
    POST /v1/quotas/changes                             {"changes": [...], "set_by": "..."}
    POST /v1/commands                                   {"deed": "refill", "user": "alice"}

Errors are {"error": "...", "problems": [...]} with an HTTP status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pidgate.gateway.admin.access import Access, Refusal
from pidgate.gateway.admin.bodies import BodyInvalid, changes_in, command_in
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import InForce, NotAllowed
from pidgate.gateway.quotas.explain import (
    Moment,
    QuotaOrigin,
    QuotaOrigins,
    explanation,
    not_refused,
    rate_or_mode,
)
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.state.recent_events import RecentEvents
from pidgate.quota.byte_quota import throttles_bytes
from pidgate.quota.changes import BYTE_RATES, RATES, Change, Setting
from pidgate.quota.entities import User, is_unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import DEFAULT, ByteQuotas

if TYPE_CHECKING:
    from aiohttp import web

_AT_ONCE: Final = 20
_NAMED_USERS: Final = 3
TOKENS: Final = ("tokens", "full_tokens", "transactional_tokens", "full_transactional_tokens")
"""Balances of a user and their maxima."""

JsonObject = dict[str, Any]


class QuotasApi:
    """Handlers of the quota API.

    `state` is the quota state, `now_ms` its clock, `sticky_entries` the number of a user's
    entries if this process has the connections.
    """

    paths: Final = (
        "/v1/quotas",
        "/v1/explain?user=",
        "/v1/events",
        "/v1/quotas/changes (POST)",
        "/v1/commands (POST)",
    )

    def __init__(
        self,
        settings: Settings,
        administration: QuotaStore,
        state: ProducerIdQuota,
        now_ms: Callable[[], int],
        *,
        recent: RecentEvents,
        sticky_entries: Callable[[User], int] | None = None,
    ) -> None:
        self._settings = settings
        self._administration = administration
        self._state = state
        self._now_ms = now_ms
        self._recent = recent
        self._sticky_entries = sticky_entries
        self.access = Access(settings.admin)
        self._listing = asyncio.Lock()
        """Held while a list is made: one at a time, because a list of 20,000 users has some 10 MB."""

    def add_to(self, app: web.Application) -> None:
        reading, writing = self.access.check_read, self.access.check_write
        app.router.add_get("/v1/quotas", _guarded(reading, self.quotas))
        app.router.add_get("/v1/explain", _guarded(reading, self.explain))
        app.router.add_get("/v1/events", _guarded(reading, self.events))
        app.router.add_post("/v1/quotas/changes", _guarded(writing, self.change))
        app.router.add_post("/v1/commands", _guarded(writing, self.command))

    def _explanation(
        self, user: str, producer_id: int | None, origins: QuotaOrigins | None = None
    ) -> JsonObject:
        return explanation(
            user,
            producer_id,
            state=self._state,
            in_force=self._administration.in_force,
            moment=Moment(self._now_ms(), wall_ms()),
            sticky_entries=None if self._sticky_entries is None else self._sticky_entries(user),
            origins=origins,
        )

    async def quotas(self, request: web.Request) -> web.StreamResponse:
        """Respond with every user that has a setting, or with the user in the query."""
        from pidgate.gateway.admin.visits import send

        async with self._listing:
            body = await self._list(request.query.get("user"))
        return await send(request, body.encode(), "application/json; charset=utf-8")

    async def _list(self, wanted: str | None) -> str:
        in_force, now_wall_ms = self._administration.in_force, wall_ms()
        origins = QuotaOrigins(in_force, now_wall_ms)
        byte_rates = _by_user(in_force.quotas.bytes)
        users = origins.entities() if wanted is None else [wanted]
        lists = {
            "changes": await _encoded(change_as_json(change) for change in in_force.changes),
            "entries": await _encoded(
                self._entry(origins, in_force, user, byte_rates.get(user or DEFAULT, []), now_wall_ms)
                for user in users
            ),
        }
        texts = "".join(f', "{name}": [{", ".join(parts)}]' for name, parts in lists.items())
        head = self._head(in_force, origins, now_wall_ms)
        if wanted:
            head["unseen"] = await self._unseen(wanted)
        return json.dumps(head)[:-1] + texts + "}"

    async def _unseen(self, user: str) -> JsonObject | None:
        """Return the known name nearest to that of a user without any state here; None for a known user."""
        known = self._state.users()
        if user in known:
            return None
        names = [name for name in known if not is_unidentified(name)]
        nearest = await asyncio.to_thread(get_close_matches, user, names, 1)
        return {
            "nearest": nearest[0] if nearest else None,
            "known": names[:_NAMED_USERS],
            "count": len(known),
        }

    async def explain(self, request: web.Request) -> web.Response:
        """Respond with the reason a user or one of its ids is refused or admitted."""
        user, producer_id = request.query.get("user", ""), request.query.get("producer_id")
        if not user:
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "user is missing, as in /v1/explain?user=alice"))
        if producer_id is not None and not _is_producer_id(producer_id):
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "producer_id is a number, 0 or above"))
        found = self._explanation(user, None if producer_id is None else int(producer_id))
        unseen = await self._unseen(user)
        return _json({"gateway": self._settings.gateway_id, "unseen": unseen, **found})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Respond with the newest events in memory, each with the time at which it was made."""
        from pidgate.gateway.admin.visits import send

        since_ms, now_wall_ms = request.query.get("since_ms", "3600000"), wall_ms()
        if not _is_producer_id(since_ms):
            return _refused(
                Refusal(HTTPStatus.BAD_REQUEST, "since_ms is a number of milliseconds, 0 or above")
            )
        head = {
            "gateway": self._settings.gateway_id,
            "wall_ms": now_wall_ms,
            "whole_from_wall_ms": self._recent.whole_from_wall_ms,
        }
        async with self._listing:
            parts = [b"[%d, %b]" % event for event in self._recent.since(now_wall_ms - int(since_ms))]
            body = json.dumps(head)[:-1].encode() + b', "events": [' + b", ".join(parts) + b"]}"
            return await send(request, body, "application/json; charset=utf-8")

    async def change(self, request: web.Request) -> web.Response:
        """Apply all posted changes or none."""
        changes = changes_in(await request.read(), through=self._settings.gateway_id, wall_ms=wall_ms())
        kept = await self._administration.change(changes)
        return self._done(str(kept), changes=[change_as_json(change) for change in changes])

    async def command(self, request: web.Request) -> web.Response:
        """Execute the posted command, and publish it to the fleet if possible."""
        command = command_in(await request.read(), through=self._settings.gateway_id, wall_ms=wall_ms())
        kept = await self._administration.command(command)
        return self._done(str(kept))

    def _head(self, in_force: InForce, origins: QuotaOrigins, now_wall_ms: int) -> JsonObject:
        settings = self._settings
        return {
            "gateway": settings.gateway_id,
            "cluster": settings.cluster.name,
            "wall_ms": now_wall_ms,
            "quota_version": in_force.version,
            "is_writable": self.access.is_writable,
            "topic": settings.events.quotas_topic if settings.events.enabled else None,
            "state_dir": settings.state_dir,
            "window_ms": in_force.quotas.producer_ids.window_ms,
            "mode": origins.own(Setting.MODE, None).as_json(),
            "grace_until_wall_ms": self._grace_until_wall_ms(now_wall_ms),
            "keeps_byte_rates": in_force.quotas.bytes.at_gateway,
            "cluster_producer_ids_rate": rate_or_mode(in_force.quotas.cluster_rate_milli),
        }

    def _grace_until_wall_ms(self, now_wall_ms: int) -> int | None:
        """Return when a cold start's grace ends; None without one."""
        until_ms, now_ms = self._state.table.grace.until_ms, self._now_ms()
        return Moment(now_ms, now_wall_ms).on_the_wall(until_ms) if until_ms > now_ms else None

    def _entry(
        self,
        origins: QuotaOrigins,
        in_force: InForce,
        user: str | None,
        byte_rates: list[JsonObject],
        now_wall_ms: int,
    ) -> JsonObject:
        """Return the quotas of a user, or of the default user (None), which has no live state."""
        provenance = in_force.provenance.get(user or "")
        entry: JsonObject = {
            "user": user,
            **{str(rate): origins.own(rate, user).as_json() for rate in RATES},
            **_if_said((rate, origins.own(rate, user)) for rate in BYTE_RATES),
            "owner": provenance.owner if provenance else "",
            "note": provenance.note if provenance else "",
            "byte_rates": byte_rates,
        }
        if user is None:
            moment = Moment(self._now_ms(), now_wall_ms)
            entry["throttles_bytes"] = throttles_bytes(in_force.quotas, DEFAULT)
            entry["effective_mode"] = origins.effective_mode(None).as_json()
            entry["not_refused"] = not_refused(None, state=self._state, origins=origins, moment=moment)
            return entry
        live = self._explanation(user, None, origins)
        for key in (
            "is_exempt",
            "not_refused",
            "client_ids",
            "next_token_in_ms",
            "waiting",
            "live_ids",
            *TOKENS,
        ):
            entry[key] = live[key]
        return {
            **entry,
            "mode": origins.own(Setting.MODE, user).as_json(),
            "effective_rate": live["producer_ids_rate"],
            "effective_transactional_ids_rate": live["transactional_ids_rate"],
            "effective_mode": live["mode"],
            "throttles_bytes": throttles_bytes(in_force.quotas, user),
        }

    def _done(self, kept: str, **more: Any) -> web.Response:
        gateway, version = self._settings.gateway_id, self._administration.in_force.version
        return _json({"gateway": gateway, "kept": kept, "quota_version": version, **more})


Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


def _guarded(check: Callable[[Mapping[str, str]], Refusal | None], handler: Handler) -> Handler:
    """Return a handler that checks access first and returns refusals as JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if (refusal := check(request.headers)) is not None:
            return _refused(refusal)
        try:
            return await handler(request)
        except BodyInvalid as error:
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "not understood"), error.problems)
        except NotAllowed as error:
            return _refused(Refusal(HTTPStatus.CONFLICT, str(error)))

    return answer


def change_as_json(change: Change) -> JsonObject:
    """Return a change in its posted form, with its author."""
    return {
        "setting": str(change.target.setting),
        "user": change.target.user,
        "temporary": change.target.temporary,
        "action": str(change.action),
        "value": rate_or_mode(change.value),
        "until_wall_ms": change.until_wall_ms,
        "set_by": change.set_by,
        "set_wall_ms": change.set_wall_ms,
        "set_through": change.set_through,
        "note": change.note,
    }


def _if_said(origins: Iterable[tuple[Setting, QuotaOrigin]]) -> JsonObject:
    """Return those that are set, or that the file sets."""
    return {
        str(setting): one.as_json()
        for setting, one in origins
        if one.value is not None or one.in_file is not None
    }


def _by_user(quotas: ByteQuotas) -> dict[str | None, list[JsonObject]]:
    """Return the file's byte rates by user.

    `client_id` is null for a user's own rate and "" for the default of its client ids.
    """
    found: dict[str | None, list[JsonObject]] = {}
    for (user, client_id), rates in quotas.rates.items():
        found.setdefault(user, []).append(
            {
                "client_id": client_id,
                "producer_byte_rate": rates.producer_byte_rate,
                "consumer_byte_rate": rates.consumer_byte_rate,
            }
        )
    return found


async def _encoded(entries: Iterable[JsonObject]) -> list[str]:
    """Encode to JSON, yielding to the event loop because there may be thousands of entries."""
    parts = []
    for number, entry in enumerate(entries):
        parts.append(json.dumps(entry))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return parts


def _is_producer_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63


def _refused(refusal: Refusal, problems: list[str] | None = None) -> web.Response:
    response = _json({"error": refusal.reason, "problems": problems or []}, refusal.status)
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(content: JsonObject, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    from aiohttp import web

    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        text=json.dumps(content), status=status, content_type="application/json", headers=headers
    )
