"""The commands of examples/*/README.md, typed as they are, but for addresses, ports and folders.

Examples with TLS or a login are run by tests of their own, as their README says; haproxy by tests/faults.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tools.sandbox import guard
from tools.sandbox.kafka import Cluster
from tools.sandbox.ports import free_block, free_port, give_back
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PIDGATE = str(Path(sys.executable).with_name("pidgate"))
NODES = (1, 2, 3)
PORTS = 16
COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
READY_WITHIN_S = 180.0
COMMAND_WITHIN_S = 180.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(node_ids=NODES, ready_within_s=180)) as cluster:
        yield cluster


class Machine:
    """One machine of an example: its copy of the folder, where some words are replaced, and its gateways."""

    def __init__(self, example: str, folder: Path, replaced: Mapping[str, str]) -> None:
        self._page = (ROOT / "examples" / example / "README.md").read_text()
        self._folder = folder
        self._replaced = {"/etc/pidgate": str(folder), "/var/lib/pidgate": f"{folder}/state", **replaced}
        self._started: list[tuple[subprocess.Popen[bytes], str]] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").mkdir()
        for file in (ROOT / "examples" / example).glob("*.yaml"):
            (folder / file.name).write_text(self._here(file.read_text()))
        for name in ("token", "token.scrape"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(f"the-{name}\n")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        running = [process for process, admin in self._started]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            guard.ended(process)

    def _here(self, text: str) -> str:
        for word, here in self._replaced.items():
            text = text.replace(word, here)
        return text

    def commands(self, *, run: bool | None = None) -> list[list[str]]:
        """Return the commands of the page; `run`: those that start a gateway, or the others."""
        lines = [
            line.partition("#")[0].strip()
            for block in COMMANDS.findall(self._page)
            for line in block.splitlines()
        ]
        commands = [shlex.split(self._here(line)) for line in lines if line.startswith("pidgate ")]
        return [command for command in commands if run is None or (command[1] == "run") is run]

    def run(self, command: Sequence[str]) -> None:
        """Start a gateway, and wait until it is ready."""
        log = self._folder / f"log-{len(self._started)}"
        with log.open("wb") as output:
            process = guard.spawn([PIDGATE, *command[1:]], cwd=self._folder, stdout=output, stderr=output)
        admin = self._admin(command)
        self._started.append((process, admin))
        give_up_s = time.monotonic() + READY_WITHIN_S
        while not self._is_ready(admin):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_s, log.read_text()
            time.sleep(0.1)

    def _admin(self, command: Sequence[str]) -> str:
        if "--admin" in command:
            return command[command.index("--admin") + 1]
        (port,) = re.findall(
            r'^admin: \{bind: "?[\d.]+:(\d+)', (self._folder / command[-1]).read_text(), re.MULTILINE
        )
        return f"127.0.0.1:{port}"

    def _is_ready(self, admin: str) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://{admin}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def types(self, command: Sequence[str]) -> str:
        """Run a command to its end, and return what it printed."""
        more = ["--duration", "5s"] if command[1] == "load" and "--duration" not in command else []
        if command[1] in ("explain", "who") and "--admin" not in command:
            more = ["--admin", self._started[0][1]]
        done = subprocess.run(
            [PIDGATE, *command[1:], *more],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_WITHIN_S,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return " ".join(done.stdout.split())

    def play(self) -> dict[str, str]:
        """Type every command; return what each one that ends has printed."""
        told = {}
        for command in self.commands():
            if command[1] == "run":
                self.run(command)
            else:
                told[" ".join(command[1:])] = self.types(command)
        return told


@pytest.fixture
def ports() -> Iterator[int]:
    first = free_block(PORTS)
    yield first
    give_back(first, PORTS)


def on_loopback(brokers: Cluster, first: int, *servers: str) -> dict[str, str]:
    """Return replacements of a file's addresses by some of this machine."""
    here = brokers.bootstrap_servers().split(",")
    return {
        **dict(zip(servers, here, strict=False)),
        "0.0.0.0:": "127.0.0.1:",
        "gw.example": "127.0.0.1",
        "9290": str(first),
        "9291": str(first + 1),
        "9292": str(first + 2),
        "first: 9300": f"first: {first + 3}",
    }


def of_kind(told: Mapping[str, str], start: str) -> str:
    return next(text for command, text in told.items() if command.startswith(start))


def test_laptop(cluster: Cluster, ports: int, tmp_path: Path) -> None:
    replaced = on_loopback(cluster, ports, "127.0.0.1:19092")
    with Machine("laptop", tmp_path / "laptop", replaced) as machine:
        told = machine.play()
    assert re.search(r"\b21\b", of_kind(told, "load")), told
    assert "Last refused: " in of_kind(told, "explain")
    assert "ANONYMOUS" in of_kind(told, "who")


def test_rogues_are_refused_and_the_healthy_client_is_not(
    cluster: Cluster, ports: int, tmp_path: Path
) -> None:
    replaced = on_loopback(cluster, ports, "127.0.0.1:19092")
    with Machine("rogues", tmp_path / "rogues", replaced) as machine:
        (run,) = machine.commands(run=True)
        machine.run(run)
        loads = [command for command in machine.commands(run=False) if command[1] == "load"]
        told = {
            command[command.index("--client-id") + 1]: machine.types([*command, "--json"])
            for command in loads
        }
        who = machine.types(machine.commands(run=False)[-1])
    totals = {client: json.loads(text)["total"] for client, text in told.items()}
    assert (totals["healthy"]["ids"], totals["healthy"]["refused"], totals["healthy"]["lost"]) == (4, {}, 0)
    rogues = [total for client, total in totals.items() if client != "healthy"]
    assert len(rogues) == 3
    assert all(total["refused"] for total in rogues)
    assert "crash" in who


def test_front_before_three_brokers(brokers: Cluster, ports: int, tmp_path: Path) -> None:
    replaced = on_loopback(brokers, ports, "k1.example:9092", "k2.example:9092", "k3.example:9092")
    with Machine("front", tmp_path / "front", replaced) as machine:
        told = machine.play()
    assert "3" in of_kind(told, "load")
    assert "gateway is ready" in of_kind(told, "doctor")


def test_a_sidecar_for_each_of_three_brokers(brokers: Cluster, tmp_path: Path) -> None:
    port, admins = free_port(), [free_port() for _ in NODES]
    with ExitStack() as stack:
        machines = []
        for node_id, admin in zip(NODES, admins, strict=True):
            host, real = brokers.nodes[node_id]
            replaced = {
                "127.0.0.1:19092": f"{host}:{real}",
                "gw-3.example:9092": f"127.78.1.3:{port}",
                "gw-{node_id}.example:9092": f"127.78.1.{{node_id}}:{port}",
                "0.0.0.0:9092": f"127.78.1.{node_id}:{port}",
                "0.0.0.0:9290": f"127.0.0.1:{admin}",
                "only_node: 3": f"only_node: {node_id}",
            }
            machine = stack.enter_context(Machine("sidecar", tmp_path / f"broker-{node_id}", replaced))
            (run,) = machine.commands(run=True)
            machine.run(run)
            machines.append(machine)
        *_, load = machines[0].commands(run=False)
        told = machines[0].types([*load, "--json"])
    total = json.loads(told)["total"]
    assert total["acknowledged"] == total["due"] > 80
    # One connection to a leader for each of the three producers.
    assert total["connection_errors"] == 0


def test_a_fleet_on_one_machine(brokers: Cluster, ports: int, tmp_path: Path) -> None:
    replaced = on_loopback(brokers, ports, "k1.example:9092", "k2.example:9092", "k3.example:9092")
    with Machine("fleet", tmp_path / "fleet", replaced) as machine:
        told = machine.play()
    doctor = of_kind(told, "doctor")
    assert doctor.count("the gateway is ready") == 2
