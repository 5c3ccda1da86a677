"""`pidgate doctor` on real brokers: rights and logins before the start, and which part is slow while it runs."""

from __future__ import annotations

import json
import signal
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from tests.support.browsing import chromium
from tests.support.command_line import typed
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = pytest.mark.kafka

START = "docs/how-to/doctor.md#"
SOON_MS = 45_000


def found(*options: str | Path) -> tuple[int, dict[str, tuple[str, str]], list[str]]:
    """The exit code, state and text of each page, and the verdicts."""
    shown = typed("doctor", "--json", *options)
    answer = json.loads(shown.stdout)
    by_page = {one["page"].removeprefix(START): (one["state"], one["text"]) for one in answer["findings"]}
    assert answer["exit_code"] == shown.returncode
    return shown.returncode, by_page, list(answer["verdicts"].values())


def test_a_login_and_the_rights_that_are_missing_are_named(
    guarded: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    word, file, bundle = tmp_path / "word", tmp_path / "pidgate.yaml", tmp_path / "bundle.tar.gz"
    word.write_text("alice-wrong")
    word.chmod(0o600)
    topic = topic_name("doctor")
    own = {"mechanism": "PLAIN", "username": "alice", "password_file": str(word)}
    settings: dict[str, Any] = {
        "own_client": own,
        "events": {"enabled": True, "topic": topic, "replication_factor": 1},
    }
    gateway = GatewayProcess(guarded.bootstrap_servers("SASL_PLAINTEXT"), settings=settings)
    gateway.config["quotas"]["producer_ids"]["remember"] = "2h"
    file.write_text(yaml.safe_dump(gateway.config))

    code, findings, _ = found("--config", file)
    assert code == 1
    assert findings["brokers"][0] == "ok"
    assert findings["the-login-of-the-own-client"][0] == "failed"
    assert "alice cannot log in with PLAIN" in findings["the-login-of-the-own-client"][1]

    word.write_text("alice-secret")
    code, findings, _ = found("--config", file)
    assert code == 1
    assert findings["the-login-of-the-own-client"][0] == "ok"
    assert findings["rights-on-the-gateways-topics"][0] == "failed"
    assert "the right Create is missing" in findings["rights-on-the-gateways-topics"][1]

    own["password_file"] = "alice-secret"
    file.write_text(yaml.safe_dump(gateway.config))
    shown = typed("doctor", "--config", file).stdout
    assert "own_client.password_file: " in shown
    assert "alice-secret" not in shown

    own |= {"username": "admin", "password_file": str(word)}
    word.write_text("admin-secret")
    file.write_text(yaml.safe_dump(gateway.config))
    code, findings, _ = found("--config", file, "--bundle", bundle)
    assert code == 0, findings
    assert findings["rights-on-the-gateways-topics"][0] == "ok"
    state, text = findings["how-long-brokers-remember"]
    assert (state, "producer.id.expiration.ms is 24h" in text) == ("warning", True), text
    with tarfile.open(bundle) as archive:
        parts = [archive.extractfile(name) for name in archive.getnames()]
        assert {name.rpartition("/")[2] for name in archive.getnames()} == {"doctor.json", "config.yaml"}
        assert all(part is not None and b"admin-secret" not in part.read() for part in parts)


@contextmanager
def slowed(gateway: GatewayProcess) -> Iterator[None]:
    """Let the gateway run for a third of the time."""
    is_over = threading.Event()

    def slow() -> None:
        while not is_over.is_set():
            gateway.signal(signal.SIGSTOP)
            is_over.wait(0.2)
            gateway.signal(signal.SIGCONT)
            is_over.wait(0.1)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_stopped_broker_and_a_slowed_gateway_are_told_apart() -> None:
    with (
        Cluster(ClusterSpec(node_ids=(1, 2, 3))) as cluster,
        GatewayProcess(cluster.bootstrap_servers(), node_ids=(1, 2, 3)) as gateway,
        chromium() as browser,
    ):
        page = browser.new_page()
        page.goto(gateway.admin_url)
        alerts = page.locator("#alerts")
        expect(page.locator("#facts")).to_contain_text("brokers 3/3", timeout=SOON_MS)
        admin = gateway.admin_url.removeprefix("http://")
        give_up_s = time.monotonic() + 60
        while (verdict := found("--admin", admin)[2]) != [
            "Neither the gateway nor a broker is slow now, and no client is throttled."
        ]:
            assert time.monotonic() < give_up_s, verdict

        # The event loop is watched while a client is connected.
        with socket.create_connection(("127.0.0.1", gateway.port)), slowed(gateway):
            time.sleep(8)
            code, findings, verdict = found("--admin", admin)
            expect(alerts).to_contain_text("This gateway is slow", timeout=SOON_MS)
            expect(alerts).not_to_contain_text("Broker")
        assert (code, verdict) == (1, ["It is this gateway: its event loop is late."]), findings
        assert findings["a-broker-is-slow"][0] == "ok", findings

        cluster.node(3).signal(signal.SIGSTOP)
        try:
            give_up_s = time.monotonic() + 45
            stopped = ["It is the cluster: broker 3 does not answer. This gateway is on time."]
            while (told := found("--admin", admin))[2] != stopped:
                assert time.monotonic() < give_up_s, told
                time.sleep(1)
            expect(alerts).to_contain_text("Broker 3 does not answer", timeout=SOON_MS)
            expect(alerts).not_to_contain_text("This gateway is slow", timeout=SOON_MS)
            expect(page.locator("#facts")).to_contain_text("brokers 2/3")
        finally:
            cluster.node(3).signal(signal.SIGCONT)
        assert told[0] == 1
        assert told[1]["docs/how-to/runbooks.md#pidgatebrokerdown"] == ("failed", "Broker 3 does not answer")
