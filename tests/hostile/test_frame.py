"""The measurements notice what they are there for; and the attack that needs no trick is held."""

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile.attack import (
    ENFORCED,
    HOSTILE_USER,
    PLACES,
    WITH_SASL,
    Attack,
    Case,
    Delivery,
    Place,
    Target,
    cases,
    versions_of,
)
from tests.hostile.attacker import SASL_AUTHENTICATE, authenticate, handshake, odd_parts, plain_token
from tests.hostile.cost import Inside, MiB
from tests.hostile.inside.sitecustomize import Cell
from tests.hostile.site import Site, carry_out
from tests.support.raw import request
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


def test_a_machine_that_is_busy_elsewhere_is_not(loop: Loop) -> None:
    with loop.inside.measuring() as cost:
        loop.do("time.sleep(0.08)")
    assert cost.late_ms > 70
    assert cost.busy_ms < 40


def test_memory_that_was_freed_again_is_noticed(loop: Loop) -> None:
    with loop.inside.measuring() as cost:
        loop.do("del (a := bytearray(48 << 20))[:]")
    assert 47 * MiB < cost.grown_bytes < 60 * MiB
    with loop.inside.measuring() as cost:
        loop.do("pass")
    assert cost.grown_bytes < MiB


def test_memory_that_an_attack_before_left_free_hides_nothing(loop: Loop) -> None:
    small = "a = [bytes(1000) for _ in range(40_000)]; del a"
    loop.do(small)
    with loop.inside.measuring() as cost:
        loop.do(small)
    assert cost.grown_bytes > 30 * MiB


def test_a_measuring_that_begins_while_a_process_writes_begins_anew(tmp_path: Path) -> None:
    of_process = Cell.create(tmp_path / "1")
    of_test = Cell(tmp_path / "1")
    read = of_process.measured
    of_test.wanted += 1
    of_process.measured = read
    assert of_test.measured.number != of_process.wanted == 1


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


def test_odd_parts_are_the_whole() -> None:
    for size in (0, 1, 399, 400, 401, 5_000, 300_000):
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        parts = list(odd_parts(data))
        assert b"".join(parts) == data
        assert {1, 2, 3} <= {len(part) for part in parts} or size < 10


def test_by_day_an_attack_is_carried_out_once() -> None:
    attack = Attack(name="x", frames=lambda _: [request(METADATA, 9)], versions=(9, 8), places=ENFORCED)
    params = cases([attack]).args[1]
    assert len(params) == 2 * len(Delivery) * sum(place.mode == "enforce" for place in PLACES)
    by_day = [param.id for param in params if pytest.mark.nightly not in param.marks]
    assert by_day == ["x, v9, odd bytes, SASL, enforce"]
