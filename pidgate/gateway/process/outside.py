"""The outside of a process: ports, chance, tasks and core, its own Kafka client, the admin site.

The composition roots take it as an argument. With the event loop (every connection and timer) and gateway/clock.py it
is all that a process knows of the machine but for its files, so that a simulation can be the machine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from pidgate.gateway.admin.site import GatewayView
from pidgate.gateway.cluster.resolving import LookUp, look_up
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.lane.lanes import extension
from pidgate.gateway.metrics.core_taken import CoreTaken
from pidgate.gateway.present.present import Present
from pidgate.gateway.process.port_lock import PortLocks
from pidgate.gateway.proxy.bounds import Bounds
from pidgate.gateway.proxy.listeners import Bind, listening_socket
from pidgate.gateway.tls.live import LiveContext
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.layered_filter import SECRET_BYTES

Close = Callable[[], Coroutine[Any, Any, None]]
OpenAdmin = Callable[[Settings, GatewayView, Present], Awaitable[Close]]
"""Opening of the admin site; its arguments are admin_site's."""


async def admin_site(settings: Settings, view: GatewayView, present: Present) -> Close:
    """Open the admin site over HTTP or HTTPS; return how to close it. Raises CannotListen, TlsUnusable."""
    # Imported only now: the HTTP library takes longer to load than everything that has to listen first.
    from pidgate.gateway.admin import site
    from pidgate.gateway.admin.present_api import PresentApi
    from pidgate.gateway.admin.quotas_api import QuotasApi
    from pidgate.gateway.present.what_if import WhatIf

    api = QuotasApi(
        settings,
        present.quotas,
        present.state,
        present.now_ms,
        recent=present.recent,
        present=present,
        ask_fleet=view.ask_fleet,
    )
    admin = settings.admin
    tls = None if admin.tls is None else LiveContext.of_server(admin.tls, ("admin", "tls"))
    page = PresentApi(present, api.access, WhatIf(present, settings), is_secure=tls is not None)
    return (await site.start(admin.bind, view, api, tls, page)).close


@dataclass(frozen=True, slots=True)
class Outside:
    """The machine's, unless another is given."""

    bind: Bind = listening_socket
    port_locks: Callable[[], PortLocks] = PortLocks
    random_bits: Callable[[int], int] = secrets.randbits
    """Called with a number of bits."""
    own_client: Callable[[Settings], OwnClient] = OwnClient.from_settings
    open_admin: OpenAdmin = admin_site
    without_core_s: Callable[[float], float] = field(default_factory=lambda: CoreTaken().since_last_s)
    """See CoreTaken.since_last_s."""
    tasks: Callable[[], int] = lambda: len(asyncio.all_tasks())
    """Number of tasks of the event loop that runs."""
    look_up: LookUp = look_up
    """The addresses of a broker's host name."""
    lane_extension: Callable[[], Any] = extension
    """The threads of lanes; None: there are none."""
    bounds: Bounds = field(default_factory=Bounds)

    def filter_secret(self) -> int:
        """Return the secret of a filter."""
        return self.random_bits(8 * SECRET_BYTES)

    def nonce(self) -> str:
        """Return what nobody can guess."""
        return f"{self.random_bits(192):048x}"

    def name(self) -> str:
        """Return a name that no other process has."""
        return f"{self.random_bits(48):012x}"
