"""No secret comes out: marked ones go every way in, and all that the gateway has shown, written and sent is searched.

Keys and their errors: unit/gateway/tls/test_secrets.py.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from pidgate.protocol import delegation_tokens
from pidgate.protocol.delegation_tokens import NewToken
from tests.support.bearer import bearer, jwt
from tests.support.raw import Closed, RawClient, request
from tests.support.scram import scram_login
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

PIDGATE = Path(sys.executable).with_name("pidgate")
SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 17, 36, 3
EVENTS = "__events-of-secrets"
PATIENCE_S = 10.0


class Marks:
    """Secrets by what they are; those that are made on the way are added."""

    def __init__(self) -> None:
        self.all = {
            name: f"marked{token_hex(8)}"
            for name in ("alice", "admin", "wrong", "too long", "garbage", "in yaml", "admin token", "bearer")
        }

    def __getitem__(self, name: str) -> str:
        return self.all[name]

    def shown_in(self, *texts: str) -> list[str]:
        return sorted(name for name, secret in self.all.items() if any(secret in text for text in texts))


@pytest.fixture(scope="module")
def marks() -> Marks:
    return Marks()


@pytest.fixture(scope="module")
def cluster(marks: Marks) -> Iterator[Cluster]:
    with Cluster(ClusterSpec(sasl=True, users={"alice": marks["alice"], SUPER_USER: marks["admin"]})) as one:
        yield one


def log_in(client: RawClient, mechanism: str, *messages: bytes) -> None:
    """Send them all at once: who does not wait for an answer is closed, and logged."""
    client.send(request(SASL_HANDSHAKE, 1, {"mechanism": mechanism}))
    for message in messages:
        client.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": message}))
    with contextlib.suppress(Closed, OSError):
        for _ in range(len(messages) + 1):
            client.frame()


def go_every_way(gateway: GatewayProcess, marks: Marks) -> None:
    """Log in, well and badly; send what is no request; take a token, and log in with it."""
    servers = gateway.bootstrap_servers
    plain = f"\0alice\0{marks['alice']}".encode()
    ways = (
        ("PLAIN", plain),
        ("PLAIN", f"\0alice\0{marks['wrong']}".encode()),
        ("PLAIN", f"\0alice\0{marks['too long']}".encode() + 20_000 * b"x"),
        ("PLAIN", plain, plain),
        ("OAUTHBEARER", bearer(jwt(sub="alice", jti=marks["bearer"]))),
        (marks["garbage"], marks["garbage"].encode()),
    )
    marks.all["bearer, as it is sent"] = jwt(sub="alice", jti=marks["bearer"]).split(".")[1]
    for mechanism, *messages in ways:
        with RawClient(servers) as client:
            log_in(client, mechanism, *messages)
    for frame in (
        marks["garbage"].encode() * 10,
        b"\x00\x00\x00\x10\x00\x24\x00\x02" + marks["garbage"].encode(),
    ):
        with RawClient(servers) as client:
            client.send(frame)
    for password in (marks["wrong"], marks["alice"]):
        with RawClient(servers) as client:
            scram_login(client, "alice", password)
    with RawClient(servers) as client:
        assert scram_login(client, "alice", marks["alice"]) == 0
        frame = client.ask(delegation_tokens.create_token_request(1, "raw", "alice"))
        token = delegation_tokens.new_token(frame, 0, len(frame))
        assert token.error_code == 0
        marks.all["delegation token"] = token.password
    log_in_with(gateway, token)


def log_in_with(gateway: GatewayProcess, token: NewToken) -> None:
    """Brokers know of a token some 50 ms after it was made."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        with RawClient(gateway.bootstrap_servers) as client:
            if scram_login(client, token.token_id, token.password, ",tokenauth=true") == 0:
                assert client.call(METADATA, 9, {"topics": []})["brokers"]
                return
        assert time.monotonic() < give_up_s


def pages(gateway: GatewayProcess, token: str, wrong: str) -> Iterator[str]:
    for path in ("/", "/livez", "/readyz", "/metrics", "/v1/quotas", "/v1/explain?user=alice", "/nothing"):
        for shown in (token, wrong):
            asked = urllib.request.Request(
                f"{gateway.admin_url}{path}", headers={"Authorization": f"Bearer {shown}"}
            )
            try:
                with urllib.request.urlopen(asked, timeout=5) as answer:
                    yield f"{answer.headers} {answer.read().decode()}"
            except urllib.error.HTTPError as error:
                with error:
                    yield f"{error.headers} {error.read().decode()}"


def printed(*arguments: str | Path) -> str:
    done = subprocess.run([PIDGATE, *arguments], capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr


def test_marked_secrets_come_out_nowhere(cluster: Cluster, marks: Marks, tmp_path: Path) -> None:
    files = {}
    for name, secret in (("password", marks["admin"]), ("token", marks["admin token"])):
        files[name] = tmp_path / name
        files[name].write_text(secret)
        files[name].chmod(0o600)
    servers = cluster.bootstrap_servers(SASL_PLAINTEXT)
    sasl = {"mechanism": "SCRAM-SHA-256", "username": SUPER_USER, "password_file": str(files["password"])}
    state = tmp_path / "state"
    gateway = GatewayProcess(
        servers,
        quotas={"mode": "enforce", "default": {"producer_ids_rate": 10}},
        settings={
            "own_client": sasl,
            "events": {"topic": EVENTS, "replication_factor": 1},
            "state_dir": str(state),
            "log_level": "debug",
        },
    )
    gateway.config["admin"]["token_file"] = str(files["token"])
    came_out: list[str] = []
    with gateway:
        go_every_way(gateway, marks)
        came_out += pages(gateway, marks["admin token"], marks["wrong"])
        assert gateway.directory is not None
        config = gateway.directory / "pidgate.yaml"
        good = config.read_text()
        for command in (("check",), ("quotas", "describe"), ("health",), ("explain", "alice"), ("who",)):
            came_out.append(printed(*command, "--config", config))
        # Who writes a secret where a name of a file belongs, or under a key that there is not.
        for key in ("password", "password_file"):
            bad = good.replace(f"password_file: {files['password']}", f"{key}: [{marks['in yaml']}]")
            assert marks["in yaml"] in bad
            config.write_text(bad)
            before = len(gateway.log_events("config_refused"))
            gateway.signal(signal.SIGHUP)
            give_up_s = time.monotonic() + PATIENCE_S
            while len(gateway.log_events("config_refused")) == before:
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
            came_out.append(printed("check", "--config", config))
        assert gateway.stop() == 0
        came_out.append(gateway.log_text())
    events = [record.value.decode() for record in read_log(cluster.bootstrap_servers(), EVENTS)]
    assert any("alice" in event for event in events)
    written = [file.read_bytes().decode("latin-1") for file in state.rglob("*") if file.is_file()]
    assert written
    assert marks.shown_in(*came_out, *events, *written) == []
    # Whoever looks finds: what a broker is sent does hold them.
    assert marks.shown_in(*came_out, good, files["password"].read_text()) == ["admin"]
