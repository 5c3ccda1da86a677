"""The quota's one state, and what keeps it over restarts and in step with other gateways."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from gateway.recorder import Recorder
from gateway.settings import Settings
from quota.entities import User
from quota.producer_ids import ProducerIdQuota
from quota.state import QuotaState


class QuotaKeeper:
    """`open`, `start`, `stop`. `state` answers from the first moment on; `on_state` tells of its successor."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.state: QuotaState = ProducerIdQuota(settings.to_quotas(), self.random_seed, self._now_ms())
        self.on_state: Callable[[QuotaState], None] = lambda _state: None
        self.on_refused_elsewhere: Callable[[User, int, int], None] = lambda _user, _producer_id, _now_ms: (
            None
        )
        self.is_restored = True
        self.recorder: Recorder | None = None
        self.progress = ""

    @staticmethod
    def random_seed() -> int:
        return secrets.randbits(32)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def open(self) -> None: ...

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def publish(self, key: str, value: bytes) -> None:
        """An event for the topic."""

    def worker_lost(self, worker: int) -> None: ...

    applied_offsets: list[int] = []
