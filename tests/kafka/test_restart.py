"""kill -9 under load without a topic; tests/faults/test_restart_faults.py kills fifty times, also with one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidgate.load.exchanges import log_in
from pidgate.load.plan import Login
from tests.support.kill_load import KillLoad
from tests.support.raw import RawClient
from tests.support.rules import rule
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT

pytestmark = pytest.mark.kafka

METADATA = 3


@rule("A restored state remembers its ids and balances.", "fleet")
def test_killed_and_restored_from_a_state_directory_without_a_topic(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    load = KillLoad(sasl_cluster, topic_name("restart"), tmp_path, events=None, state_dir=tmp_path / "state")
    with load.gateway:
        load.run(2, load_s=0.5)
        print(load.told())
        load.check_kills()
        load.check_log()
        restored = [line["restored_from"] for line in load.gateway.log_events("state_restored")]
        assert restored == ["nothing", *["state_dir"] * 2]


def brokers_of(address: str) -> list[int]:
    """The brokers' ports as a client with a login gets them."""
    with RawClient(address) as client:
        client.run(log_in(Login("alice", "alice-secret")))
        return [node["port"] for node in client.call(METADATA, 12, {"topics": []})["brokers"]]


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("memory", ["own client", "state directory", "neither"])
@rule("After a restart the brokers' ports are open before any client has bootstrapped.", "failures")
def test_the_brokers_ports_are_open_after_a_kill(sasl_cluster: Cluster, tmp_path: Path, memory: str) -> None:
    password = tmp_path / "password"
    password.write_text("admin-secret")
    own = {"mechanism": "PLAIN", "username": "admin", "password_file": str(password)}
    remembered: dict[str, dict[str, Any]] = {
        "own client": {"own_client": own},
        "state directory": {"state_dir": str(tmp_path / "state")},
        "neither": {},
    }
    with GatewayProcess(
        sasl_cluster.bootstrap_servers(SASL_PLAINTEXT), settings=remembered[memory]
    ) as gateway:
        node_port = gateway.first_node_port + 1
        assert is_open(node_port) == (memory == "own client")
        assert brokers_of(gateway.bootstrap_servers) == [node_port]
        if memory == "state directory":
            until((tmp_path / "state" / "nodes.json").exists)
        gateway.kill()
        gateway.start()
        if memory == "neither":
            assert not is_open(node_port), "the control: nothing was kept"
            warned = [line["text"] for line in gateway.log_events("config_warning")]
            assert any("ports stay closed" in text for text in warned)
            return
        assert brokers_of(f"127.0.0.1:{node_port}") == [node_port]
        assert not any("ports stay closed" in line["text"] for line in gateway.log_events("config_warning"))
