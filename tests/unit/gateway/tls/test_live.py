"""Contexts that follow their files: rotated by whoever renews certificates, in whatever steps."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pidgate.gateway import logs
from pidgate.gateway.config.source import KeyPath
from pidgate.gateway.config.tls_settings import ClusterTlsSettings, ServerTlsSettings
from pidgate.gateway.tls import contexts, live
from pidgate.gateway.tls.contexts import FileMissing, TlsUnusable, client_context
from pidgate.gateway.tls.live import LiveContext, follow
from tests.support.loopback import run, until
from tools.sandbox.certificates import Authority, Pair

PATH = ("listeners", 0, "tls")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("gw")


def live_of(pair: Pair) -> LiveContext:
    tls = ServerTlsSettings.model_validate({"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)})
    return LiveContext.of_server(tls, PATH)


def looked(context: LiveContext) -> list[bool]:
    """Two looks: only a file that nobody writes to is read."""
    return [context.renew_if_changed(), context.renew_if_changed()]


def test_between_certificate_and_key_the_old_pair_stays_in_force(authority: Authority, pair: Pair) -> None:
    context = live_of(pair)
    before = context.context
    other = authority.issue("other")
    shutil.copy(other.cert_file, pair.cert_file)
    context.renew_if_changed()
    with pytest.raises(TlsUnusable, match="does not match the certificate"):
        context.renew_if_changed()
    assert context.context is before
    assert looked(context) == [False, False], "it is looked at once for each change"
    shutil.copy(other.key_file, pair.key_file)
    assert looked(context) == [False, True]
    assert context.context is not before


def test_a_link_that_is_swapped_is_a_rotation(authority: Authority, tmp_path: Path) -> None:
    """Kubernetes: tls.crt -> ..data/tls.crt, and ..data -> the newest directory."""
    mount = tmp_path / "mount"
    for version in ("v1", "v2"):
        made = authority.issue(version)
        (mount / version).mkdir(parents=True)
        shutil.copy(made.cert_file, mount / version / "tls.crt")
        shutil.copy(made.key_file, mount / version / "tls.key")
    (mount / "..data").symlink_to("v1")
    for name in ("tls.crt", "tls.key"):
        (mount / name).symlink_to(f"..data/{name}")
    context = live_of(Pair(mount / "tls.crt", mount / "tls.key", mount / "tls.crt"))
    (mount / "..new").symlink_to("v2")
    os.replace(mount / "..new", mount / "..data")
    assert looked(context) == [False, True]


def test_a_file_that_cannot_be_used_is_logged_once_and_what_was_in_force_stays(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.01)
    context = live_of(pair)
    before = context.context

    async def scenario() -> None:
        following = asyncio.ensure_future(follow([context]))
        pair.key_file.write_text("not a key")
        await asyncio.sleep(0.3)
        following.cancel()

    with capture_logs() as lines:
        asyncio.run(scenario())
    (line,) = lines
    assert (line["event"], line["key"]) == ("tls_not_renewed", "listeners[0].tls.key_file")
    assert context.context is before


def vanish_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is moved away when the next context is made, between the two moments at which it is read."""
    refuse = contexts.refuse_if_readable_by_all
    away = pair.key_file.with_suffix(".away")

    def vanishing(key_file: str, path: KeyPath) -> None:
        refuse(key_file, path)
        os.rename(pair.key_file, away)

    monkeypatch.setattr(contexts, "refuse_if_readable_by_all", vanishing)
    load = ssl.SSLContext.load_cert_chain

    def and_back(context: ssl.SSLContext, *arguments: Any) -> None:
        try:
            load(context, *arguments)
        finally:
            monkeypatch.setattr(contexts, "refuse_if_readable_by_all", refuse)
            if away.exists():
                os.rename(away, pair.key_file)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", and_back)


def test_a_key_that_vanishes_while_it_is_read_is_a_file_that_is_missing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanish_once(pair, monkeypatch)
    with pytest.raises(FileMissing, match="cannot be read") as caught:
        live_of(pair)
    assert caught.value.path == (*PATH, "cert_file")


def test_a_ca_that_vanishes_while_it_is_read_is_one_too(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = contexts.text_of

    def read_and_gone(file: str, path: KeyPath) -> str:
        text = read(file, path)
        os.unlink(file)
        return text

    monkeypatch.setattr(contexts, "text_of", read_and_gone)
    with pytest.raises(FileMissing, match="cannot be read"):
        client_context(ClusterTlsSettings(ca_file=str(authority.ca_file)), ("cluster", "tls"))


def test_a_pair_that_was_away_for_a_moment_is_taken_a_look_later(
    authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is back as it was: no change would show it."""
    context = live_of(pair)
    before = context.context
    authority.issue("gw")
    vanish_once(pair, monkeypatch)
    assert looked(context) == [False, False]
    assert context.context is before
    assert context.renew_if_changed()
    assert context.context is not before


def test_a_file_that_stays_away_is_said_once(pair: Pair) -> None:
    context = live_of(pair)
    pair.key_file.unlink()
    assert looked(context) == [False, False]
    assert not context.renew_if_changed()
    with pytest.raises(FileMissing):
        context.renew_if_changed()
    assert [context.renew_if_changed() for _ in range(5)] == [False] * 5


def test_following_outlives_any_error(
    authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(logs, "_mistakes", logs.LogLimit())
    context = live_of(pair)
    before = context.context
    broken = [True]
    renew = LiveContext.renew_if_changed

    def renewing(one: LiveContext) -> bool:
        if broken.pop() if broken else False:
            raise LookupError("a mistake of ours")
        return renew(one)

    monkeypatch.setattr(LiveContext, "renew_if_changed", renewing)

    async def scenario() -> None:
        following = asyncio.ensure_future(follow([context]))
        authority.issue("gw")
        await until(lambda: len(lines) > 1)
        following.cancel()

    with capture_logs() as lines:
        run(scenario())
    assert [line["event"] for line in lines] == ["unexpected_error", "tls_renewed"]
    assert lines[0]["reason"] == "renewing listeners[0].tls"
    assert context.context is not before


def test_a_context_that_was_handed_away_shows_the_newest_certificate(
    authority: Authority, pair: Pair
) -> None:
    context = live_of(pair)
    handed = context.for_a_server_of_others()
    first = shown_by(handed, authority)
    authority.issue("gw")
    looked(context)
    assert shown_by(handed, authority) != first


def shown_by(server: ssl.SSLContext, authority: Authority) -> bytes:
    """The certificate that a client is shown."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.ca_file)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="localhost")
    theirs = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = ours.getpeercert(binary_form=True)
    assert found is not None
    return found
