"""The admin address over HTTP: /livez, /readyz, metrics, the quotas (quotas_api.py) and the page (present_api.py).

Knows the gateway only as GatewayView. A thread answers while the event loop hangs (hang_watch.py). aiohttp is imported
after the listeners are up, because the import takes as long as all others together.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pidgate.gateway.admin.access import Access
from pidgate.gateway.admin.hang_watch import HangWatch
from pidgate.gateway.admin.http_log import HttpLog
from pidgate.gateway.config.listening import listening_on
from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.logs import Event, begun_anew, logger
from pidgate.gateway.tls.live import LiveContext, follow
from pidgate.units import Address

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler
    from prometheus_client.core import Metric

    from pidgate.gateway.admin.quotas_api import QuotasApi
    from pidgate.gateway.admin.visits import Visits
    from pidgate.gateway.metrics.registry import MetricsRegistry

SCRAPED: Final = ("/metrics", "/metrics/overview")
NAMED: Final = ("/", "/readyz", *SCRAPED)
"""Paths that check the Host header here. /livez has nothing to protect; the others check by themselves."""
PAUSE_FOR_WORK: Final = 9.0
"""Times what the last page took: scrapes take a tenth of the process at most."""
SAMPLES_PER_TURN: Final = 200
"""Up to 1 ms."""
MOST_PAUSE_S: Final = 1.0
TOKEN_KEPT_EVERY_S: Final = 3_600.0
BACKLOG: Final = 128
_CLOSE_TIMEOUT_S: Final = 1.0

log = logger()


class GatewayView(Protocol):
    """The part of the gateway that the admin site reads."""

    def is_ready(self) -> bool:
        """Return whether the gateway can serve clients: listeners are up and a broker answers."""
        ...

    def not_ready_reason(self) -> str:
        """Return the reason in one sentence; called only if not ready."""
        ...

    @property
    def registry(self) -> MetricsRegistry:
        """Return everything, with rows for users."""
        ...

    @property
    def overview_registry(self) -> MetricsRegistry:
        """Return the same with the sums of all users alone, and the users that have most."""
        ...

    async def ask_fleet(self) -> dict[str, Any]:
        """Return what all gateways of the fleet show now (present/fleet_answers.py)."""
        ...


class Routes(Protocol):
    """A part of the site with paths of its own."""

    def add_to(self, app: web.Application) -> None: ...


class AdminSite:
    """A running site. `address` has the actual port if port 0 was configured."""

    def __init__(
        self,
        runner: web.AppRunner,
        listening: socket.socket,
        visits: Visits,
        address: Address,
        access: Access,
        http_log: HttpLog,
        tls: LiveContext | None,
        hang_watch: HangWatch,
    ) -> None:
        self._runner = runner
        self._listening = listening
        self._visits = visits
        self._http_log = http_log
        self.address = address
        self._access = access
        self._hang_watch = hang_watch
        hang_watch.start()
        loop = asyncio.get_running_loop()
        self._background = [
            loop.create_task(begun_anew("admin token", self._keep_token)),
            loop.create_task(begun_anew("admin", partial(visits.accept, listening))),
            loop.create_task(begun_anew("hang watch", hang_watch.beat)),
        ]
        if tls is not None:
            self._background.append(loop.create_task(begun_anew("tls", partial(follow, [tls]))))

    async def close(self) -> None:
        """Stop listening; close open connections after a second."""
        self._hang_watch.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._listening.close()
        await self._runner.cleanup()
        self._visits.cut_off()
        self._http_log.remove()
        if self._access.local is not None:
            self._access.local.withdraw()

    async def _keep_token(self) -> None:
        """Rewrite the local token file periodically, because systems clean its directory."""
        while self._access.local is not None:
            await asyncio.sleep(TOKEN_KEPT_EVERY_S)
            self._access.local.publish(self.address.port)


async def start(
    bind: Address,
    gateway: GatewayView,
    quotas: QuotasApi | None = None,
    tls: LiveContext | None = None,
    page: Routes | None = None,
) -> AdminSite:
    """Serve on `bind`; without `quotas` no quota API, without `page` no page, without `tls` plain HTTP.

    Raises CannotListen.
    """
    from aiohttp import web

    from pidgate.gateway.admin.visits import Visits, close_after_answer

    access = Access(AdminSettings.model_validate({"bind": str(bind)})) if quotas is None else quotas.access

    @web.middleware
    async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = None
        if request.path in NAMED:
            refusal = access.check_host(request.headers.get("Host", ""))
        if refusal is None and request.path in SCRAPED:
            refusal = access.check_scrape(request.headers)
        return await handler(request) if refusal is None else _text(f"{refusal.reason}\n", refusal.status)

    app = web.Application(middlewares=[refuse_strangers])
    app.on_response_prepare.append(close_after_answer)
    handlers = Handlers(gateway)
    app.router.add_get("/livez", handlers.livez)
    app.router.add_get("/readyz", handlers.readyz)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/metrics/overview", handlers.overview)
    if page is not None:
        page.add_to(app)
    if quotas is not None:
        quotas.add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_TIMEOUT_S)
    http_log = HttpLog()
    http_log.install()
    await runner.setup()
    assert runner.server is not None
    host, port = bind
    try:
        with listening_on("admin.bind", bind):
            context = None if tls is None else tls.for_a_server_of_others()
            visits = Visits(runner.server, context)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
            listening.setblocking(False)
    except BaseException:
        await runner.cleanup()
        http_log.remove()
        raise
    address = Address(host, listening.getsockname()[1])
    access.port = address.port
    if access.local is not None:
        access.local.publish(address.port)
        if access.local.failure:
            log.error(Event.ADMIN_TOKEN_NOT_KEPT, path=str(access.local.path), reason=access.local.failure)
    hang_watch = HangWatch(listening, context)
    return AdminSite(runner, listening, visits, address, access, http_log, tls, hang_watch)


class MetricsPage:
    """A page for scrapers, rendered once for all that wait for it."""

    def __init__(self, registry: Callable[[], MetricsRegistry]) -> None:
        self._registry = registry
        self._rendering = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._not_before_s = 0.0

    async def next_page(self) -> bytes:
        """Return the page of values that are read from now on."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._render())
        return await asyncio.shield(self._next)

    async def _render(self) -> bytes:
        """Collect and format in turns with the traffic.

        Not in a thread: a busy thread gives the interpreter back only every 5 ms, and each answer of a broker would
        wait that long.
        """
        loop = asyncio.get_running_loop()
        async with self._rendering:
            await asyncio.sleep(self._not_before_s - loop.time())
            self._next = None  # later scrapers need later values
            began_s = loop.time()
            page, registry = [], self._registry()
            await registry.refresh()
            for family in registry.collect():
                for piece in _exposition(family):
                    page.append(piece)
                    await asyncio.sleep(0)
            spent_s = loop.time() - began_s
            self._not_before_s = loop.time() + min(MOST_PAUSE_S, PAUSE_FOR_WORK * spent_s)
            return b"".join(page)


class Handlers:
    """One handler per path."""

    def __init__(self, gateway: GatewayView) -> None:
        self._gateway = gateway
        self._page = MetricsPage(lambda: gateway.registry)
        self._overview = MetricsPage(lambda: gateway.overview_registry)

    async def livez(self, _request: web.Request) -> web.Response:
        """Respond 200: the event loop runs. While it hangs, HangWatch responds."""
        return _text("alive\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Respond 200, or 503 with the reason."""
        if self._gateway.is_ready():
            return _text("ready\n")
        return _text(f"not ready: {self._gateway.not_ready_reason()}\n", status=503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        return await _scraped(request, self._page)

    async def overview(self, request: web.Request) -> web.StreamResponse:
        return await _scraped(request, self._overview)


async def _scraped(request: web.Request, page: MetricsPage) -> web.StreamResponse:
    """Respond with Prometheus text."""
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

    from pidgate.gateway.admin.visits import send

    return await send(request, await page.next_page(), CONTENT_TYPE_LATEST)


def _text(text: str, status: int = 200) -> web.Response:
    from aiohttp import web

    return web.Response(text=text, status=status, headers={"Cache-Control": "no-store"})


def _exposition(family: Metric) -> Iterator[bytes]:
    """Yield the lines of a family, SAMPLES_PER_TURN at a time."""
    from prometheus_client.core import Metric
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    piece = Metric(family.name, family.documentation, family.type)

    class Taken(Collector):
        def collect(self) -> Iterable[Metric]:
            return (piece,)

    for first in range(0, max(1, len(family.samples)), SAMPLES_PER_TURN):
        piece.samples = family.samples[first : first + SAMPLES_PER_TURN]
        text = generate_latest(Taken())
        # Its help and its type stand once, before the first sample.
        yield text.split(b"\n", 2)[2] if first else text
