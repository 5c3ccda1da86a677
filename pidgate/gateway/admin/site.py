"""The admin address: /livez, /readyz and /metrics over HTTP, and the quotas (quotas_api.py).

Knows the gateway only as GatewayView. aiohttp is imported after the listeners are up, because the import
takes as long as all others together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from pidgate.gateway.admin.access import Access
from pidgate.gateway.admin.http_log import HttpLog
from pidgate.gateway.config.listening import listening_on
from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.logs import Event, begun_anew, logger
from pidgate.gateway.tls.live import LiveContext, follow
from pidgate.units import Address

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from pidgate.gateway.admin.quotas_api import QuotasApi

PATHS: Final = ("/livez", "/readyz", "/metrics")
NAMED: Final = ("/", "/readyz", "/metrics")
"""Paths that check the Host header. /livez has nothing to protect."""
TOKEN_KEPT_EVERY_S: Final = 3_600.0
_CLOSE_TIMEOUT_S: Final = 1.0

log = logger()


class GatewayView(Protocol):
    """The part of the gateway that the admin site reads."""

    def is_ready(self) -> bool:
        """Return whether the gateway can serve clients: listeners are up and the cluster was reached once."""
        ...

    def not_ready_reason(self) -> str:
        """Return the reason in one sentence; called only if not ready."""
        ...

    @property
    def registry(self) -> CollectorRegistry: ...

    async def refresh_metrics(self) -> None:
        """Refresh the user and bucket metrics in `registry`, yielding to traffic."""


class AdminSite:
    """A running site. `address` has the actual port if port 0 was configured."""

    def __init__(
        self,
        runner: web.AppRunner,
        address: Address,
        access: Access,
        http_log: HttpLog,
        tls: LiveContext | None,
    ) -> None:
        self._runner = runner
        self._http_log = http_log
        self.address = address
        self._access = access
        loop = asyncio.get_running_loop()
        self._background = [loop.create_task(begun_anew("admin token", self._keep_token))]
        if tls is not None:
            self._background.append(loop.create_task(begun_anew("tls", partial(follow, [tls]))))

    async def close(self) -> None:
        """Stop listening; close open connections after a second."""
        for task in self._background:
            task.cancel()
        await self._runner.cleanup()
        self._http_log.remove()
        if self._access.local is not None:
            self._access.local.withdraw()

    async def _keep_token(self) -> None:
        """Rewrite the local token file periodically, because systems clean its directory."""
        while self._access.local is not None:
            await asyncio.sleep(TOKEN_KEPT_EVERY_S)
            self._access.local.publish(self.address.port)


async def start(
    bind: Address, gateway: GatewayView, quotas: QuotasApi | None = None, tls: LiveContext | None = None
) -> AdminSite:
    """Serve on `bind`; without `quotas` there is no quota API, without `tls` plain HTTP. Raises CannotListen."""
    from aiohttp import web

    access = Access(AdminSettings.model_validate({"bind": str(bind)})) if quotas is None else quotas.access

    @web.middleware
    async def own_names_only(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = access.check_host(request.headers.get("Host", "")) if request.path in NAMED else None
        return await handler(request) if refusal is None else _text(f"{refusal.reason}\n", refusal.status)

    app = web.Application(middlewares=[own_names_only])
    handlers = Handlers(gateway, (*PATHS, *(() if quotas is None else quotas.paths)))
    app.router.add_get("/livez", handlers.livez)
    app.router.add_get("/readyz", handlers.readyz)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/", handlers.index)
    if quotas is not None:
        quotas.add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_TIMEOUT_S)
    http_log = HttpLog()
    http_log.install()
    await runner.setup()
    host, port = bind
    try:
        with listening_on("admin.bind", bind):
            context = None if tls is None else tls.for_a_server_of_others()
            await web.TCPSite(runner, host, port, ssl_context=context).start()
    except BaseException:
        await runner.cleanup()
        http_log.remove()
        raise
    address = Address(host, runner.addresses[0][1])
    if access.local is not None:
        access.local.publish(address.port)
        if access.local.failure:
            log.error(Event.ADMIN_TOKEN_NOT_KEPT, path=str(access.local.path), reason=access.local.failure)
    return AdminSite(runner, address, access, http_log, tls)


class Handlers:
    """One handler per path."""

    def __init__(self, gateway: GatewayView, paths: Sequence[str]) -> None:
        self._gateway = gateway
        self._paths = paths
        self._scraping = asyncio.Lock()

    async def index(self, _request: web.Request) -> web.Response:
        return _text("pidgate admin\n" + "".join(f"{path}\n" for path in self._paths))

    async def livez(self, _request: web.Request) -> web.Response:
        """Respond 200 while the event loop runs."""
        return _text("alive\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Respond 200, or 503 with the reason."""
        if self._gateway.is_ready():
            return _text("ready\n")
        return _text(f"not ready: {self._gateway.not_ready_reason()}\n", status=503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Respond with Prometheus text: collected here, formatted in a thread."""
        from aiohttp import web
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        families = []
        # One scrape at a time, so that each refresh is shown once.
        async with self._scraping:
            await self._gateway.refresh_metrics()
            for family in self._gateway.registry.collect():
                families.append(family)
                # 1,000 users make 70 ms of metric families, so traffic is served between two of them.
                await asyncio.sleep(0)
        body = await asyncio.to_thread(_exposition, families)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _text(text: str, status: int = 200) -> web.Response:
    from aiohttp import web

    return web.Response(text=text, status=status, headers={"Cache-Control": "no-store"})


def _exposition(families: Iterable[Metric]) -> bytes:
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    class Taken(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    return generate_latest(Taken())
