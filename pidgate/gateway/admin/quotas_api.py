"""Quotas over HTTP as JSON: values in force and their authors, changes, commands, and explained refusals.

    GET  /v1/quotas[?user=alice]                        quotas per user and their origin
    GET  /v1/explain                                    who waits now and why, and the limits
    GET  /v1/explain?user=alice[&producer_id=4711]      state of a user and of an id
    GET  /v1/events[?since_ms=3600000]                  newest events of this gateway, from its memory
    POST /v1/quotas/changes                             {"changes": [...], "set_by": "...", "only_check": true}
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
from pidgate.gateway.present.acting import change_as_json, command_of, order_of, says, undo_of
from pidgate.gateway.present.explaining import Moment, effect, explanation, not_refused
from pidgate.gateway.present.present import Present
from pidgate.gateway.quotas.administration import InForce, Kept, NotAllowed
from pidgate.gateway.quotas.origins import QuotaOrigin, QuotaOrigins, rate_or_mode
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.state.recent_events import RecentEvents
from pidgate.quota.byte_quota import throttles_bytes
from pidgate.quota.changes import BYTE_RATES, RATES, Setting
from pidgate.quota.entities import is_unidentified
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import DEFAULT, ByteQuotas

if TYPE_CHECKING:
    from aiohttp import web

_AT_ONCE: Final = 20
_NAMED_USERS: Final = 3
TOKENS: Final = tuple(
    f"{full}{of}tokens" for of in ("", "transactional_", "states_") for full in ("", "full_")
)
"""Balances of a user and their maxima."""

JsonObject = dict[str, Any]


class QuotasApi:
    """Handlers of the quota API.

    `state` is the quota state, `now_ms` its clock. `present` None: this process has no connections.
    """

    def __init__(
        self,
        settings: Settings,
        administration: QuotaStore,
        state: ProducerIdQuota,
        now_ms: Callable[[], int],
        *,
        recent: RecentEvents,
        present: Present | None = None,
        ask_fleet: Callable[[], Awaitable[JsonObject]] | None = None,
    ) -> None:
        self._settings = settings
        self._administration = administration
        self._state = state
        self._now_ms = now_ms
        self._recent = recent
        self._present = present
        self._ask_fleet = ask_fleet
        self.access = Access(settings.admin)
        self._listing = asyncio.Lock()
        """Held while a list is made: one at a time, because a list of 20,000 users has some 10 MB."""

    def add_to(self, app: web.Application) -> None:
        reading, writing = self.access.check_read, self.access.check_write
        app.router.add_get("/v1/quotas", guarded(reading, self.quotas))
        app.router.add_get("/v1/explain", guarded(reading, self.explain))
        app.router.add_get("/v1/fleet", guarded(reading, self.fleet))
        app.router.add_get("/v1/events", guarded(reading, self.events))
        app.router.add_post("/v1/quotas/changes", guarded(writing, self.change))
        app.router.add_post("/v1/commands", guarded(writing, self.command))

    def _explanation(
        self, user: str, producer_id: int | None, origins: QuotaOrigins | None = None
    ) -> JsonObject:
        return explanation(
            user,
            producer_id,
            state=self._state,
            in_force=self._administration.in_force,
            moment=Moment(self._now_ms(), wall_ms()),
            sticky_entries=None if self._present is None else self._present.sticky_entries(user),
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
        """Respond with the reason a user or one of its ids is refused or admitted; without a user, who waits now."""
        user, producer_id = request.query.get("user", ""), request.query.get("producer_id")
        if not user:
            return await self._waiting()
        if producer_id is not None and not _is_producer_id(producer_id):
            return refused(Refusal(HTTPStatus.BAD_REQUEST, "producer_id is a number, 0 or above"))
        found = self._explanation(user, None if producer_id is None else int(producer_id))
        unseen = await self._unseen(user)
        return json_of({"gateway": self._settings.gateway_id, "unseen": unseen, **found})

    async def _waiting(self) -> web.Response:
        if self._present is None:
            return refused(Refusal(HTTPStatus.BAD_REQUEST, "user is missing, as in /v1/explain?user=alice"))
        async with self._listing:
            return json_of(await self._present.waiting())

    async def fleet(self, _request: web.Request) -> web.Response:
        """Respond with the gateways of the fleet and who waits at each, as each of them answers over the topic."""
        if self._ask_fleet is None:
            return refused(Refusal(HTTPStatus.NOT_FOUND, "this process has no fleet"))
        return json_of(await self._ask_fleet())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Respond with the newest events in memory, each with the time at which it was made."""
        from pidgate.gateway.admin.visits import send

        since_ms, now_wall_ms = request.query.get("since_ms", "3600000"), wall_ms()
        if not _is_producer_id(since_ms):
            return refused(
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
        """Apply all posted changes or none, or only say what they would do."""
        through, now_wall_ms, before = self._settings.gateway_id, wall_ms(), self._administration.in_force
        changes, only_check = changes_in(
            await request.read(), through=through, wall_ms=now_wall_ms, by=self._author(request)
        )
        after = self._administration.preview(changes)
        kept = None if only_check else await self._administration.change(changes)
        moment = Moment(self._now_ms(), now_wall_ms)
        effects = effect(changes[0].target.user, state=self._state, in_force=after, moment=moment)
        return self._done(
            kept,
            changes=[change_as_json(change) for change in changes],
            command=command_of(changes, before),
            says=says(changes, effects, after.quotas.producer_ids.window_ms),
            undo={"changes": undo_of(changes, before, now_wall_ms)},
        )

    async def command(self, request: web.Request) -> web.Response:
        """Execute the posted command, and publish it to the fleet if possible; or only say what it would do."""
        through, by = self._settings.gateway_id, self._author(request)
        command, only_check = command_in(await request.read(), through=through, wall_ms=wall_ms(), by=by)
        kept = None if only_check else await self._administration.command(command)
        typed, text = order_of(command)
        return self._done(kept, command=typed, says=[text], undo=None)

    def _author(self, request: web.Request) -> str:
        """Return the author of changes made on the status page; empty: the body names it."""
        return f"page:{request.remote}" if self.access.has_session(request.headers) else ""

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
            entry["not_refused"] = not_refused(
                None, state=self._state, quotas=in_force.quotas, origins=origins, moment=moment
            )
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
            **{f"effective_{rate}": live[rate] for rate in RATES[1:]},
            "effective_mode": live["mode"],
            "throttles_bytes": throttles_bytes(in_force.quotas, user),
        }

    def _done(self, kept: Kept | None, **more: Any) -> web.Response:
        """Respond with an action that is done; `kept` None: it was only checked. `gateways`: on how many it acts."""
        gateway, version = self._settings.gateway_id, self._administration.in_force.version
        gateways = 1 if self._present is None or kept not in (None, Kept.TOPIC) else self._present.acts_on
        return json_of(
            {"gateway": gateway, "kept": kept, "quota_version": version, "gateways": gateways, **more}
        )


Respond = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


def guarded(check: Callable[[Mapping[str, str]], Refusal | None], handler: Respond) -> Respond:
    """Return a handler that checks access first and returns refusals as JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if (refusal := check(request.headers)) is not None:
            return refused(refusal)
        try:
            return await handler(request)
        except BodyInvalid as error:
            return refused(Refusal(HTTPStatus.BAD_REQUEST, "not understood"), error.problems)
        except NotAllowed as error:
            return refused(Refusal(HTTPStatus.CONFLICT, str(error)))

    return answer


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


def refused(refusal: Refusal, problems: list[str] | None = None) -> web.Response:
    response = json_of({"error": refusal.reason, "problems": problems or []}, refusal.status)
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def json_of(content: JsonObject, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    from aiohttp import web

    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        text=json.dumps(content), status=status, content_type="application/json", headers=headers
    )
