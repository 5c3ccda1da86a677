"""A gateway's quotas behind a real admin site: a QuotaStore without a topic, a quota's state, no traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from pidgate.gateway.admin import site
from pidgate.gateway.admin.quotas_api import QuotasApi
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config import loading
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.metrics.registry import MetricsRegistry
from pidgate.gateway.quotas.administration import InForce
from pidgate.gateway.quotas.store import QuotaStore
from pidgate.gateway.state.recent_events import RecentEvents
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.changes import Command
from pidgate.quota.decisions import Forward, Refuse
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.units import Address
from tests.support.questions import decide_name, question

FILE = """
gateway_id: gw-0
cluster: {bootstrap_servers: [127.0.0.1:1]}
events: {enabled: false}
admin: {bind: 127.0.0.1:9290, writable: true}
quotas:
  mode: enforce
  default: {producer_ids_rate: 10}
  users:
    alice: {producer_ids_rate: 2, owner: team-a}
    bob: {mode: observe}
"""


def settings_of(text: str = FILE) -> Settings:
    return loading.parse(text)


class Gateway:
    """What the site asks, and what stands in for traffic: `ask` brings a producer id."""

    def __init__(self, settings: Settings) -> None:
        self.now_ms = 1_000_000
        self.registry = self.overview_registry = MetricsRegistry()
        self.book = QuotaStore(settings, self, OwnClient.from_settings(settings), token_hex(6), wall_ms)
        self.quota = ProducerIdQuota(settings.to_quotas(), lambda: 7, self.now_ms)
        self.recent = RecentEvents(wall_ms())
        self.api = QuotasApi(settings, self.book, self.quota, lambda: self.now_ms, recent=self.recent)

    def quotas_changed(self, in_force: InForce) -> None:
        self.quota.set_quotas(in_force.quotas, self.now_ms)

    def command_given(self, command: Command) -> None:
        self.quota.apply(command, self.now_ms)

    def topic_id_learnt(self, topic_id: bytes) -> None: ...

    def is_ready(self) -> bool:
        return True

    def not_ready_reason(self) -> str:
        return ""

    async def ask_fleet(self) -> dict[str, Any]:
        return {}

    def ask(self, producer_id: int, *, user: str = "alice", came_back: bool = False) -> Forward | Refuse:
        client, decisions = question(user, producer_id, came_back=came_back, address="10.0.0.7")
        return self.quota.decide(client, decisions, self.now_ms)

    def ask_name(self, number: int) -> Forward | Refuse:
        """Ask about a transactional id of alice's, by its hash."""
        return decide_name(self.quota, "alice", number, self.now_ms)


def served(use: Callable[[str, Gateway], Any], text: str = FILE) -> None:
    """Serve, and call `use(host:port, gateway)` in another thread; it must leave the gateway alone while it asks."""

    async def serve() -> None:
        gateway = Gateway(settings_of(text))
        gateway.book.open()
        running = await site.start(Address("127.0.0.1", 0), gateway, gateway.api)
        gateway.book.start()
        try:
            await asyncio.to_thread(use, str(running.address), gateway)
        finally:
            await gateway.book.stop()
            await running.close()

    asyncio.run(serve())
