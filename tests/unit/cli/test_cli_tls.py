"""TLS on the command line: what `check` and `run` say of files, and commands that call an admin address with it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidgate.cli.load import plan_of
from pidgate.cli.options import LoadOptions
from tests.support.admin_processes import serving
from tests.support.command_line import typed
from tests.support.handshakes import shake_hands
from tools.sandbox.certificates import Authority, Pair
from tools.sandbox.ports import free_block

PIDGATE = Path(sys.executable).with_name("pidgate")


def pidgate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PIDGATE, *arguments], capture_output=True, text=True, timeout=60, check=False)


def written(folder: Path, pair: Pair, *, cluster: str = "") -> Path:
    port = free_block(8)
    file = folder / "pidgate.yaml"
    tls = f"{{cert_file: {pair.cert_file}, key_file: {pair.key_file}}}"
    file.write_text(
        f"cluster: {{bootstrap_servers: ['127.0.0.1:1']{cluster}}}\n"
        f"listeners: [{{bind: '127.0.0.1:{port}', node_ports: {{first: {port + 2}}}, tls: {tls}}}]\n"
        f"admin: {{bind: '127.0.0.1:{port + 1}', writable: true, tls: {tls}}}\n"
        "events: {enabled: false}\n"
        "quotas: {default: {producer_ids_rate: 10}}\n"
    )
    return file


def admin_port(file: Path) -> int:
    text = file.read_text()
    return int(text.partition("admin: {bind: '127.0.0.1:")[2].partition("'")[0])


def test_check_explains_tls(tmp_path: Path, authority: Authority, pair: Pair) -> None:
    done = typed("check", "--config", written(tmp_path, pair))
    assert done.returncode == 0, done.stderr
    assert f"With TLS 1.2 or later, as {pair.cert_file}; clients show no certificate." in done.stdout
    assert "Connections to brokers have no TLS" in done.stdout
    assert "Health and metrics: https://" in done.stdout
    done = typed(
        "check", "--config", written(tmp_path, pair, cluster=f", tls: {{ca_file: {authority.ca_file}}}")
    )
    assert f"Connections to brokers use TLS 1.2 or later, trusted by {authority.ca_file}." in done.stdout
    assert "warning: " not in "".join(line for line in done.stdout.splitlines() if "tls" in line)


def test_check_and_run_refuse_a_key_that_everybody_can_read(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("readable")
    pair.key_file.chmod(0o644)
    file = written(tmp_path, pair)
    for command, place in (("check", f"{file}:2: "), ("run", f"{file}: ")):
        done = (typed if command == "check" else pidgate)(command, "--config", file)
        assert done.returncode == 2
        assert f"{place}listeners[0].tls.key_file: " in done.stderr
        assert f"chmod 640 {pair.key_file}" in done.stderr


def test_check_warns_of_files_that_are_elsewhere_and_run_ends(tmp_path: Path) -> None:
    nowhere = Pair(Path("/nowhere/a.pem"), Path("/nowhere/a.key"), Path("/nowhere/b"))
    file = written(tmp_path, nowhere)
    done = typed("check", "--config", file)
    assert done.returncode == 0
    assert "warning: " in done.stdout
    assert "/nowhere/a.pem cannot be read" in done.stdout
    done = pidgate("run", "--config", file)
    assert done.returncode == 2
    assert "listeners[0].tls.cert_file: /nowhere/a.pem cannot be read" in done.stderr


@pytest.mark.nightly
def test_check_warns_of_a_certificate_that_has_expired(tmp_path: Path, authority: Authority) -> None:
    done = typed("check", "--config", written(tmp_path, authority.issue("old", expired=True)))
    assert done.returncode == 0
    assert "expired on" in done.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Path]:
    """The file of a gateway whose admin address has TLS."""
    file = written(tmp_path_factory.mktemp("running"), pair)
    with serving(file, lambda: pidgate("health", "--config", file).returncode == 0):
        yield file


def test_health_asks_by_tls(running: Path, authority: Authority) -> None:
    at = f"127.0.0.1:{admin_port(running)}"
    assert typed("health", "--config", running).stdout == "alive\n"
    assert typed("health", "--admin", at, "--ca-file", authority.ca_file).stdout == "alive\n"
    unknown = typed("health", "--admin", f"https://{at}")
    assert unknown.returncode == 1
    assert "name its CA with --ca-file" in unknown.stdout
    plain = typed("health", "--admin", at)
    assert plain.returncode == 1
    assert "with TLS write https://" in plain.stdout


def test_quotas_are_set_by_tls(running: Path, authority: Authority) -> None:
    done = typed("quotas", "block", "mallory", "--config", running)
    assert done.returncode == 0, done.stderr
    at = f"https://127.0.0.1:{admin_port(running)}"
    done = typed(
        "quotas", "describe", "--user", "mallory", "--admin", at, "--ca-file", authority.ca_file, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["address"] == at.removeprefix("https://")


def test_load_trusts_the_certificate_of_the_listener_whose_file_is_given(
    tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    own = tmp_path / "client.properties"
    own.write_text(f"ssl.certificate.location={pair.both}\nssl.key.location={pair.both}\n")
    plan = plan_of(LoadOptions(topic="t", config=written(tmp_path, pair), kafka_config=own))
    assert plan.tls is not None
    good, _ = shake_hands(plan.tls, server_of(pair), "another.name")
    assert not good.args
    bad, _ = shake_hands(plan.tls, server_of(authority.issue("another")))
    assert "CERTIFICATE_VERIFY_FAILED" in str(bad)
    assert plan_of(LoadOptions(topic="t", bootstrap_servers="127.0.0.1:1")).tls is None


def server_of(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    return context
