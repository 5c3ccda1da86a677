"""Keys and passwords never come out: marked ones go through every path, and all that came out is searched."""

from __future__ import annotations

import asyncio
import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError
from pidgate.gateway.config.password_file import CredentialsUnreadable, password_in
from pidgate.gateway.config.reloadable import differences
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ServerTlsSettings
from pidgate.gateway.tls import checking, live
from pidgate.gateway.tls.contexts import TlsUnusable, client_context, server_context
from pidgate.gateway.topics.own_client import OwnClient
from tests.support.loopback import ScriptedBroker, gateway_before, run, until
from tools.sandbox.certificates import Authority, Pair

PASSWORD = "pass-hunter2-word"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("gateway")


def marks(*files: Path) -> set[str]:
    """Lines of the keys' bodies, and the password."""
    lines = [line for file in files for line in file.read_text().splitlines()]
    return {PASSWORD, *(line for line in lines if len(line) > 30 and "-----" not in line)}


def shown(marked: set[str], *came_out: object) -> list[str]:
    """Marks that are in what came out, of which objects show their repr, and errors all of their traceback."""
    texts = []
    for one in came_out:
        texts.append(one if isinstance(one, str) else f"{one!r} {one}")
        if isinstance(one, BaseException):
            texts += traceback.format_exception(one)
    return sorted(mark for mark in marked if any(mark in text for text in texts))


def test_a_running_gateway_shows_no_key(
    authority: Authority, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.02)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    files = {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}
    came_out: list[Any] = []
    marked = marks(pair.key_file)
    assert len(marked) > 2

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(
                broker.address,
                listener={"tls": files},
                cluster={"tls": {"ca_file": str(authority.ca_file), **files}},
                admin={"bind": "127.0.0.1:0", "tls": files},
                own_client={"mechanism": "PLAIN", "username": "me", "password_file": str(password)},
                events={"enabled": True},
                log_level="debug",
            ) as gateway,
        ):
            client = await gateway.connect()
            client.send(b"\x16\x03\x01nonsense" + bytes(40))
            await client.end()
            good = pair.key_file.read_text()
            # Half of a key, and a file in which something else stands beside it.
            pair.key_file.write_text(good[: len(good) // 2])
            await until(lambda: [line for line in logged if line["event"] == "tls_not_renewed"])
            came_out.append(generate_latest(gateway.gateway.registry).decode())
            came_out.append(gateway.gateway._settings)
            came_out.append(vars(gateway.gateway))

    with capture_logs() as logged:
        run(scenario())
    came_out.append(json.dumps(logged, default=repr))
    assert "tls_not_renewed" in came_out[-1]
    assert shown(marked, *came_out) == []


def of_server(names: dict[str, str]) -> None:
    server_context(ServerTlsSettings.model_validate(names), ("listeners", 0, "tls"))


def of_client(names: dict[str, str]) -> None:
    client_context(ClusterTlsSettings.model_validate(names), ("cluster", "tls"))


def test_errors_show_no_key(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    marked, found = marks(pair.key_file), list[TlsUnusable]()
    good = pair.key_file.read_text()
    cert = pair.cert_file.read_text()
    for number, text in enumerate(
        [good[:80], good.replace("PRIVATE", "ODD"), f"{good}{good[:60]}", cert, good * 2]
    ):
        key_file = tmp_path / f"{number}.key"
        key_file.touch(0o600)
        key_file.write_text(text)
        names = {"cert_file": str(pair.cert_file), "key_file": str(key_file)}
        for make in (of_server, of_client):
            try:
                make(names)
            except TlsUnusable as error:
                found.append(error)
    assert len(found) >= 4
    assert shown(marked, *found) == []


def test_a_key_written_into_the_configuration_is_not_shown(pair: Pair) -> None:
    key = json.dumps(pair.key_file.read_text())
    servers = "cluster: {bootstrap_servers: [127.0.0.1:1]"
    came_out: list[Any] = []
    for text in (
        f"{servers}, tls: {{cert_file: c, key_file: {key}}}}}",
        f"{servers}, tls: {{ca_file: {key}}}}}",
        f"{servers}}}\nlisteners: [{{tls: {{cert_file: {key}}}}}]",
        f"{servers}}}\nlisteners: [{{tls: {{cert_file: c, key_file: [{key}]}}}}]",
        f"{servers}}}\nadmin: {{tls: {{cert_file: c, key_file: {key}}}}}",
    ):
        with pytest.raises(ConfigError) as caught:
            loading.parse(text)
        came_out.append(str(caught.value))
    assert shown(marks(pair.key_file), *came_out) == []


@pytest.mark.parametrize("written", [f"[{PASSWORD}]", f"{{{PASSWORD}: x}}"])
@pytest.mark.parametrize("key", ["password", "password_file"])
def test_a_password_written_into_the_configuration_is_not_shown(key: str, written: str) -> None:
    sasl = f"own_client: {{mechanism: PLAIN, username: u, {key}: {written}}}"
    with pytest.raises(ConfigError) as caught:
        loading.parse(f"cluster: {{bootstrap_servers: [127.0.0.1:1]}}\n{sasl}\n")
    assert shown({PASSWORD}, str(caught.value)) == []


def test_names_of_keys_are_not_shown_as_differences() -> None:
    """Somebody may have written the key itself there."""
    text = "cluster: {bootstrap_servers: [127.0.0.1:1], tls: {cert_file: c, key_file: K}}"
    before, after = (loading.parse(text.replace("K", name)) for name in ("hunter2", "hunter3"))
    (one,) = differences(before, after)
    assert str(one) == "cluster.tls.key_file: (not shown) -> (not shown)"


def test_the_own_client_and_its_errors_show_no_password(authority: Authority, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    text = (
        f"cluster: {{bootstrap_servers: [127.0.0.1:1], tls: {{ca_file: {authority.ca_file}}}}}\n"
        f"own_client: {{mechanism: PLAIN, username: u, password_file: {password}}}\n"
    )
    settings = loading.parse(text)
    kafka = OwnClient.from_settings(settings)
    arguments = kafka.arguments()
    assert (arguments["security_protocol"], arguments["sasl_plain_password"]) == ("SASL_SSL", PASSWORD)

    async def start() -> Exception:
        producer = kafka.producer(request_timeout_ms=500)
        try:
            await producer.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is searched
            return error
        finally:
            await producer.stop()
        raise AssertionError("nobody listens there")

    error = asyncio.run(start())
    assert shown({PASSWORD}, error, kafka, settings, list(checking.warnings(settings))) == []
    authority.ca_file.unlink()
    with pytest.raises(CredentialsUnreadable, match=r"cluster.tls.ca_file"):
        kafka.arguments()


def test_a_password_that_is_no_utf8_is_not_shown_byte_by_byte(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_bytes("p\xe9ss".encode("latin-1"))
    with pytest.raises(CredentialsUnreadable, match="it is not UTF-8") as caught:
        password_in(str(password))
    assert "e9" not in "".join(traceback.format_exception(caught.value)).replace(str(tmp_path), "")
    assert caught.value.__context__ is None, "an error that is kept, with what was read"
