"""The whole gateway on loopback, before brokers that refuse, hang, die, move and speak in pieces."""

import asyncio
import socket

import pytest

from pidgate.gateway.proxy.bounds import Bounds
from pidgate.gateway.proxy.connection_quotas import USER_BURST_MS
from pidgate.protocol.headers import RequestHead
from tests.support import raw
from tests.support.loopback import (
    HOST,
    NODE_ID,
    Client,
    Peer,
    ScriptedBroker,
    answer_to,
    gateway_before,
    offers_plain,
    run,
    until,
)
from tests.support.rules import rule

HEARTBEAT, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 12, 3, 17, 36
UNSUPPORTED_VERSION = b"\0\x23"
REFUSE_ALL = {"mode": "enforce", "default": {"producer_ids_rate": 0}}


def heartbeat(correlation_id: int) -> bytes:
    return raw.request(HEARTBEAT, 0, {"group_id": "g"}, correlation_id=correlation_id)


async def never(_head: RequestHead, _peer: Peer) -> None:
    return None


def test_requests_and_answers_pass_and_node_ports_open_before_they_are_shown() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {0: (HOST, broker.port), 7: (HOST, broker.port)}
            async with gateway_before(broker.address) as gateway:
                client = await gateway.connect()
                answer = await client.ask(METADATA, 12, {"topics": []})
                shown = {node["node_id"]: (node["host"], node["port"]) for node in answer["brokers"]}
                assert shown == {0: (HOST, gateway.first_node_port), 7: (HOST, gateway.first_node_port + 7)}
                for _, port in shown.values():
                    on_node = await gateway.connect(port)
                    assert (await on_node.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0

    run(scenario())


def test_the_times_of_forwarding_and_of_the_broker_are_observed() -> None:
    async def slow(head: RequestHead, _peer: Peer) -> bytes:
        await asyncio.sleep(0.07)
        return answer_to(head, {})

    async def scenario() -> None:
        async with ScriptedBroker({HEARTBEAT: slow}) as broker, gateway_before(broker.address) as gateway:
            client = await gateway.connect()
            for _ in range(3):
                await client.ask(HEARTBEAT, 0, {"group_id": "g"})
            assert gateway.metric("forward_seconds_count") == 3
            assert gateway.metric("broker_seconds_count") == 3
            assert gateway.metric("broker_seconds_bucket", le="0.05") == 0
            assert gateway.metric("broker_seconds_sum") >= 0.18

    run(scenario())


def test_a_client_that_sends_byte_by_byte_and_closes_its_side() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address) as gateway:
            client = await gateway.connect()
            for number in range(3):
                for byte in heartbeat(number):
                    client.send(bytes([byte]))
                    await asyncio.sleep(0)
            client.writer.write_eof()
            frames = await client.end()
            assert [frames[at + 4 : at + 8] for at in (0, 10, 20)] == [
                number.to_bytes(4, "big") for number in range(3)
            ]
            assert len(frames) == 30
            assert gateway.metric("connections_closed_total", cause="client") == 1

    run(scenario())


def test_who_asks_a_broker_nothing_reaches_none() -> None:
    """Silence, the beginning of a request, another protocol, and what is answered here."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address) as gateway:
            await until(gateway.gateway.is_ready)
            before = broker.accepted
            silent = [await gateway.connect() for _ in range(20)]
            for client in silent[:10]:
                client.send(heartbeat(1)[:-1])
            stranger = await gateway.connect()
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await stranger.end() == b""
            silent[-1].send(raw.request(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}))
            assert (await silent[-1].frame())[4:6] == UNSUPPORTED_VERSION
            assert broker.accepted == before
            silent[0].send(heartbeat(1)[-1:])
            assert await silent[0].frame() == bytes.fromhex("00000001 0000")
            assert broker.accepted == before + 1

    run(scenario())


def test_who_finds_all_connections_taken_waits_and_is_served() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, limits={"connections": 3}) as gateway,
        ):
            taken = [await gateway.connect() for _ in range(3)]
            for client in taken:
                assert (await client.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
            waiting = await gateway.connect()
            waiting.send(heartbeat(1))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await waiting.frame()
            assert gateway.metric("connections") == 3
            assert (await taken[0].ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
            taken[1].writer.close()
            assert await waiting.frame() == bytes.fromhex("00000001 0000")
            assert gateway.metric("connections_delayed_total", limit="all") >= 1
            assert gateway.metric("connections_limited_total", limit="silent") == 0

    run(scenario())


def test_a_fleet_that_comes_faster_than_it_may_is_served_all_the_same() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, bounds=Bounds(connections_per_s=30)) as gateway,
        ):
            fleet = [await gateway.connect() for _ in range(90)]
            for client in fleet:
                client.send(heartbeat(1))
            for client in fleet:
                assert await client.frame() == bytes.fromhex("00000001 0000")
            assert gateway.metric("connections_delayed_total", limit="all") >= 1
            assert gateway.metric("connections_closed_total", cause="limit") == 0

    run(scenario())


async def logged_in(client: Client, user: str) -> None:
    token = b"\0" + user.encode() + b"\0secret"
    assert (await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))["error_code"] == 0
    assert (await client.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": token}))["error_code"] == 0


def test_a_user_has_so_many_connections_whatever_their_address() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({SASL_HANDSHAKE: offers_plain}) as broker,
            gateway_before(broker.address, limits={"connections_per_user": 2}) as gateway,
        ):
            mine = [await gateway.connect() for _ in range(3)]
            for client in mine:
                await logged_in(client, "alice")
            assert await mine[2].end() == b""
            assert gateway.metric("connections_limited_total", limit="user") == 1
            assert gateway.metric("connections_closed_total", cause="limit") == 1
            other = await gateway.connect()
            await logged_in(other, "bob")
            for client in (*mine[:2], other):
                assert (await client.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
            mine[0].writer.close()
            await until(lambda: gateway.metric("connections") == 2)
            again = await gateway.connect()
            await logged_in(again, "alice")
            assert (await again.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0

    run(scenario())


def test_a_user_who_comes_too_fast_waits_after_the_login() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({SASL_HANDSHAKE: offers_plain}) as broker,
            gateway_before(broker.address, limits={"connections_rate_per_user": 1}) as gateway,
        ):
            loop = asyncio.get_running_loop()
            for _ in range(USER_BURST_MS // 1_000):
                await logged_in(await gateway.connect(), "alice")
            late, other = await gateway.connect(), await gateway.connect()
            await logged_in(late, "alice")
            await logged_in(other, "bob")
            began = loop.time()
            late.send(heartbeat(1))
            assert (await other.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
            assert gateway.metric("connections_delayed_total", limit="user") == 1
            await late.frame()
            assert loop.time() - began > 0.3

    run(scenario())


@rule("A silent, idle or stalled connection is closed in time.", "connections")
def test_who_asks_nothing_is_closed_in_time() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            gateway_before(broker.address, bounds=Bounds(login_time_ms=500)) as gateway,
        ):
            silent, asking = await gateway.connect(), await gateway.connect()
            assert (await asking.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
            assert await silent.end() == b""
            assert gateway.metric("connections_closed_total", cause="login") == 1
            assert (await asking.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0

    run(scenario())


def test_a_broker_that_refuses_is_counted_and_logged_once_a_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, gateway_before(broker.address) as gateway:
            await until(gateway.gateway.is_ready)
            await broker.stop()
            for _ in range(5):
                client = await gateway.connect()
                client.send(heartbeat(1))
                assert await client.end() == b""
            assert gateway.metric("upstream_failures_total", cause="refused") >= 5
            assert gateway.metric("connections_closed_total", cause="unreachable") == 5

    run(scenario())
    assert 1 <= capsys.readouterr().out.count("upstream_failed") <= 3


@rule("A silent, idle or stalled connection is closed in time.", "connections")
def test_a_broker_that_never_accepts_times_out() -> None:
    async def scenario() -> None:
        hole = socket.socket()
        hole.bind((HOST, 0))
        hole.listen(0)
        # One connection fills the backlog: whoever comes next gets no answer to its SYN.
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        address = f"{HOST}:{hole.getsockname()[1]}"
        async with gateway_before(address, bounds=Bounds(connect_timeout_ms=200)) as gateway:
            client = await gateway.connect()
            client.send(heartbeat(1))
            assert await client.end() == b""
            assert gateway.metric("upstream_failures_total", cause="timeout") >= 1
        for filler in (*fillers, hole):
            filler.close()

    run(scenario())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example", ".."])
def test_a_node_that_advertises_no_address_of_this_world_is_stood_in_for(host: str) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.nodes = {NODE_ID: (HOST, broker.port), 2: (host, 9092)}
            async with gateway_before(broker.address) as gateway:
                client = await gateway.connect()
                await client.ask(METADATA, 12, {"topics": []})
                client = await gateway.connect(gateway.first_node_port + 2)
                # It is forgotten, and a bootstrap server stands in until it is known again.
                assert (await client.ask(HEARTBEAT, 0, {"group_id": "g"}))["error_code"] == 0
                assert gateway.metric("upstream_failures_total", cause="resolve") == 1

    run(scenario())


def test_a_broker_that_returns_elsewhere_is_followed() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.nodes = {NODE_ID: (HOST, first.port), 2: (HOST, second.port)}
            async with gateway_before(first.address) as gateway:
                await until(gateway.gateway.is_ready)
                port = gateway.first_node_port + 2
                await (await gateway.connect(port)).ask(HEARTBEAT, 0)
                assert len(second.peers) == 1
                await second.stop()
                async with ScriptedBroker() as third:
                    first.nodes[2] = (HOST, third.port)
                    client = await gateway.connect()
                    await client.ask(METADATA, 12, {"topics": []})
                    await (await gateway.connect(port)).ask(HEARTBEAT, 0)
                    assert len(third.peers) == 1

    run(scenario())


def test_clients_of_a_stand_in_are_closed_when_their_broker_is_back() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.nodes = {NODE_ID: (HOST, first.port), 2: (HOST, second.port)}
            async with gateway_before(first.address) as gateway:
                await until(gateway.gateway.is_ready)
                await second.stop()
                misled = await gateway.connect(gateway.first_node_port + 2)
                assert (await misled.ask(HEARTBEAT, 0))["error_code"] == 0
                assert len(first.peers) == 1
                on_first = await gateway.connect(gateway.first_node_port + NODE_ID)
                async with ScriptedBroker() as third:
                    first.nodes[2] = (HOST, third.port)
                    assert (await on_first.ask(METADATA, 12, {"topics": []}))["brokers"]
                    assert await misled.end() == b""
                    again = await gateway.connect(gateway.first_node_port + 2)
                    await again.ask(HEARTBEAT, 0)
                    assert len(third.peers) == 1
                    assert (await on_first.ask(HEARTBEAT, 0))["error_code"] == 0
                assert gateway.metric("connections_closed_total", cause="moved") == 1

    run(scenario())


def test_when_all_bootstrap_servers_have_gone_a_known_node_is_asked() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as first, ScriptedBroker() as second:
            first.nodes = {NODE_ID: (HOST, first.port), 2: (HOST, second.port)}
            async with gateway_before(first.address) as gateway:
                await until(gateway.gateway.is_ready)
                await first.stop()
                await (await gateway.connect()).ask(HEARTBEAT, 0)
                assert len(second.peers) == 1

    run(scenario())


def test_a_broker_that_dies_in_mid_answer_closes_its_client() -> None:
    async def die(head: RequestHead, peer: Peer) -> None:
        peer.write((100).to_bytes(4, "big") + head.correlation_id.to_bytes(4, "big") + b"half")
        await peer.writer.drain()
        peer.writer.close()

    async def scenario() -> None:
        async with ScriptedBroker({HEARTBEAT: die}) as broker, gateway_before(broker.address) as gateway:
            client = await gateway.connect()
            client.send(heartbeat(5))
            assert (await client.end())[-4:] == b"half"
            await until(lambda: gateway.metric("connections_closed_total", cause="upstream"))
            assert gateway.metric("upstream_failures_total", cause="closed") == 1

    run(scenario())


async def _refused_produce(client: Client) -> None:
    from tests.support.frames import produce_request, record_batch

    frame = produce_request(9, [("t", [(0, record_batch(1))])])
    client.send(len(frame).to_bytes(4, "big") + frame)
    answer = raw.decoded(0, 9, await client.frame())
    assert answer["throttle_time_ms"] > 0


def test_a_drain_waits_for_answers_and_not_for_mutes() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({HEARTBEAT: never}) as broker,
            gateway_before(broker.address, quotas=REFUSE_ALL) as gateway,
            asyncio.TaskGroup() as tasks,
        ):
            busy, idle, muted = [await gateway.connect() for _ in range(3)]
            busy.send(heartbeat(1))
            await until(lambda: broker.peers)
            await _refused_produce(muted)
            muted.send(raw.request(METADATA, 1, {"topics": []}))
            drain = tasks.create_task(gateway.gateway.drain())
            assert await idle.end() == b""
            assert await muted.end() == b""
            assert not drain.done()
            with pytest.raises(OSError, match=r"[Cc]onnect"):
                await gateway.connect()
            broker.peers[0].write(bytes.fromhex("00000006 00000001 0000"))
            assert await busy.end() == bytes.fromhex("00000006 00000001 0000")
            await drain

    run(scenario())


def test_a_drain_ends_with_its_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({HEARTBEAT: never}) as broker,
            gateway_before(broker.address, drain_timeout="100ms") as gateway,
        ):
            client = await gateway.connect()
            client.send(heartbeat(1))
            await until(lambda: broker.peers)
            await gateway.gateway.drain()
            assert await client.end() == b""

    run(scenario())
    assert '"connections_cut": 1' in (out := capsys.readouterr().out) or "connections_cut=1" in out


LARGE = bytes(4) + bytes(8 * 1024 * 1024)


async def flood(head: RequestHead, _peer: Peer) -> bytes:
    return len(LARGE).to_bytes(4, "big") + head.correlation_id.to_bytes(4, "big") + LARGE[4:]


def test_a_drain_cuts_off_who_reads_nothing() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({HEARTBEAT: flood}) as broker,
            gateway_before(broker.address, drain_timeout="100ms") as gateway,
        ):
            stuck = await gateway.connect()
            stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stuck.send(heartbeat(1))
            await until(lambda: broker.peers)
            await gateway.gateway.drain()
            assert gateway.metric("connections") == 0

    run(scenario())


def test_a_client_that_reads_nothing_holds_up_nobody_else() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({HEARTBEAT: flood}) as broker, gateway_before(broker.address) as gateway:
            stuck = await gateway.connect()
            stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(20):
                stuck.send(heartbeat(number))
            other = await gateway.connect()
            await until(lambda: broker.peers)
            assert (await other.ask(METADATA, 1, {"topics": []}))["brokers"]
            # 160 MB wait at the broker, and not in the gateway.
            before = gateway.metric("bytes_total", direction="to_clients")
            assert (await other.ask(METADATA, 1, {"topics": []}))["brokers"]
            assert before < 40_000_000
            stuck.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for number in range(20):
                frame = await stuck.frame()
                assert frame[:4] == number.to_bytes(4, "big")
                assert len(frame) == len(LARGE)

    run(scenario())
