"""What a load can go through: nothing, the bare pass-through, HAProxy, pidgate; a fresh process each time."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cold_client import Address, connect, say_hello
from bench.machine import come_first
from bench.wire import LoadError

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = ("direct", "bare", "haproxy", "pidgate")
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

# Quotas enforced, and so generous that nobody is refused: what is measured is the ordinary path.
_PIDGATE_YAML: Final = """\
cluster: {{bootstrap_servers: ["{broker}"]}}
listeners:
  - {{bind: "127.0.0.1:{bootstrap_port}", advertise: "127.0.0.1", node_ports: {{first: {first_port}}}}}
quotas:
  mode: enforce
  default: {{producer_ids_rate: 1000}}
admin: {{bind: "127.0.0.1:{admin_port}"}}
log: {{level: warning}}
"""


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
def running(target: str, broker: Broker, folder: Path, cpus: set[int] | None) -> Iterator[Running]:
    """The target in front of `broker`, on the processors `cpus`, until the block ends."""
    if target == "direct":
        yield Running(broker.address, None)
        return
    command, address = _command(target, broker, folder)
    with (folder / f"{target}.log").open("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
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
            yield Running(address, process.pid)
            if process.poll() is not None:
                raise TargetFailed(f"{target} ended during the run:\n{_tail(Path(output.name))}")
        finally:
            _stop(process)


def _command(target: str, broker: Broker, folder: Path) -> tuple[list[str], Address]:
    host = "127.0.0.1"
    if target == "bare":
        port = free_ports(1)
        return [sys.executable, "-m", "bench.bare_proxy", f"{host}:{port}", str(broker)], (host, port)
    if target == "haproxy":
        port = free_ports(1)
        config = folder / "haproxy.cfg"
        config.write_text(_HAPROXY_CFG.format(host=host, port=port, broker=broker))
        return ["haproxy", "-db", "-f", str(config)], (host, port)
    bootstrap_port = free_ports(2 + broker.node_id + 1)
    first_port = bootstrap_port + 2
    config = folder / "pidgate.yaml"
    config.write_text(
        _PIDGATE_YAML.format(
            broker=broker, bootstrap_port=bootstrap_port, admin_port=bootstrap_port + 1, first_port=first_port
        )
    )
    command = [sys.executable, "-m", "gateway.cli.app", "run", "--config", str(config)]
    return command, (host, first_port + broker.node_id)


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
            with connect(address) as connection:
                say_hello(connection)
                return
        except (OSError, LoadError) as error:
            reason = error
            time.sleep(0.1)
    raise TargetFailed(f"{log.stem} does not forward: {reason}\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
