"""Faults of the machine: a full or read-only disk, a wall clock that jumps, no free descriptor, an expired certificate.

None needs root: files are limited by RLIMIT_FSIZE, the clock is moved inside the gateway's processes, descriptors are
taken away by a limit that is lowered while it runs.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.fault_load import QUOTAS, FaultLoad
from tests.support.moved_clock import MovedClock
from tests.support.raw import RawClient
from tests.support.running_producers import close_all, move_all, running_producers, send_all, tokens, until
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

METADATA = 3
HOUR_MS = 3_600_000
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def name() -> str:
    return f"machine-{next(_numbers)}"


def is_served(gateway: GatewayProcess) -> bool:
    try:
        with RawClient(gateway.bootstrap_servers, timeout_s=5) as client:
            return bool(client.call(METADATA, 9, {"topics": []})["brokers"])
    except OSError:
        return False


# ---- the state directory -----------------------------------------------------------------------------

_FULL = """
import os, resource, sys
# A file of the log would be as full as the others: what is printed goes through a pipe to somebody without the limit.
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    while data := os.read(reading, 65536):
        os.write(1, data)
    os._exit(0)
os.close(reading)
os.dup2(writing, 1)
os.dup2(writing, 2)
os.close(writing)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
os.execv(sys.argv[1], sys.argv[1:])
"""
_WITHOUT_OVERRIDE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
# Root may write everywhere. Who is not root may not drop it, and need not.
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def gateway_with_state(broker: Cluster, state_dir: Path, program: str) -> GatewayProcess:
    """Started by that program, which gets the command line."""
    return GatewayProcess(
        broker.bootstrap_servers(),
        quotas=QUOTAS,
        settings={"state_dir": str(state_dir)},
        run_by=(sys.executable, "-c", program),
    )


def test_a_full_state_directory_is_in_nobodys_way_and_written_when_there_is_room(
    broker: Cluster, name: str, tmp_path: Path
) -> None:
    with gateway_with_state(broker, tmp_path / "state", _FULL) as gateway:
        assert gateway.pid is not None
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load:
            until(lambda: gateway.metrics().value("pidgate_state_save_failures_total") > 0, 30)
            load.check(gateway)
        (failed, *_) = gateway.log_events("state_not_saved")
        assert failed["cause"]
        assert "make room on the disk" in failed["remedy"]
        assert gateway.metrics().value("pidgate_state_saves_total") == 0
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: gateway.metrics().value("pidgate_state_saves_total") > 0, 30)
        assert gateway.stop() == 0
        gateway.start()
        assert [line["restored_from"] for line in gateway.log_events("state_restored")] == [
            "nothing",
            "state_dir",
        ]


def test_a_read_only_state_directory_is_in_nobodys_way(broker: Cluster, name: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o500)
    with gateway_with_state(broker, state_dir, _WITHOUT_OVERRIDE) as gateway:
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load:
            load.check(gateway)
        named = [*gateway.log_events("state_not_saved"), *gateway.log_events("state_dir_unusable")]
        assert named != []
        assert all("writ" in line["remedy"] for line in named)
        assert gateway.stop() == 0
    assert list(state_dir.iterdir()) == []


# ---- the wall clock ----------------------------------------------------------------------------------


def test_a_wall_clock_that_jumps_both_ways_under_load_is_noticed_by_nobody(
    broker: Cluster, name: str, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path)
    events = {"topic": f"__{name}", "replication_factor": 1}
    with GatewayProcess(
        broker.bootstrap_servers(),
        quotas=QUOTAS,
        settings={"events": events, "state_dir": str(tmp_path / "state")},
        environment=clock.environment,
    ) as gateway:
        with FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load:
            for jump_ms in (2 * HOUR_MS, -5 * HOUR_MS, 3 * HOUR_MS):
                clock.jump(jump_ms)
                time.sleep(3)
            load.check(gateway)
        assert gateway.stop() == 0


@pytest.mark.parametrize("jump_ms", [2 * HOUR_MS, -2 * HOUR_MS], ids=["ahead", "back"])
def test_a_jump_refills_nothing_and_a_restart_behind_it_forgets_nothing(
    broker: Cluster, name: str, tmp_path: Path, jump_ms: int
) -> None:
    clock, rate, number = MovedClock(tmp_path), 100, 10
    quotas = {
        "mode": "enforce",
        "default": {"producer_ids_rate": rate},
        "producer_ids": {"window": "10h", "grace": "0s"},
    }
    topic = create_topic(broker.bootstrap_servers(), name)
    gateway = GatewayProcess(
        broker.bootstrap_servers(),
        quotas=quotas,
        settings={"state_dir": str(tmp_path / "state")},
        environment=clock.environment,
    )

    async def scenario() -> None:
        producers = await running_producers(broker.bootstrap_servers(), topic, number)
        move_all(producers, gateway.bootstrap_servers)
        await send_all(producers)
        before = await asyncio.to_thread(tokens, gateway)
        assert before == pytest.approx(rate - number, abs=0.5)
        clock.jump(jump_ms)
        await asyncio.sleep(2)
        assert await asyncio.to_thread(tokens, gateway) == pytest.approx(before, abs=0.1)
        assert await asyncio.to_thread(gateway.stop) == 0
        await asyncio.to_thread(gateway.start)
        after = await asyncio.to_thread(tokens, gateway)
        assert after == pytest.approx(before, abs=0.5)
        sent = await send_all(producers)
        assert {tuple(one.codes) for one in sent} == {(0,)}
        assert await asyncio.to_thread(tokens, gateway) == pytest.approx(after, abs=0.5), (
            "nobody is charged again"
        )
        close_all(producers)

    with gateway:
        asyncio.run(scenario())


# ---- descriptors -------------------------------------------------------------------------------------


def test_without_a_free_descriptor_it_says_so_and_serves_on_whom_it_has(broker: Cluster, name: str) -> None:
    with GatewayProcess(broker.bootstrap_servers(), quotas=QUOTAS) as gateway:
        pid = gateway.pid
        assert pid is not None
        with (
            FaultLoad(broker.bootstrap_servers(), gateway.bootstrap_servers, name) as load,
            ExitStack() as crowd,
        ):
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = len(os.listdir(f"/proc/{pid}/fd"))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 5, before[1]))
            for _ in range(20):
                with suppress(OSError):
                    crowd.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=2))
            until(lambda: gateway.log_events("open_files_exhausted"), 20)
            time.sleep(3)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            crowd.close()
            load.check(gateway)
        (line, *_) = gateway.log_events("open_files_exhausted")
        assert "ulimit -n" in line["remedy"]
        exhausted = gateway.metrics().value("pidgate_open_files_exhausted_total")
        assert exhausted >= 1
        assert is_served(gateway)
        time.sleep(2)
        assert gateway.metrics().value("pidgate_open_files_exhausted_total") == exhausted


# ---- certificates ------------------------------------------------------------------------------------


def handshake(gateway: GatewayProcess, authority: Authority) -> None:
    """Connect as a client does that verifies. Raises SSLCertVerificationError."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with (
        socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost"),
    ):
        pass


def is_trusted(gateway: GatewayProcess, authority: Authority) -> bool:
    try:
        handshake(gateway, authority)
    except ssl.SSLCertVerificationError as error:
        return "expired" not in str(error)
    return True


def test_an_expired_certificate_keeps_out_who_comes_and_a_new_one_lets_in_without_a_restart(
    broker: Cluster, name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("gateway")
    topic = create_topic(broker.bootstrap_servers(), name)
    listener = {"tls": {"cert_file": str(pair.cert_file), "key_file": str(pair.key_file)}}
    with GatewayProcess(broker.bootstrap_servers(), listener=listener) as gateway:
        producer = Producer(
            {
                "bootstrap.servers": gateway.bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.ca.location": str(authority.ca_file),
                "enable.idempotence": True,
            }
        )

        def goes_on() -> bool:
            producer.produce(topic, b"x")
            return bool(producer.flush(20) == 0)

        assert goes_on()
        authority.issue("gateway", expired=True)
        until(lambda: not is_trusted(gateway, authority), 60)
        assert goes_on(), "connections that are there are not asked again"
        authority.issue("gateway")
        until(lambda: is_trusted(gateway, authority), 60)
        assert goes_on()
        assert gateway.log_events("unexpected_error") == []
