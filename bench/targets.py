"""What a load can go through: nothing, the bare pass-through, HAProxy, pidgate; a fresh process each time."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cold_client import FAILURES, connect
from bench.compiled import compiled, environment
from bench.machine import come_first
from pidgate.load.plan import Address

ROOT: Final = Path(__file__).resolve().parent.parent
ORDINARY: Final = ("direct", "bare", "haproxy", "pidgate")
PLAIN: Final = "plain"
"""pidgate without compiled modules."""
TWO_WORKERS: Final = "2-workers"
TARGETS: Final = (*ORDINARY, PLAIN, TWO_WORKERS)
OTHER_COMMIT: Final = "other-commit"
"""pidgate of another commit; only with `--against`."""
BASELINE: Final = "bare"

_START_PATIENCE_S: Final = 30.0
_STOP_PATIENCE_S: Final = 10.0

_HAPROXY_CFG: Final = """\
global
  nbthread 1
  maxconn 9000
defaults
  mode tcp
  timeout connect 10s
  timeout client 10m
  timeout server 10m
frontend clients
  bind {host}:{port}
  default_backend kafka
backend kafka
  server broker {broker}
"""

# Enforced, and so generous that nobody is refused: what is measured is the ordinary path.
GENEROUS: Final[Mapping[str, Any]] = {"mode": "enforce", "default": {"producer_ids_rate": 1000}}

# Events go to a topic of this process alone: no gateway remembers what an earlier one of the bench admitted.
_PIDGATE_YAML: Final = """\
cluster: {{bootstrap_servers: ["{broker}"]}}
listeners:
  - {{bind: "127.0.0.1:{bootstrap_port}", advertise: "127.0.0.1", node_ports: {{first: {first_port}}}}}
quotas: {quotas}
workers: {workers}
events: {{topic: {events_topic}}}
admin: {{bind: "127.0.0.1:{admin_port}"}}
log: {{level: warning}}
"""


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that holds the gateway's packages, and the module in it that is the command."""

    folder: Path
    module: str = "pidgate"

    @classmethod
    def parse(cls, text: str) -> "Tree":
        """Return the tree that `FOLDER[:MODULE]` names."""
        folder, _, module = text.partition(":")
        return cls(Path(folder).resolve(), module or "pidgate")


class TargetFailed(Exception):
    """A proxy did not start or died; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The one real broker behind every target."""

    node_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class Running:
    """Where to send, and the process whose cost counts (None: there is none between)."""

    address: Address
    pid: int | None


def is_available(target: str) -> bool:
    """Whether this machine can run it: HAProxy is never required."""
    return target != "haproxy" or shutil.which("haproxy") is not None


@contextmanager
def running(
    target: str,
    broker: Broker,
    folder: Path,
    cpus: set[int] | None,
    quotas: Mapping[str, Any] = GENEROUS,
    other: Tree | None = None,
) -> Iterator[Running]:
    """Run the target in front of `broker`, on the processors `cpus`, until the block ends.

    `other`: what OTHER_COMMIT is.
    """
    if target == "direct":
        yield Running(broker.address, None)
        return
    tree = _tree(target, other)
    command, address, ready_url = _command(target, broker, folder, quotas, tree.module)
    with (folder / f"{target}.log").open("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(tree.folder) if ready_url else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if cpus:
                os.sched_setaffinity(process.pid, cpus)
            inherited = os.getpriority(os.PRIO_PROCESS, 0)
            if inherited:
                come_first(process.pid, inherited)
            _wait_until_it_forwards(address, process, Path(output.name))
            if ready_url:
                _wait_until_it_is_ready(ready_url, address, _workers(target), process, Path(output.name))
            yield Running(address, process.pid)
            if process.poll() is not None:
                raise TargetFailed(f"{target} ended during the run:\n{_tail(Path(output.name))}")
        finally:
            _stop(process)


def _tree(target: str, other: Tree | None) -> Tree:
    if target == OTHER_COMMIT and other is not None:
        return other
    return Tree(compiled() if target in ("pidgate", TWO_WORKERS) else ROOT)


def _workers(target: str) -> int:
    return 2 if target == TWO_WORKERS else 1


def _command(
    target: str, broker: Broker, folder: Path, quotas: Mapping[str, Any], module: str
) -> tuple[list[str], Address, str | None]:
    """The command, where it listens, and where it says whether it is ready if it does."""
    host = "127.0.0.1"
    if target == "bare":
        port = free_ports(1)
        return [sys.executable, "-m", "bench.bare_proxy", f"{host}:{port}", str(broker)], (host, port), None
    if target == "haproxy":
        port = free_ports(1)
        config = folder / "haproxy.cfg"
        config.write_text(_HAPROXY_CFG.format(host=host, port=port, broker=broker))
        return ["haproxy", "-db", "-f", str(config)], (host, port), None
    bootstrap_port = free_ports(2 + broker.node_id + 1)
    first_port = bootstrap_port + 2
    config = folder / "pidgate.yaml"
    config.write_text(
        _PIDGATE_YAML.format(
            broker=broker,
            bootstrap_port=bootstrap_port,
            admin_port=bootstrap_port + 1,
            first_port=first_port,
            quotas=json.dumps(quotas),
            workers=_workers(target),
            events_topic=f"__pidgate_bench_{time.monotonic_ns()}",
        )
    )
    command = [sys.executable, "-m", module, "run", "--config", str(config)]
    ready_url = f"http://{host}:{bootstrap_port + 1}/readyz"
    return command, (host, first_port + broker.node_id), ready_url


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that nobody listens on now."""
    # Below the range that the kernel gives to outgoing connections.
    for first in range(21_000 + os.getpid() % 500 * 20, 32_000 - count, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise TargetFailed(f"no {count} consecutive free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait_until_it_forwards(address: Address, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_PATIENCE_S
    reason: Exception | None = None
    while time.monotonic() < deadline and process.poll() is None:
        try:
            connect(address).close()
            return
        except FAILURES as error:
            reason = error
            time.sleep(0.1)
    raise TargetFailed(f"{log.stem} does not forward: {reason}\n{_tail(log)}")


def _wait_until_it_is_ready(
    url: str, address: Address, workers: int, process: subprocess.Popen[bytes], log: Path
) -> None:
    """Ready is said when one worker is; each of them has a socket of its own for the same port."""
    deadline = time.monotonic() + _START_PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(url) and sockets_listening(address[1]) >= workers:
            return
        time.sleep(0.1)
    raise TargetFailed(f"{log.stem} is not ready:\n{_tail(log)}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def sockets_listening(port: int) -> int:
    """How many sockets listen on this port, over IPv4."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [local for _, local, _, state, *_ in rows if state == "0A"]
    return sum(int(local.rpartition(":")[2], 16) == port for local in listening)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
