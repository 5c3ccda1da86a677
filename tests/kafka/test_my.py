"""`pidgate my`: a client asks about its own user, on a real broker, and is told of no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pidgate.gateway.clock import wall_ms
from tests.support import raw
from tests.support.client_quotas import DESCRIBE, EXACT
from tests.support.command_line import typed
from tests.support.waiting_clients import QUOTAS, THROTTLE_S, WITHIN_MS, WaitingClients
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka
INVALID_REQUEST = 42


@pytest.fixture
def scene(sasl_cluster: Cluster) -> Iterator[WaitingClients]:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    with ExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(servers, quotas=QUOTAS))
        yield WaitingClients(sasl_cluster, gateway, stack, "my")


def properties(folder: Path, user: str, password: str = "") -> Path:
    file = folder / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password={password or f'{user}-secret'}\n"
    )
    return file


def asked(scene: WaitingClients, user: str, *components: tuple[str, str]) -> tuple[int, str]:
    """Error code and message of a DescribeClientQuotas with these components."""
    client = scene.client(user, f"asks-{user}")
    body = {
        "components": [
            {"entity_type": entity, "match_type": EXACT, "match": match} for entity, match in components
        ],
        "strict": False,
    }
    answer = raw.decoded(DESCRIBE, 1, client.ask(raw.request(DESCRIBE, 1, body)))
    return answer["error_code"], answer["error_message"]


def test_each_user_is_told_of_itself_alone(scene: WaitingClients, tmp_path: Path) -> None:
    alice, bob = properties(tmp_path, "alice"), properties(tmp_path, "bob")
    gateway = scene.gateway.bootstrap_servers
    scene.refused("alice", "first")
    refused_ms = wall_ms()
    scene.refused("bob", "blocked")
    of_bob = typed("my", "-b", gateway, "--kafka-config", bob)
    began_s = time.monotonic()
    shown = typed("my", "-b", gateway, "--kafka-config", alice, "--json")
    assert time.monotonic() - began_s < WITHIN_MS / 1_000
    assert shown.returncode == 0, shown.stderr
    told: dict[str, Any] = json.loads(shown.stdout)
    assert told["user"] == "alice"
    [row] = told["waits"]["rows"]
    assert row["client_id"] == "first"
    assert abs(row["until_wall_ms"] - refused_ms - THROTTLE_S * 1_000) < WITHIN_MS
    assert "the quota of alice is used up (3 per 10h)" in row["says"]
    assert "bob" not in shown.stdout
    assert "pidgate quotas" not in shown.stdout

    assert "bob: client 'blocked' at 127.0.0.1 (raw 1) waits since" in of_bob.stdout
    assert "and new producer ids of bob are blocked (rate 0)" in of_bob.stdout
    assert "alice" not in of_bob.stdout

    assert json.loads(asked(scene, "bob", ("pidgate", "my"))[1])["user"] == "bob"
    for components in (
        [("pidgate", "alice")],
        [("pidgate", "my"), ("user", "alice")],
        [("user", "alice"), ("pidgate", "my")],
    ):
        code, message = asked(scene, "bob", *components)
        assert (code, "of its own user alone" in message) == (INVALID_REQUEST, True), message

    shown = typed("my", "-b", gateway, "--kafka-config", properties(tmp_path, "bob", "wrong-secret"))
    assert shown.returncode == 1
    assert "bob cannot log in with PLAIN" in shown.stderr
    assert "wrong-secret" not in shown.stderr


def test_brokers_without_a_gateway_are_named(sasl_cluster: Cluster, tmp_path: Path) -> None:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    shown = typed("my", "-b", servers, "--kafka-config", properties(tmp_path, "alice"))
    assert shown.returncode == 1
    assert "no gateway answers" in shown.stderr
