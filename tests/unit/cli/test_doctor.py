"""`pidgate doctor`: pages that exist, few options, and a bundle without secrets."""

from __future__ import annotations

import re
import socket
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from pidgate.cli.options import DoctorOptions
from pidgate.doctor import bundle
from pidgate.doctor.findings import Checks, Start, exit_code, failed, unasked, warning
from pidgate.doctor.machine import check_machine
from pidgate.doctor.running import BY_BROKER, BY_CLIENT, BY_QUOTA, TITLES
from pidgate.gateway.config.loading import parse
from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.present.pages import Page
from pidgate.gateway.present.slowness import Slowness
from pidgate.gateway.proxy.waits import Why
from tests.support.command_line import typed
from tests.support.inputs import ROOT
from tools.sandbox.certificates import Authority

MOST_OPTIONS = 6
SECRET = "horse-battery-staple"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*Page, *Start])
def test_each_page_of_a_finding_exists(page: str) -> None:
    file, _, anchor = page.partition("#")
    assert not anchor or anchor in anchors(ROOT / file)
    assert (ROOT / file).exists()


def test_each_page_of_an_alert_has_a_tick() -> None:
    assert set(TITLES) == set(Page)
    assert not BY_QUOTA & BY_BROKER
    assert not (BY_QUOTA | BY_BROKER) & BY_CLIENT


def test_every_reason_of_a_wait_has_a_side() -> None:
    of_gateway = {Why.UNDECIDED, Why.RESTORING, Why.OTHER_GATEWAY, Why.MEMORY, Why.TURN}
    assert BY_QUOTA | BY_BROKER | BY_CLIENT | of_gateway == set(Why)


def test_its_options_are_few() -> None:
    assert len(fields(DoctorOptions)) <= MOST_OPTIONS


def test_the_exit_code_is_that_of_the_worst() -> None:
    checks = Checks("file")
    assert checks.add("fine", Start.FILE)
    assert not checks.add("doubtful", Start.FILE, [warning("odd")])
    assert exit_code(checks.findings) == 0
    checks.add("broken", Start.PORTS, [failed("in use", "stop it")])
    assert exit_code(checks.findings) == 1
    checks.add("silent", Start.ADMIN, [unasked("no answer")])
    assert exit_code(checks.findings) == 2


def test_a_bundle_has_no_secret(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    data = {
        "own_client": {"username": "gw", "password_file": SECRET, "password": SECRET},
        "admin": {"token_file": str(token), "writable": True},
        "cluster": {"tls": {"key_file": "/etc/key.pem", "ca_file": f"-----BEGIN KEY {SECRET}"}},
        "sasl.jaas.config": [SECRET],
        "old": {"api_token": {"is": SECRET}, "note": f"password={SECRET}"},
    }
    text = bundle.config_text(data)
    assert SECRET not in text
    kept = yaml.safe_load(text)
    assert kept["own_client"]["username"] == "gw"
    assert kept["admin"] == {"token_file": str(token), "writable": True}


def test_a_port_in_use_and_a_name_that_the_certificate_lacks_are_named(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("gateway", names=("DNS:gateway.example",))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = parse(
            yaml.safe_dump(
                {
                    "cluster": {"bootstrap_servers": ["no-such-name.invalid:9092"]},
                    "listeners": [
                        {
                            "bind": f"127.0.0.1:{port}",
                            "advertise": "localhost",
                            "only_node": 1,
                            "tls": {"cert_file": str(issued.cert_file), "key_file": str(issued.key_file)},
                        }
                    ],
                    "admin": {"bind": "127.0.0.1:0"},
                    "events": {"enabled": False},
                }
            )
        )
        checks = Checks("file")
        check_machine(checks, settings, is_running=False)
    found = {finding.page: finding.text for finding in checks.findings}
    assert "no-such-name.invalid" in found[Start.NAMES]
    assert f"listeners[0].bind: cannot listen on 127.0.0.1:{port}: the port is in use" in found[Start.PORTS]
    assert "clients that connect to localhost refuse it" in found[Start.TLS]


def test_a_loop_that_is_late_is_told_from_a_broker_that_is_slow() -> None:
    counters = Counters()
    slowness = Slowness(counters)
    for second in range(1, 30):
        slowness.sample(second * 1_000)
    counters.broker_up, counters.broker_answer_s = {1: 1, 2: 1, 3: 0}, {1: 0.002, 2: 0.7, 3: 9.0}
    assert not slowness.of_loop(29_000).is_slow
    assert slowness.slow_brokers() == {2: 0.7}
    counters.late_without_core.sum_s += 1.5
    assert slowness.of_loop(29_500).is_slow
    for second in range(30, 45):
        slowness.sample(second * 1_000)
    assert not slowness.of_loop(44_000).is_slow


def test_a_gateway_that_does_not_answer_could_not_be_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unheard:
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
    shown = typed("doctor", "--admin", address)
    assert shown.returncode == 2
    assert "docs/how-to/doctor.md#a-gateway-that-does-not-answer" in shown.stdout
    assert typed("doctor", "--config", "/nowhere/pidgate.yaml").returncode == 2
