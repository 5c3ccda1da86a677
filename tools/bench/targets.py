"""Targets that a load can go through: nothing, a bare pass-through, HAProxy, pidgate; a fresh process each time.

Clients that ask the broker for its address (all but the raw loads) must find the proxy there. pidgate sees to that by
itself; for the others the broker has a listener of its own (PROXIED) that names the one port where they stand.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from pidgate.load.plan import Address
from tools.bench.bare_proxy import SHAPES
from tools.bench.compiled import compiled, environment
from tools.bench.loads.client import FAILURES, connect
from tools.bench.machine import come_first, pin
from tools.bench.tls import TLS_TARGETS, Front, front, has_tls
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayNotReady, GatewayProcess
from tools.sandbox.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
BARE: Final = (*SHAPES,)
BASELINE: Final = "bare"
"""In goals and scenarios: whichever of BARE is the cheaper one there."""
ORDINARY: Final = ("direct", *BARE, "haproxy", "pidgate")
HAPROXY_THREADS: Final = "haproxy-threads"
"""HAProxy with a thread for each core, on all of them."""
PIDGATE_THREADS: Final = "pidgate-threads"
"""pidgate with a lane for each core, on all of them."""
PLAIN: Final = "plain"
"""pidgate without compiled modules."""
TARGETS: Final = (*ORDINARY, HAPROXY_THREADS, PIDGATE_THREADS, PLAIN, *TLS_TARGETS)
OTHER_COMMIT: Final = "other-commit"
"""pidgate of another commit; only with `--against`."""

_START_PATIENCE_S: Final = 30.0
_HOST: Final = "127.0.0.1"

_HAPROXY_CFG: Final = """\
global
  nbthread {threads}
  maxconn 9000
  maxpipes 256
defaults
  mode tcp
  option splice-auto
  timeout connect 10s
  timeout client 10m
  timeout server 10m
frontend clients
  bind {host}:{port}{tls}
  default_backend kafka
backend kafka
  server broker {broker}
"""

# Enforced, and so generous that nobody is refused: what is measured is the ordinary path.
GENEROUS: Final[Mapping[str, Any]] = {"mode": "enforce", "default": {"producer_ids_rate": 1000}}


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
    proxied: Address
    """Its listener behind a proxy that rewrites nothing."""
    proxy_port: int
    """Address to which that listener sends clients."""

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


class Running(NamedTuple):
    """Address to send to, and the process whose cost counts (None: there is none between)."""

    address: Address
    pid: int | None


class Proxy(guard.GuardedProcess):
    """A pass-through in a process of its own."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = guard.spawn(self._command, stdout=log, stderr=log, cwd=ROOT)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def is_available(target: str) -> bool:
    """Return whether this machine can run it: HAProxy is never required."""
    if target in TLS_TARGETS:
        return has_tls()
    return target not in ("haproxy", HAPROXY_THREADS) or shutil.which("haproxy") is not None


@contextmanager
def running(
    target: str,
    broker: Broker,
    folder: Path,
    cpus: set[int] | None,
    quotas: Mapping[str, Any] = GENEROUS,
    other: Tree | None = None,
) -> Iterator[Running]:
    """Run the target in front of `broker`, on the processors `cpus`, until the block ends. Raises TargetFailed.

    `other`: what OTHER_COMMIT is.
    """
    if target == "direct":
        yield Running(broker.address, None)
        return
    # Where loads speak to; TLS begins behind it.
    front_port = free_port() if target in TLS_TARGETS else None
    proxy, port, before = _proxy(target, broker, folder, quotas, other, front_port)
    try:
        with ExitStack() as stack:
            if before is not None and front_port is not None:
                stack.enter_context(Proxy(before.command, folder / f"{target}-front.log"))
                port = front_port
            stack.enter_context(proxy)
            assert proxy.pid is not None
            pin(proxy.pid, os.sched_getaffinity(0) if target in (HAPROXY_THREADS, PIDGATE_THREADS) else cpus)
            inherited = os.getpriority(os.PRIO_PROCESS, 0)
            if inherited:
                come_first(proxy.pid, inherited)
            _wait_until_it_forwards(proxy, target, (_HOST, port))
            yield Running((_HOST, port), proxy.pid)
            if not proxy.is_alive:
                raise TargetFailed(f"{target} ended during the run:\n{proxy.log_tail()}")
            if isinstance(proxy, GatewayProcess):
                proxy.stop()
    except GatewayNotReady as error:
        raise TargetFailed(f"{target}: {error}") from error


def _proxy(
    target: str,
    broker: Broker,
    folder: Path,
    quotas: Mapping[str, Any],
    other: Tree | None,
    front_port: int | None,
) -> tuple[Proxy | GatewayProcess, int, Front | None]:
    """The process, not started, the port it forwards to the broker from, and what speaks TLS to that port."""
    port, log = broker.proxy_port, folder / f"{target}.log"
    behind = f"{broker.proxied[0]}:{broker.proxied[1]}"
    if target in BARE:
        command = [sys.executable, "-m", "tools.bench.bare_proxy", target, f"{_HOST}:{port}", behind]
        return Proxy(command, log), port, None
    if TLS_TARGETS.get(target, target) in ("haproxy", HAPROXY_THREADS):
        before = None if front_port is None else front(folder, _HOST, front_port, port)
        config = folder / "haproxy.cfg"
        tls = "" if before is None else before.bind_of_haproxy
        threads = len(os.sched_getaffinity(0)) if target == HAPROXY_THREADS else 1
        config.write_text(_HAPROXY_CFG.format(host=_HOST, port=port, tls=tls, broker=behind, threads=threads))
        return Proxy(["haproxy", "-db", "-f", str(config)], log), port, before
    if target != OTHER_COMMIT or other is None:
        other = Tree(ROOT if target == PLAIN else compiled())
    gateway = GatewayProcess(
        str(broker),
        quotas=quotas,
        settings={
            # A topic of its own: no gateway remembers what an earlier one of the bench admitted.
            "events": {"topic": f"__pidgate_bench_{time.monotonic_ns()}"},
            "log_level": "warning",
            "lanes": len(os.sched_getaffinity(0)) if target == PIDGATE_THREADS else "auto",
        },
        node_ids=(broker.node_id,),
        ready_within_s=_START_PATIENCE_S,
        environment=environment(other.folder),
        module=other.module,
    )
    port = gateway.first_node_port + broker.node_id
    before = None if front_port is None else front(folder, _HOST, front_port, port)
    if before is not None:
        gateway.config["listeners"][0]["tls"] = before.of_listener
    return gateway, port, before


def _wait_until_it_forwards(proxy: Proxy | GatewayProcess, target: str, address: Address) -> None:
    give_up_s = time.monotonic() + _START_PATIENCE_S
    reason: Exception | None = None
    while time.monotonic() < give_up_s and proxy.is_alive:
        try:
            connect(address).close()
            return
        except FAILURES as error:
            reason = error
        time.sleep(0.1)
    raise TargetFailed(f"{target} does not forward: {reason}\n{proxy.log_tail()}")


@contextmanager
def answering(broker: Broker, folder: Path, cpus: set[int] | None) -> Iterator[tuple[Broker, int]]:
    """Run a broker that answers producers at once, where `broker` sends the clients of its proxies; yield its pid, too.

    So a gateway that has learnt its cluster there stays there.
    """
    here, behind = (_HOST, broker.proxy_port), f"{broker.proxied[0]}:{broker.proxied[1]}"
    command = [sys.executable, "-m", "tools.bench.answering_broker", f"{here[0]}:{here[1]}", behind]
    with Proxy(command, folder / "answering.log") as process:
        assert process.pid is not None
        pin(process.pid, cpus)
        _wait_until_it_forwards(process, "the answering broker", here)
        yield replace(broker, address=here, proxied=here), process.pid


def sockets_listening(port: int) -> int:
    """Return how many sockets listen on this port, over IPv4."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [local for _, local, _, state, *_ in rows if state == "0A"]
    return sum(int(local.rpartition(":")[2], 16) == port for local in listening)
