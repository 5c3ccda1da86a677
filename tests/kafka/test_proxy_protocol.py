"""Kafka through HAProxy, the gateway and a relay: HAProxy's header is believed, and the relay reads the gateway's."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from pidgate.protocol import messages
from pidgate.protocol.headers import peek_request
from tests.support import raw
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.log_checks import raise_if_bad
from tests.support.proxy_relay import ProxyRelay
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.ports import free_port
from tools.sandbox.spec import PROXIED, ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

EXAMPLE = Path(__file__).parents[2] / "examples/haproxy/pidgate.yaml"
FRONT = "127.55.44.22"
"""Where clients find HAProxy, at the gateway's own ports."""
PROXY = "127.0.0.9"
"""HAProxy's address as the gateway sees it."""
CLIENT = "127.0.0.77"
NODE_ID = 1

_HAPROXY_CFG = """\
global
    maxconn 200
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
"""
_PORT_CFG = """\
listen port{port}
    bind {front}:{port}
    server gateway 127.0.0.1:{port} send-proxy-v2 proxy-v2-options crc32c source {proxy}
"""


@contextmanager
def relaying(to: tuple[str, int], port: int) -> Iterator[ProxyRelay]:
    """A relay before a broker, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    relay = ProxyRelay(to, port)
    try:
        asyncio.run_coroutine_threadsafe(relay.__aenter__(), loop).result(10)
        yield relay
    finally:
        asyncio.run_coroutine_threadsafe(relay.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def haproxy(folder: Path, ports: list[int]) -> Iterator[None]:
    """HAProxy before these ports of the gateway. Skips where it is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip(
            "haproxy is not installed: the same is tried with made headers in test_proxy_protocol of tests/unit"
        )
    config = folder / "haproxy.cfg"
    config.write_text(
        _HAPROXY_CFG + "".join(_PORT_CFG.format(front=FRONT, port=port, proxy=PROXY) for port in ports)
    )
    with (folder / "haproxy.log").open("wb") as log:
        process = guard.spawn([program, "-db", "-f", str(config)], stdout=log, stderr=log)
    try:
        for port in ports:
            _wait_for(port)
        yield
    finally:
        process.kill()
        process.wait()
        guard.ended(process)


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection((FRONT, port), timeout=5).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"haproxy does not listen on {port}")


class Site:
    """All that stands between a client and the broker."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess, relay: ProxyRelay) -> None:
        self.cluster = cluster
        self.gateway = gateway
        self.relay = relay
        self.servers = f"{FRONT}:{gateway.port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    port = free_port()
    (listener,) = yaml.safe_load(EXAMPLE.read_text().replace("10.0.0.5", PROXY))["listeners"]
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(ClusterSpec(proxied_port=port)))
        relay = stack.enter_context(relaying(cluster.addresses(PROXIED)[NODE_ID], port))
        gateway = GatewayProcess(
            relay.address,
            # As the example has it, but for addresses.
            listener={"advertise": FRONT, "proxy_protocol_from": listener["proxy_protocol_from"]},
            settings={
                "cluster": {"bootstrap_servers": [relay.address], "proxy_protocol": True},
                "limits": {"connections_per_address": 8},
                "log_level": "debug",
            },
        )
        stack.enter_context(gateway)
        ports = [gateway.port, gateway.first_node_port + NODE_ID]
        stack.enter_context(haproxy(tmp_path_factory.mktemp("haproxy"), ports))
        yield Site(cluster, gateway, relay)


def test_a_client_is_served_and_known_by_its_own_address(site: Site) -> None:
    before = len(site.relay.told)
    topic = create_topic(site.cluster.bootstrap_servers(), "behind-proxies", partitions=2)
    load = Load(bootstrap_servers=site.servers, topic=topic, records=60, partitions=2)
    journal = ClientProcess.produce("confluent-kafka", load).wait()
    raise_if_bad(check([journal], read_log(site.cluster.bootstrap_servers(), topic), only_ours=True))
    told = site.relay.told[before:]
    origins = [of for of, _ in told if of is not None]
    assert {of.source[0] for of in origins} == {"127.0.0.1"}
    assert {of.destination[0] for of in origins} == {FRONT}
    # The gateway itself may ask the broker at any time; no connection of a client is passed off as its own.
    own = {peek_request(first, 4, len(first)).client_id for of, first in told if of is None}
    assert own <= {messages.CLIENT_ID}
    assert site.relay.refused == []


def _asks(site: Site, source: str) -> bool:
    """Connect from this address and ask for Metadata; leave the connection open. Returns whether it was answered."""
    client = socket.create_connection((FRONT, site.gateway.port), timeout=10, source_address=(source, 0))
    _open.append(client)
    client.sendall(raw.request(messages.METADATA, 9, {"topics": []}))
    try:
        return bool(client.recv(4))
    except ConnectionResetError:
        return False


_open: list[socket.socket] = []


def test_limits_of_addresses_are_of_clients_not_of_the_proxy(site: Site) -> None:
    try:
        assert [_asks(site, CLIENT) for _ in range(9)] == [True] * 8 + [False]
        assert _asks(site, "127.0.0.78")
        asked = {of.source[0] for of in site.relay.origins}
        assert {CLIENT, "127.0.0.78"} <= asked
    finally:
        while _open:
            _open.pop().close()
    lines = [line for line in site.gateway.log_events("connection_closed") if line["cause"] == "limit"]
    assert {line["address"] for line in lines} == {CLIENT}


def test_a_client_that_goes_past_the_proxy_is_believed_nothing(site: Site) -> None:
    with raw.RawClient(("127.0.0.1", site.gateway.port)) as direct:
        assert direct.call(messages.METADATA, 9, {"topics": []})["brokers"][0]["host"] == FRONT
