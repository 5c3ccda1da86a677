"""The measurements notice what they are there for; and the attack that needs no trick is held."""

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile.attack import (
    HOSTILE_USER,
    WITH_SASL,
    Attack,
    Case,
    Delivery,
    Place,
    Target,
    cases,
    versions_of,
)
from tests.hostile.attacker import SASL_AUTHENTICATE, authenticate, handshake, plain_token
from tests.hostile.cost import Inside, MiB
from tests.hostile.site import Site, carry_out
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

METADATA = 3

ATTACKS = [
    Attack(
        name="a new id for each request",
        frames=lambda target: [target.produce(version=target.version) for _ in range(20)],
        versions=(9, 3, 8, 12, 13),
    ),
    Attack(
        name="new ids that do not wait for the login",
        frames=lambda target: [
            handshake(),
            authenticate(plain_token(HOSTILE_USER), target.version),
            *(target.produce() for _ in range(20)),
        ],
        versions=versions_of(SASL_AUTHENTICATE),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="garbage",
        frames=lambda target: [struct.pack(">ihhi", 1000, 0, target.version, 1) + b"\xff" * 992],
        versions=(9, 3),
    ),
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)


# ---- the measurements -----------------------------------------------------------------------------------

LOOP = """
import asyncio, sys, time, uvloop

def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass

async def main():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        exec(line)
        print("done", flush=True)

uvloop.run(main())
"""


class Loop:
    """A process with an event loop that does what it is bidden, as a gateway does what it should not."""

    def __init__(self, process: "subprocess.Popen[str]", inside: Inside) -> None:
        self._process = process
        self.inside = inside

    def do(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self.wait_for("done")

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n"


@contextmanager
def loop_process() -> Iterator[Loop]:
    inside = Inside()
    command = [sys.executable, "-P", "-c", LOOP]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=inside.environment) as process:
        loop = Loop(process, inside)
        loop.wait_for("ready")
        yield loop
    inside.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with loop_process() as running:
        yield running


def test_a_busy_loop_is_noticed(loop: Loop) -> None:
    with loop.inside.measuring() as cost:
        loop.do("busy(0.08)")
    assert cost.busy_ms > 70


def test_memory_that_was_freed_again_is_noticed(loop: Loop) -> None:
    with loop.inside.measuring() as cost:
        loop.do("del (a := bytearray(48 << 20))[:]")
    assert 47 * MiB < cost.grown_bytes < 60 * MiB
    with loop.inside.measuring() as cost:
        loop.do("pass")
    assert cost.grown_bytes < MiB


def test_a_process_that_ends_is_noticed() -> None:
    def measured(ending: Loop) -> None:
        with ending.inside.measuring():
            ending.do("print('done', flush=True); import os; os._exit(0)")

    with loop_process() as ending, pytest.raises(AssertionError, match="ended"):
        measured(ending)


@pytest.mark.kafka
def test_without_a_gateway_in_between_the_attack_is_noticed(sasl_cluster: Cluster) -> None:
    """The ids are counted where they matter."""

    class Direct(GatewayProcess):
        @property
        def bootstrap_servers(self) -> str:
            return sasl_cluster.bootstrap_servers()

    with loop_process() as beside:
        gateway = Direct(sasl_cluster.bootstrap_servers())
        place = Place(sasl=False)
        site = Site(sasl_cluster, gateway, beside.inside, place, gateway.bootstrap_servers)
        topic = site.topic()
        with site.under_attack(), site.connect() as attacker:
            frames = [Target(topic, 9, place).produce() for _ in range(5)]
            outcome = attacker.attack(frames, Delivery.ODD_BYTES)
        assert len(outcome.answers) == 5
        assert not outcome.is_closed
        assert len(site.ids_at_brokers(topic)) == 5
