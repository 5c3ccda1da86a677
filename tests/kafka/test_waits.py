"""Who waits now: eleven clients, each throttled for a reason of its own, on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pidgate.gateway.clock import wall_ms
from tests.support.command_line import typed
from tests.support.waiting_clients import DEBT_S, QUOTAS, THROTTLE_S, WITHIN_MS, WaitingClients
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def scene(sasl_cluster: Cluster) -> Iterator[WaitingClients]:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    settings = {"limits": {"connections_rate_per_user": 1}}
    with ExitStack() as stack:
        gateway = GatewayProcess(servers, quotas=QUOTAS, settings=settings)
        gateway.config["admin"]["writable"] = True
        yield WaitingClients(sasl_cluster, stack.enter_context(gateway), stack, "waits")


def test_each_of_eleven_waits_is_named_within_two_seconds_and_ends_when_it_is_lifted(
    scene: WaitingClients,
) -> None:
    expected = {
        ("alice", "first", "user_rate"): None,
        ("alice", "later", "order"): scene.out_of_order,
        ("alice", "part", "client_id_rate"): lambda: scene.refused("alice", "part"),
        ("alice", "starts", "new_producer"): lambda: scene.asks_for_an_id("starts", None),
        ("alice", "named", "transactional_ids"): lambda: scene.asks_for_an_id("named", *"abc"),
        ("bob", "blocked", "blocked"): lambda: scene.refused("bob", "blocked"),
        ("admin", "all", "cluster_rate"): lambda: scene.refused("admin", "all"),
        ("alice", "big", "produced_bytes"): scene.in_debt,
        ("alice", "big", "produced_bytes, in line"): scene.behind_the_debt,
        ("admin", "many-11", "connection_rate"): scene.connects_too_often,
        ("alice", "reads", "fetched_bytes"): scene.fetches,
    }
    began: dict[tuple[str, str, str], tuple[int, int]] = {}
    for kind, begin in expected.items():
        before = wall_ms()
        if begin is not None:
            begin()
        began[kind] = before, wall_ms()
    began["alice", "first", "user_rate"] = began["alice", "later", "order"]
    asked = wall_ms()
    told = scene.told()
    assert wall_ms() - asked < WITHIN_MS
    in_line = ", in line"
    rows = {
        (row["user"], row["client_id"], row["why"] + (in_line if row["place"] == 0 else "")): row
        for row in told["waits"]["rows"]
    }
    for kind in expected:
        assert kind in rows, (kind, sorted(rows))
        row, (earliest, latest) = rows[kind], began[kind]
        assert earliest - 100 <= row["since_wall_ms"] <= latest + 100, (kind, row)
        assert row["until_wall_ms"] is None or row["until_wall_ms"] > row["since_wall_ms"], (kind, row)
        assert (row["address"], row["library"]) == ("127.0.0.1", "raw 1"), (kind, row)
        assert row["says"], (kind, row)
    others = [kind for kind in rows if kind not in expected]
    assert all(why == "connection_rate" and client.startswith("many-") for _, client, why in others), others
    throttled = rows["alice", "first", "user_rate"]
    assert throttled["until_wall_ms"] - throttled["since_wall_ms"] == THROTTLE_S * 1_000
    debt = rows["alice", "big", "produced_bytes"]
    assert abs(debt["until_wall_ms"] - debt["since_wall_ms"] - DEBT_S * 1_000) < 500
    hit = {row["name"] for row in told["limits"] if row["last_hit_wall_ms"] is not None}
    assert {"limits.connections_rate_per_user", "quotas.cluster_producer_ids_rate"} <= hit

    admin = scene.gateway.admin_url.removeprefix("http://")
    shown = typed("explain", "--admin", admin)
    assert shown.returncode == 0, shown.stderr
    assert "alice: client 'first' at 127.0.0.1 (raw 1) waits since" in shown.stdout
    assert "and the quota of alice is used up (3 per 10h)" in shown.stdout
    assert "to end it: pidgate quotas raise alice N --for 2h" in shown.stdout

    assert typed("quotas", "raise", "alice", "5000", "--for", "2h", "--admin", admin).returncode == 0
    give_up_s = time.monotonic() + WITHIN_MS / 1_000
    while any(row["client_id"] == "first" for row in scene.told()["waits"]["rows"]):
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
