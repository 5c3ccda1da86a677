"""Whether clients have to log in: asked of the brokers, or configured; and what passes until it is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pidgate.cli.checking import VALID, check
from pidgate.cli.options import CheckOptions
from pidgate.gateway.cluster.authentication import Authentication
from pidgate.gateway.quotas.inherited import inherited_quotas
from pidgate.protocol.headers import RequestHead
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas, UserQuota
from tests.support import raw
from tests.support.loopback import Peer, ScriptedBroker, gateway_before, run, until

API_VERSIONS, HEARTBEAT, SASL_HANDSHAKE = 18, 12, 17
BY_THE_BROKERS = {"authentication": None}
QUOTAS = {"mode": "enforce", "default": {"producer_ids_rate": 10}}


class Handshake:
    """A broker's answer to SaslHandshake, when it may come."""

    def __init__(self, error_code: int, *mechanisms: str) -> None:
        self.may_come = asyncio.Event()
        self._body = {"error_code": error_code, "mechanisms": list(mechanisms)}

    async def __call__(self, head: RequestHead, _peer: Peer) -> bytes:
        await self.may_come.wait()
        return raw.response(SASL_HANDSHAKE, 1, self._body, correlation_id=head.correlation_id)


@pytest.mark.parametrize(("error_code", "required"), [(0, True), (33, True), (34, False)])
def test_only_illegal_sasl_state_means_none(error_code: int, required: bool) -> None:
    noted: list[list[str]] = []
    authentication = Authentication()
    authentication.on_learnt = lambda mechanisms: noted.append(list(mechanisms))
    assert authentication.required is None
    authentication.learn_requirement(error_code, ["GSSAPI"])
    assert authentication.required is required
    assert noted == [["GSSAPI"] if required else []]


def test_until_the_brokers_have_shown_it_only_versions_pass_and_then_the_rest_does() -> None:
    async def scenario() -> None:
        handshake = Handshake(34)
        async with (
            ScriptedBroker({SASL_HANDSHAKE: handshake}) as broker,
            gateway_before(broker.address, listener=BY_THE_BROKERS) as gateway,
        ):
            client = await gateway.connect()
            await client.ask(API_VERSIONS, 3)
            client.send(raw.request(HEARTBEAT, 0, {"group_id": "g"}))
            await asyncio.sleep(0.1)
            assert broker.peers == []
            assert not gateway.gateway.is_ready()
            handshake.may_come.set()
            await client.frame()
            assert [head.api_key for head in broker.peers[0].requests] == [API_VERSIONS, HEARTBEAT]

    run(scenario())


def test_where_they_require_a_login_whoever_waited_without_one_is_closed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario() -> None:
        handshake = Handshake(0, "PLAIN", "OAUTHBEARER", "SCRAM-SHA-512")
        async with (
            ScriptedBroker({SASL_HANDSHAKE: handshake}) as broker,
            gateway_before(broker.address, listener=BY_THE_BROKERS, quotas=QUOTAS) as gateway,
        ):
            client = await gateway.connect()
            client.send(raw.request(HEARTBEAT, 0, {"group_id": "g"}))
            await asyncio.sleep(0.1)
            handshake.may_come.set()
            assert await client.end() == b""
            assert gateway.metric("connections_closed_total", cause="unauthenticated") == 1
            await until(gateway.gateway.is_ready)
            assert broker.peers == []

    run(scenario())
    warned = capsys.readouterr().out
    assert warned.count("quotas.unidentified") == 1
    assert "has no OAUTHBEARER, SCRAM-SHA-512: " in warned


def test_only_what_holds_many_to_the_quota_of_one_is_inherited() -> None:
    def keys(**quotas: Any) -> list[str]:
        offered = ("PLAIN", "GSSAPI", "SCRAM-SHA-256")
        texts = [one.text for one in inherited_quotas(Quotas(**quotas), offered)]
        return [mechanism for mechanism in offered for text in texts if mechanism in text]

    ids = UserQuota.per_window(10)
    bytes_per_s = ByteQuotas(rates={("", None): ByteRates(producer_byte_rate=1_000)})
    assert keys(mode=Mode.ENFORCE, default=ids) == ["GSSAPI", "SCRAM-SHA-256"]
    assert keys(mode=Mode.ENFORCE, bytes=bytes_per_s) == ["GSSAPI", "SCRAM-SHA-256"]
    assert keys(mode=Mode.ENFORCE, default=ids, users={unidentified("GSSAPI"): ids}) == ["SCRAM-SHA-256"]
    assert keys(mode=Mode.OBSERVE, default=ids, bytes=bytes_per_s) == []
    assert keys(mode=Mode.ENFORCE) == []


def test_a_check_asks_the_brokers_what_they_offer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether a login is required, and by what, stands in no file."""

    def checked(server: str, more: str = "") -> str:
        file = tmp_path / "pidgate.yaml"
        file.write_text(
            f"cluster: {{bootstrap_servers: ['{server}']}}\n"
            "quotas: {mode: enforce, default: {producer_ids_rate: 10}}\n" + more
        )
        assert check(CheckOptions(config=file)) == VALID
        return capsys.readouterr().out

    async def scenario() -> None:
        handshake = Handshake(0, "PLAIN", "OAUTHBEARER")
        handshake.may_come.set()
        async with ScriptedBroker({SASL_HANDSHAKE: handshake}) as broker:
            assert "warning: quotas.unidentified: has no OAUTHBEARER: " in await asyncio.to_thread(
                checked, broker.address
            )
            none = "listeners: [{authentication: none}]\n"
            assert "unidentified" not in await asyncio.to_thread(checked, broker.address, none)
        assert "unidentified" not in await asyncio.to_thread(checked, broker.address)

    run(scenario())


def test_before_the_login_a_frame_is_small() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, listener={"authentication": "required"}) as gateway,
        ):
            client = await gateway.connect()
            client.send((512 * 1024 + 1).to_bytes(4, "big"))
            assert await client.end() == b""
            assert gateway.metric("connections_closed_total", cause="protocol") == 1
            await until(gateway.gateway.is_ready)

    run(scenario())
