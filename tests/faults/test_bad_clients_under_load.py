"""Clients that never read, dribble, or leave in mid-frame, while muted, while refused: beside good ones, and in number.

Nothing of them is left afterwards, and nothing that they did not send whole is in the log.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import pytest

from tests.faults.test_proxy_faults import produce
from tests.support.fault_load import QUOTAS, FaultLoad
from tests.support.raw import RawClient, produce_code
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

NOT_ENOUGH_REPLICAS = 19
HEARTBEAT = bytes.fromhex("0000000a00120063000000070000")
UNSEEN = 800_000
_ids = count(UNSEEN)
_dice = random.Random(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def leave(client: RawClient) -> None:
    """Half of them with a reset, as a process does that is killed with answers unread."""
    if _dice.random() < 0.5:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


def never_reads(address: str, _topic: str, over: threading.Event) -> None:
    with RawClient(address) as client:
        client.socket.settimeout(0.5)
        with suppress(OSError):
            while not over.is_set():
                client.socket.sendall(HEARTBEAT * 5_000)
        over.wait()


def dribbles(address: str, topic: str, over: threading.Event) -> None:
    """A byte a second."""
    with RawClient(address) as client, suppress(OSError):
        for byte in produce(topic, 500):
            client.socket.sendall(bytes((byte,)))
            if over.wait(1.0):
                return


def leaves_in_mid_frame(address: str, topic: str, over: threading.Event) -> None:
    while not over.is_set():
        frame = produce(topic, 2_000)
        with suppress(OSError):
            client = RawClient(address)
            client.send(frame[: _dice.randrange(1, len(frame))])
            leave(client)
        over.wait(0.05)


def leaves_while_muted(address: str, topic: str, over: threading.Event) -> None:
    while not over.is_set():
        with suppress(OSError):
            client = RawClient(address)
            if produce_code(client.ask(produce(topic, 10, producer_id=next(_ids)))) == NOT_ENOUGH_REPLICAS:
                # Held behind the mute, and never forwarded.
                client.send(produce(topic, 10, 2))
            leave(client)
        over.wait(0.05)


def leaves_while_refused(address: str, topic: str, over: threading.Event) -> None:
    """Before the refusal can be written."""
    while not over.is_set():
        with suppress(OSError):
            client = RawClient(address)
            client.send(produce(topic, 10, producer_id=next(_ids)) * 3)
            leave(client)
        over.wait(0.05)


Bad = Callable[[str, str, threading.Event], None]


@pytest.mark.parametrize(
    "bad",
    [never_reads, dribbles, leaves_in_mid_frame, leaves_while_muted, leaves_while_refused],
    ids=lambda bad: bad.__name__.replace("_", " "),
)
def test_beside_bad_clients_everybody_gets_through(broker: Cluster, bad: Bad) -> None:
    name = bad.__name__.replace("_", "-")
    topic = create_topic(broker.bootstrap_servers(), f"{name}-bad")
    with GatewayProcess(broker.bootstrap_servers(), quotas=QUOTAS) as gateway:
        over = threading.Event()
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load:
            # Who comes later takes the tokens that good ones would wait for: they are of one user.
            load.wait_until_all_run()
            crowd = [
                threading.Thread(target=bad, args=(gateway.bootstrap_servers, topic, over)) for _ in range(10)
            ]
            for thread in crowd:
                thread.start()
            time.sleep(8)
            load.check(gateway)
            over.set()
            for thread in crowd:
                thread.join(30)
        until(lambda: gateway.metrics().value("pidgate_connections") == 0)
        until(lambda: gateway.metrics().value("pidgate_buffered_bytes") == 0)
        until(lambda: gateway.metrics().value("pidgate_connections_muted") == 0)
        # Of one user all; the quota of a burst and a token each six seconds is all that can be in the log.
        written = len(read_log(broker.bootstrap_servers(), topic))
        assert written == 0 if bad in (never_reads, dribbles, leaves_in_mid_frame) else written < 40, written
