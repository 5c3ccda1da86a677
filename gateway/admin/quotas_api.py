"""Quotas over HTTP, as JSON: what holds and who said so, changes, commands, and why a user is refused.

    GET  /v1/quotas[?user=alice]                        who may do how much, and where that was said
    GET  /v1/explain?user=alice[&producer_id=4711]      what is known of the user, and of the id
    POST /v1/quotas/changes                             {"changes": [...], "set_by": "..."}
    POST /v1/commands                                   {"deed": "refill", "user": "alice"}

Errors are {"error": "...", "problems": [...]} with the HTTP status that says whose fault it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pidgate.gateway.admin.access import Access, Refusal
from pidgate.gateway.admin.asked import CannotUnderstand, changes_in, command_in
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import Administration, InForce, NotAllowed
from pidgate.gateway.quotas.explain import Explanation, explanation
from pidgate.gateway.quotas.quota_origin import QuotaOrigins, rate_or_mode
from pidgate.quota.changes import Change, Setting
from pidgate.quota.entities import User
from pidgate.quota.settings import DEFAULT, ByteQuotas
from pidgate.quota.state import QuotaState

if TYPE_CHECKING:
    from aiohttp import web

_AT_ONCE: Final = 20

Told = dict[str, Any]


class QuotasApi:
    """One gateway's quotas, for whoever may ask.

    `state` and `now_ms`: what the quota's state is now, and its clock. `sticky_entries`: how many a user has, where
    this process owns the connections.
    """

    paths: Final = (
        "/v1/quotas",
        "/v1/explain?user=",
        "/v1/quotas/changes (POST)",
        "/v1/commands (POST)",
    )

    def __init__(
        self,
        settings: Settings,
        administration: Administration,
        state: Callable[[], QuotaState],
        now_ms: Callable[[], int],
        *,
        sticky_entries: Callable[[User], int] | None = None,
    ) -> None:
        self._settings = settings
        self._administration = administration
        self._state = state
        self._now_ms = now_ms
        self._sticky_entries = sticky_entries
        self._access = Access(settings.admin)

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/v1/quotas", self.quotas)
        app.router.add_get("/v1/explain", self.explain)
        app.router.add_post("/v1/quotas/changes", self.change)
        app.router.add_post("/v1/commands", self.command)

    def explanation(
        self, user: str, producer_id: int | None, said: QuotaOrigins | None = None
    ) -> Explanation:
        """What is known of a user, and of one of its ids."""
        return explanation(
            user,
            producer_id,
            state=self._state(),
            in_force=self._administration.in_force,
            now_ms=self._now_ms(),
            wall_ms=wall_ms(),
            sticky_entries=None if self._sticky_entries is None else self._sticky_entries(user),
            said=said,
        )

    # ---- asked -----------------------------------------------------------------------------------------

    async def quotas(self, request: web.Request) -> web.Response:
        """Everybody of whom something is said, or the one user that is asked for."""
        refusal = self._access.reading(request.headers)
        if refusal is not None:
            return _refused(refusal)
        in_force, now_wall_ms = self._administration.in_force, wall_ms()
        said = QuotaOrigins(in_force, now_wall_ms)
        asked_for = request.query.get("user")
        byte_rates = _by_user(in_force.quotas.bytes)
        users = said.entities() if asked_for is None else [asked_for]
        told = {
            "changes": await _encoded(change_as_json(change) for change in in_force.changes),
            "entries": await _encoded(
                self._entry(said, in_force, user, byte_rates.get(user or DEFAULT, [])) for user in users
            ),
        }
        lists = "".join(f', "{name}": [{", ".join(parts)}]' for name, parts in told.items())
        return _answer(json.dumps(self._told(in_force, said, now_wall_ms))[:-1] + lists + "}")

    async def explain(self, request: web.Request) -> web.Response:
        """Why a user, or one of its ids, is refused, or is not."""
        refusal = self._access.reading(request.headers)
        if refusal is not None:
            return _refused(refusal)
        user, producer_id = request.query.get("user", ""), request.query.get("producer_id")
        if not user:
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "which user? ask for /v1/explain?user=alice"))
        if producer_id is not None and not _is_producer_id(producer_id):
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "producer_id is a number, 0 or above"))
        told = self.explanation(user, None if producer_id is None else int(producer_id))
        return _json({"gateway": self._settings.gateway_id, **told.as_json()})

    async def change(self, request: web.Request) -> web.Response:
        """All of the posted changes are in force here when this answers, or none of them."""
        refusal = self._access.writing(request.headers)
        if refusal is not None:
            return _refused(refusal)
        try:
            changes = changes_in(await request.read(), through=self._settings.gateway_id, wall_ms=wall_ms())
            kept = await self._administration.change(changes)
        except CannotUnderstand as error:
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "not understood"), error.problems)
        except NotAllowed as error:
            return _refused(Refusal(HTTPStatus.CONFLICT, str(error)))
        return self._done(str(kept), changes=[change_as_json(change) for change in changes])

    async def command(self, request: web.Request) -> web.Response:
        """Done here when this answers, and told to the fleet where that can be had."""
        refusal = self._access.writing(request.headers)
        if refusal is not None:
            return _refused(refusal)
        try:
            command = command_in(await request.read(), through=self._settings.gateway_id, wall_ms=wall_ms())
            kept = await self._administration.command(command)
        except CannotUnderstand as error:
            return _refused(Refusal(HTTPStatus.BAD_REQUEST, "not understood"), error.problems)
        except NotAllowed as error:
            return _refused(Refusal(HTTPStatus.CONFLICT, str(error)))
        return self._done(str(kept))

    # ---- told ------------------------------------------------------------------------------------------

    def _told(self, in_force: InForce, said: QuotaOrigins, now_wall_ms: int) -> Told:
        settings = self._settings
        return {
            "gateway": settings.gateway_id,
            "cluster": settings.cluster.name,
            "wall_ms": now_wall_ms,
            "quota_version": in_force.version,
            "is_writable": self._access.is_writable,
            "topic": settings.quotas.runtime_changes.topic if settings.events.enabled else None,
            "state_dir": settings.state_dir,
            "window_ms": in_force.quotas.producer_ids.window_ms,
            "mode": said.own(Setting.MODE, None).as_json(),
            "cluster_producer_ids_rate": rate_or_mode(in_force.quotas.cluster_rate_milli),
        }

    def _entry(self, said: QuotaOrigins, in_force: InForce, user: str | None, byte_rates: list[Told]) -> Told:
        """One user, or the default user (None), of whom there is nothing live to tell."""
        rate = said.own(Setting.PRODUCER_IDS_RATE, user)
        provenance = in_force.provenance.get(user or "")
        entry: Told = {
            "user": user,
            "producer_ids_rate": rate.as_json(),
            "owner": provenance.owner if provenance else "",
            "note": provenance.note if provenance else "",
            "byte_rates": byte_rates,
        }
        if user is None:
            return entry
        told = self.explanation(user, None, said).as_json()
        for key in ("is_exempt", "tokens", "full_tokens", "next_token_in_ms", "waiting", "live_ids"):
            entry[key] = told[key]
        return {
            **entry,
            "mode": said.own(Setting.MODE, user).as_json(),
            "effective_rate": told["producer_ids_rate"],
            "effective_mode": told["mode"],
        }

    def _done(self, kept: str, **more: Any) -> web.Response:
        gateway, version = self._settings.gateway_id, self._administration.in_force.version
        return _json({"gateway": gateway, "kept": kept, "quota_version": version, **more})


def change_as_json(change: Change) -> Told:
    """A change as it is posted, and who made it."""
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


def _by_user(quotas: ByteQuotas) -> dict[str | None, list[Told]]:
    """What the file says of each user's bytes, alone (`client_id` null) and with client ids ("": those not named)."""
    found: dict[str | None, list[Told]] = {}
    for (user, client_id), rates in quotas.rates.items():
        found.setdefault(user, []).append(
            {
                "client_id": client_id,
                "producer_byte_rate": rates.producer_byte_rate,
                "consumer_byte_rate": rates.consumer_byte_rate,
            }
        )
    return found


async def _encoded(all_told: Iterable[Told]) -> list[str]:
    """As JSON, a few at a time: there may be thousands, and traffic goes on between them."""
    parts = []
    for number, told in enumerate(all_told):
        parts.append(json.dumps(told))
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


def _json(content: Told, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return _answer(json.dumps(content), status)


def _answer(text: str, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    from aiohttp import web

    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, status=status, content_type="application/json", headers=headers)
