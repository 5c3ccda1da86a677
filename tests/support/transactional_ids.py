"""Transactional ids before a live gateway, each by one InitProducerId."""

from __future__ import annotations

from typing import Final

from tests.support.raw import RawClient
from tools.sandbox.gateway import GatewayProcess

INIT_PRODUCER_ID: Final = 22


def is_refused(gateway: GatewayProcess, transactional_id: str) -> bool:
    """Return whether the gateway refuses an InitProducerId: it names a throttle, for which the broker has no reason."""
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    with RawClient(gateway.bootstrap_servers) as client:
        answer = client.call(INIT_PRODUCER_ID, 4, {**asked, "producer_id": -1, "producer_epoch": -1})
    return bool(answer["throttle_time_ms"])
