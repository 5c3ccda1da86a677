"""Connections that hold what others need: memory by beginnings of large requests, brokers and room by silence."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pidgate.gateway.proxy.connection_quotas import LEAST_STRANGERS
from tests.hostile.attack import HOSTILE_USER, Place, Target
from tests.hostile.attacker import Attacker
from tests.hostile.cost import MiB
from tests.hostile.site import HONEST_USER, Site, running_site
from tests.support.frames import Topics, framed, produce_request, record_batch
from tests.support.raw import Closed, request
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

PLACES = [Place(sasl=True), Place(sasl=False)]
FRAME_BYTES = 100_000_000
BEGINNING_BYTES = 60_000_000
TRICKLE_BYTES_PER_S = 20_000
HONEST_BYTES = 400_000
BUFFERED_BYTES = 128 * MiB
API_VERSIONS = 18


@pytest.fixture(scope="module", params=PLACES, ids=str)
def gateway_site(sasl_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Site]:
    limits = {"buffered_total": str(BUFFERED_BYTES), "connections": 400}
    with running_site(sasl_cluster, request.param, settings={"limits": limits}) as site:
        yield site


def trickle(attacker: Attacker, done: threading.Event) -> None:
    """Send the large beginning of a request as fast as it is taken, then a little each second."""
    attacker.socket.settimeout(0.5)
    # A Produce, so that nothing but its size is wrong with it.
    head = framed(produce_request(9, [("t", [(0, record_batch(-1))])]))[4:30]
    with suppress(OSError):
        attacker.socket.sendall(FRAME_BYTES.to_bytes(4, "big") + head)
    rest = BEGINNING_BYTES
    while not done.is_set():
        with suppress(TimeoutError):
            try:
                rest -= attacker.socket.send(bytes(min(max(rest, TRICKLE_BYTES_PER_S // 20), 1_000_000)))
            except TimeoutError:
                continue
            except OSError:
                return
        if rest <= 0:
            done.wait(0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("attackers", [2, 12])
def test_beginnings_of_large_requests_keep_nobody_waiting(gateway_site: Site, attackers: int) -> None:
    done = threading.Event()
    # To no topic, which the broker answers without a look at the records.
    topics: Topics = [("nobody-has-it", [(0, record_batch(-1, records=bytes(HONEST_BYTES)))])]
    honest_frame = framed(produce_request(9, topics))
    waits_s = []
    with ExitStack() as stack:
        hogs = [stack.enter_context(gateway_site.connect(HOSTILE_USER)) for _ in range(attackers)]
        with gateway_site.under_attack(share_bytes=BUFFERED_BYTES + FRAME_BYTES, log_lines=2):
            threads = [threading.Thread(target=trickle, args=(hog, done), daemon=True) for hog in hogs]
            for thread in threads:
                thread.start()
            time.sleep(1.5)
            with gateway_site.connect(HONEST_USER) as honest:
                for _ in range(20):
                    began_s = time.monotonic()
                    honest.ask(honest_frame)
                    waits_s.append(time.monotonic() - began_s)
            done.set()
            for thread in threads:
                thread.join()
    # By the clock of a busy machine, and with the broker's own time: whoever had to wait for memory waits for 5 s.
    assert max(waits_s) < 3, waits_s


def sockets_of(site: Site) -> int:
    """Return how many sockets the gateway's processes have open, to clients and to brokers."""
    count = 0
    for process in site.processes:
        for link in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                count += os.readlink(link).startswith("socket:")
    return count


@pytest.mark.nightly
def test_silent_connections_reach_no_broker_and_take_no_room(gateway_site: Site) -> None:
    before = sockets_of(gateway_site)
    with ExitStack() as stack, gateway_site.under_attack(log_lines=2):
        silent = [stack.enter_context(gateway_site.connect()) for _ in range(300)]
        time.sleep(0.5)
        assert sockets_of(gateway_site) - before < LEAST_STRANGERS + 40
        # More than their share: those that have been silent give way.
        silent += [stack.enter_context(gateway_site.connect()) for _ in range(300)]
        time.sleep(1.5)
        with gateway_site.connect(HONEST_USER) as honest:
            honest.ask(Target(gateway_site.topic(), 9, gateway_site.place).produce(-1))
        metrics = gateway_site.gateway.metrics()
        assert metrics.value("pidgate_connections_limited_total", limit="silent") > 0
    deadline_s = time.monotonic() + 40  # they are closed 30 s after they connected
    while gateway_site.gateway.metrics().value("pidgate_connections") > 10:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


PLACES_IN_ALL = 400
STRANGERS = 60
"""More than their share of the room; each asks for ApiVersions alone, which needs no credentials, and comes again."""
GETS_IN_S = 12.0
"""By the clock of a busy machine. Strangers are closed after 30 s without a login."""


def hold_places(site: Site, done: threading.Event) -> None:
    """Keep one connection open that has asked for ApiVersions, until it is closed; then the next one."""
    while not done.is_set():
        with suppress(OSError, Closed), site.connect() as stranger:
            stranger.ask(request(API_VERSIONS, 3))
            stranger.socket.settimeout(0.2)
            while not done.is_set():
                with suppress(TimeoutError):
                    if not stranger.socket.recv(1):
                        break


def test_who_has_not_logged_in_keeps_no_user_out(sasl_cluster: Cluster) -> None:
    limits, place = {"connections": PLACES_IN_ALL}, Place()
    done = threading.Event()
    with running_site(sasl_cluster, place, settings={"limits": limits}) as site, ExitStack() as stack:
        before = sockets_of(site)
        with site.under_attack(log_lines=2):
            strangers = [
                threading.Thread(target=hold_places, args=(site, done), daemon=True) for _ in range(STRANGERS)
            ]
            stack.callback(done.set)
            for stranger in strangers:
                stranger.start()
            time.sleep(2)
            held = site.gateway.metrics().value("pidgate_connections")
            # A few are accepted before the pause begins, and the site has connections of its own.
            assert LEAST_STRANGERS - 4 <= held <= LEAST_STRANGERS + 8 < STRANGERS
            assert sockets_of(site) - before <= LEAST_STRANGERS + 8, "strangers hold broker connections"
            began_s = time.monotonic()
            while True:
                with suppress(OSError, Closed), site.connect(HONEST_USER) as honest:
                    honest.ask(Target(site.topic(), 9, place).produce(-1))
                    break
                assert time.monotonic() - began_s < GETS_IN_S, "strangers hold all places"
            assert time.monotonic() - began_s < GETS_IN_S
            done.set()
            for stranger in strangers:
                stranger.join()
        assert site.gateway.metrics().value("pidgate_connections_limited_total", limit="silent") > 0


MOST = 10
TRIED = 20
REPORTED_S = 0.1


def is_open(client: Attacker) -> bool:
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_user_has_so_many_connections(sasl_cluster: Cluster) -> None:
    limits = {"connections_per_user": MOST}
    place = Place()
    with running_site(sasl_cluster, place, settings={"limits": limits}) as site, ExitStack() as stack:
        with site.under_attack(log_lines=2):
            mine = []
            for _ in range(TRIED):
                mine.append(stack.enter_context(site.connect(HOSTILE_USER)))
                time.sleep(REPORTED_S)
            time.sleep(0.5)
            left = sum(map(is_open, mine))
        assert left == MOST
        closed = TRIED - MOST
        assert site.counted(closed, "pidgate_connections_limited_total", limit="user") == closed


@pytest.mark.nightly
def test_a_crash_loop_of_connections_waits_and_nobody_else_does(sasl_cluster: Cluster) -> None:
    limits = {"connections_rate_per_user": 2}
    place = Place()
    with running_site(sasl_cluster, place, settings={"limits": limits}) as site:
        with site.under_attack(log_lines=2):
            for _ in range(40):  # ten seconds' worth come at once
                site.connect(HOSTILE_USER).close()
            began_s = time.monotonic()
            with site.connect(HOSTILE_USER) as hasty:
                hasty.ask(Target(site.topic(), 9, place).produce(-1))
        assert time.monotonic() - began_s > 1
        assert site.gateway.metrics().value("pidgate_connections_delayed_total", limit="user") > 0
