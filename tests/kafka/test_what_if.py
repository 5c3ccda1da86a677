"""What others see while a gateway replays a user's day: their requests take as long as before."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import Any, Final

import pytest

from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import RawClient, produce_code
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

REQUESTS: Final = 400
MOST_MORE_S: Final = 0.1
"""Of the slowest in a hundred: a process that starts takes a core of two for a moment."""
NEW_IDS: Final = 2_000


def p99_s(client: RawClient, frame: bytes) -> float:
    """Send requests one after another; return how long the slowest in a hundred took."""
    took_s = []
    for _ in range(REQUESTS):
        began_s = time.monotonic()
        client.ask(frame)
        took_s.append(time.monotonic() - began_s)
        time.sleep(0.002)
    return sorted(took_s)[REQUESTS * 99 // 100]


def what_if(gateway: GatewayProcess, *rates: float) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{gateway.admin_url}/v1/what-if",
        data=json.dumps({"user": "ANONYMOUS", "rates": rates}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_others_wait_no_longer_while_a_day_is_replayed(cluster: Cluster) -> None:
    topic = create_topic(cluster.bootstrap_servers(), "what-if")

    def produce(producer_id: int) -> bytes:
        batch = record_batch(producer_id, 0, 0, records=ONE_RECORD)
        return framed(produce_request(9, [(topic, [(0, batch)])], client_id="storm"))

    with (
        GatewayProcess(cluster.bootstrap_servers(), quotas={"mode": "observe"}) as gateway,
        RawClient(gateway.bootstrap_servers) as storm,
        RawClient(gateway.bootstrap_servers) as other,
    ):
        for number in range(NEW_IDS):
            assert produce_code(storm.ask(produce(900_000 + number))) == 0
        steady = produce(900_000)  # the broker knows the batch already, and says so each time
        before_s = p99_s(other, steady)
        told: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: told.append(what_if(gateway, 100, 1_000, 10_000)))
        asking.start()
        meanwhile_s = p99_s(other, steady)
        asking.join()
        print(f"p99 {before_s * 1e3:.1f} ms before, {meanwhile_s * 1e3:.1f} ms meanwhile")
        assert meanwhile_s - before_s < MOST_MORE_S
        assert told[0]["new_ids"] == NEW_IDS
        assert [row["refused_ids"] > 0 for row in told[0]["rows"]] == [True, True, False]
        assert told[0]["not_enough"].startswith("Not enough record: it holds")
