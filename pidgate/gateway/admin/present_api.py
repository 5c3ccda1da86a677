"""The status page: its files, the present as JSON and as server-sent events, and its session.

GET  /                                the page
GET  /page/FILE                       its scripts and styles; they hold no data
GET  /v1/present?view=first|user|around[&user=][&find=][&sort=]   what holds now
GET  /v1/live?...                     the same again and again, as server-sent events
POST /v1/what-if                      {"user": "...", "rates": [...]}: the recorded day at other rates
GET  /v1/session                      what this browser may do
POST /v1/session                      {"token": "..."}: exchange the token for a cookie
DELETE /v1/session                    end the session
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pidgate.gateway.admin.access import Access, Refusal
from pidgate.gateway.admin.quotas_api import guarded, json_of, refused
from pidgate.gateway.admin.sessions import SESSION_MS, cookie_name
from pidgate.gateway.present.patterns import Patterns
from pidgate.gateway.present.present import Present, as_json
from pidgate.gateway.present.what_if import CannotTell, WhatIf
from pidgate.quota.entities import User

if TYPE_CHECKING:
    from aiohttp import web

PAGE: Final = Path(__file__).parent / "page"
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
MOST_STREAMS: Final = 20
DRAW_EVERY_S: Final = 1.0
PAUSE_FOR_DRAW: Final = 60.0
"""Times what a draw took: open pages take less than 2 % of a core."""
MOST_PAUSE_S: Final = 10.0
LONGEST_QUERY: Final = 1_000
LARGEST_TOKEN: Final = 8_192
MOST_RATES: Final = 6
LARGEST_RATE: Final = 1e9
VIEWS: Final = ("first", "user", "around")

Query = tuple[str, str, str, str]
"""View, user, find, sort."""


class Draws:
    """Draws of the present: one at a time, and one for all streams that ask the same."""

    def __init__(self, present: Present) -> None:
        self._present = present
        self._patterns = Patterns(present.recent, present.names)
        self._one_at_a_time = asyncio.Lock()
        self._in_turn = asyncio.Lock()
        """Held while a stream's draw waits and is made."""
        self._coming: dict[Query, asyncio.Task[bytes]] = {}
        self._not_before_s = 0.0

    async def now(self, query: Query) -> bytes:
        """Draw now."""
        view, user, find, sort = query
        async with self._one_at_a_time:
            if view == "user":
                found = await self._present.user(user)
                patterns = await self._patterns.of(user, found["head"]["wall_ms"])
                found["patterns"] = [as_json(one) for one in patterns]
            elif view == "around":
                found = await self._present.around(find=find, sort=sort)
            else:
                found = await self._present.first(find=find, sort=sort)
            return json.dumps(found, separators=(",", ":")).encode()

    async def next(self, query: Query) -> bytes:
        """Draw when the pause after the last draw is over."""
        coming = self._coming.get(query)
        if coming is None:
            coming = self._coming[query] = asyncio.get_running_loop().create_task(self._draw(query))
        return await asyncio.shield(coming)

    async def _draw(self, query: Query) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with self._in_turn:
                await asyncio.sleep(self._not_before_s - loop.time())
                began_s = loop.time()
                drawn = await self.now(query)
                spent_s = loop.time() - began_s
                self._not_before_s = loop.time() + min(MOST_PAUSE_S, PAUSE_FOR_DRAW * spent_s)
                return drawn
        finally:
            self._coming.pop(query, None)


class PresentApi:
    """Handlers of the page."""

    def __init__(self, present: Present, access: Access, what_if: WhatIf, *, is_secure: bool) -> None:
        """`is_secure`: the address uses TLS."""
        self._what_if = what_if
        self._access = access
        self._is_secure = is_secure
        self._draws = Draws(present)
        self._streams = 0
        self._closing = asyncio.Event()
        self._files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in KINDS}

    def add_to(self, app: web.Application) -> None:
        reading = self._access.check_read
        app.router.add_get("/", guarded(self._check_host, self.page))
        app.router.add_get("/page/{file}", guarded(self._check_host, self.file))
        app.router.add_get("/v1/present", guarded(reading, self.present))
        app.router.add_get("/v1/live", guarded(reading, self.live))
        app.router.add_post("/v1/what-if", guarded(self._check_question, self.what_if))
        app.router.add_get("/v1/session", guarded(self._check_host, self.session))
        app.router.add_post("/v1/session", guarded(self._access.check_body, self.begin_session))
        app.router.add_delete("/v1/session", guarded(self._access.check_body, self.end_session))
        app.on_shutdown.append(self._close)

    async def _close(self, _app: web.Application) -> None:
        self._closing.set()

    def _check_host(self, headers: Mapping[str, str]) -> Refusal | None:
        return self._access.check_host(headers.get("Host", ""))

    # ---- files -----------------------------------------------------------------------------------------

    async def page(self, _request: web.Request) -> web.Response:
        return self._send("index.html")

    async def file(self, request: web.Request) -> web.Response:
        """Respond with a file of the page, from memory."""
        name = request.match_info["file"]
        if name not in self._files:
            return refused(Refusal(HTTPStatus.NOT_FOUND, "the page has no such file"))
        return self._send(name)

    def _send(self, name: str) -> web.Response:
        from aiohttp import web

        headers = {
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        kind = KINDS[Path(name).suffix]
        return web.Response(body=self._files[name], content_type=kind, charset="utf-8", headers=headers)

    # ---- the present -----------------------------------------------------------------------------------

    async def present(self, request: web.Request) -> web.StreamResponse:
        """Respond with one draw."""
        from pidgate.gateway.admin.visits import send

        query = _query_of(request)
        if isinstance(query, Refusal):
            return refused(query)
        return await send(request, await self._draws.now(query), "application/json; charset=utf-8")

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Send draws until the client leaves, reads too slowly, or loses its access."""
        from pidgate.gateway.admin.visits import Stream

        query = _query_of(request)
        if isinstance(query, Refusal):
            return refused(query)
        if self._streams >= MOST_STREAMS:
            text = f"{MOST_STREAMS} pages are open at this gateway; close one of them"
            return refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text))
        self._streams += 1
        stream = Stream(request)
        try:
            with suppress(ConnectionError, TimeoutError):
                await stream.begin()
                while self._access.check_read(request.headers) is None and not self._closing.is_set():
                    await stream.send(await self._draws.next(query))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), DRAW_EVERY_S)
        finally:
            self._streams -= 1
            if request.transport is not None:
                request.transport.abort()  # a slow client would keep what it has not read
        return stream.response

    def _check_question(self, headers: Mapping[str, str]) -> Refusal | None:
        return self._access.check_read(headers) or self._access.check_body(headers)

    async def what_if(self, request: web.Request) -> web.Response:
        """Respond with what other rates would have refused of a user in the recorded day."""
        asked = _what_if_in(await request.content.read(LARGEST_TOKEN))
        if isinstance(asked, Refusal):
            return refused(asked)
        try:
            return json_of(await self._what_if.ask(*asked))
        except CannotTell as error:
            return refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)))

    # ---- the session -----------------------------------------------------------------------------------

    async def session(self, request: web.Request) -> web.Response:
        """Respond with what this browser may do, and why not more."""
        reading = self._access.check_read(request.headers)
        acting = self._access.check_acting(request.headers)
        return json_of(
            {
                "may_read": reading is None,
                "may_act": acting is None,
                "has_session": self._access.has_session(request.headers),
                "is_writable": self._access.is_writable,
                "why_not": "" if acting is None else acting.reason,
            }
        )

    async def begin_session(self, request: web.Request) -> web.Response:
        """Exchange the token for a cookie that scripts cannot read and other sites cannot send."""
        shown = _token_in(await request.content.read(LARGEST_TOKEN))
        begun = (
            Refusal(HTTPStatus.BAD_REQUEST, "send the token")
            if not shown
            else self._access.begin_session(shown)
        )
        if isinstance(begun, Refusal):
            return refused(begun)
        response = json_of({"may_read": True})
        response.set_cookie(
            cookie_name(self._access.port),
            begun,
            max_age=SESSION_MS // 1_000,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="Strict",
        )
        return response

    async def end_session(self, _request: web.Request) -> web.Response:
        response = json_of({"may_read": False})
        response.del_cookie(cookie_name(self._access.port), path="/", httponly=True, samesite="Strict")
        return response


def _query_of(request: web.Request) -> Query | Refusal:
    view = request.query.get("view", "first")
    user, find, sort = (request.query.get(name, "") for name in ("user", "find", "sort"))
    if view not in VIEWS:
        return Refusal(HTTPStatus.BAD_REQUEST, f"view is one of {', '.join(VIEWS)}")
    if view == "user" and not user:
        return Refusal(HTTPStatus.BAD_REQUEST, "user is missing, as in view=user&user=alice")
    if max(map(len, (user, find, sort))) > LONGEST_QUERY:
        return Refusal(HTTPStatus.BAD_REQUEST, f"more than {LONGEST_QUERY} characters")
    return view, user, find, sort


def _what_if_in(body: bytes) -> tuple[User, tuple[float, ...]] | Refusal:
    try:
        found = json.loads(body)
        user, rates = found["user"], tuple(float(rate) for rate in found["rates"])
    except (ValueError, KeyError, TypeError):
        return Refusal(HTTPStatus.BAD_REQUEST, 'send {"user": "alice", "rates": [50, 200]}')
    is_fit = isinstance(user, str) and 0 < len(user) <= LONGEST_QUERY and 0 < len(rates) <= MOST_RATES
    if not is_fit or not all(0 <= rate <= LARGEST_RATE for rate in rates):
        return Refusal(HTTPStatus.BAD_REQUEST, f"name a user, and up to {MOST_RATES} rates of at least 0")
    return user, rates


def _token_in(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
    except ValueError:
        return ""
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, str) else ""
