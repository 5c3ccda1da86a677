"""What others see while a gateway replays a user's day: its event loop goes on as before."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import RawClient, produce_code
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

MOST_LATE_S: Final = 0.1
"""By the event loop's own work: on a busy machine any process waits for a core."""
NEW_IDS: Final = 2_000
ANSWERED_WITHIN_S: Final = 120.0
"""A replay gets 10 s, which may be little on a busy machine: then it is asked for again."""


def stalls(gateway: GatewayProcess) -> float:
    """Return how often the event loop was late by more than MOST_LATE_S."""
    metrics, late = gateway.metrics(), "pidgate_event_loop_lateness_seconds"
    ticks = metrics.value(f"{late}_count", cause="busy")
    assert ticks > 0
    return ticks - metrics.value(f"{late}_bucket", cause="busy", le=str(MOST_LATE_S))


def what_if(gateway: GatewayProcess, *rates: float) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{gateway.admin_url}/v1/what-if",
        data=json.dumps({"user": "ANONYMOUS", "rates": rates}).encode(),
        headers={"Content-Type": "application/json"},
    )
    give_up_s = time.monotonic() + ANSWERED_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            told = error.read().decode()
            assert "the replay was stopped" in told, told
            assert time.monotonic() < give_up_s, told


def test_no_request_waits_while_a_day_is_replayed(cluster: Cluster) -> None:
    topic = create_topic(cluster.bootstrap_servers(), "what-if")

    def produce(producer_id: int) -> bytes:
        batch = record_batch(producer_id, 0, 0, records=ONE_RECORD)
        return framed(produce_request(9, [(topic, [(0, batch)])], client_id="storm"))

    with (
        GatewayProcess(
            cluster.bootstrap_servers(), quotas={"mode": "observe"}, ready_within_s=180
        ) as gateway,
        RawClient(gateway.bootstrap_servers) as storm,
        RawClient(gateway.bootstrap_servers) as other,
    ):
        for number in range(NEW_IDS):
            assert produce_code(storm.ask(produce(900_000 + number))) == 0
        steady = produce(900_000)  # the broker knows the batch already, and says so each time
        before = stalls(gateway)
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(what_if, gateway, 100, 1_000, 10_000)
            while not asked.done():
                assert produce_code(other.ask(steady)) == 0
                time.sleep(0.002)
        told = asked.result()
        assert stalls(gateway) == before
        assert told["new_ids"] == NEW_IDS
        assert [row["refused_ids"] > 0 for row in told["rows"]] == [True, True, False]
        assert told["not_enough"].startswith("Not enough record: it holds")
