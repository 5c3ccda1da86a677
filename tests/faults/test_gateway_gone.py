"""A gateway that dies for good, or drains and does not come back: clients of seven families go on through another one.

The clients start while only the first gateway runs, so that all of them are connected to it. Then the second one
starts, and the first one goes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.connects import Outcome, connects
from tests.support.memory_group import memory_group
from tests.support.outage import Outage
from tests.support.running_producers import until
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
FIRST, SECOND, BALANCER = "127.71.0.1", "127.71.0.2", "127.71.0.3"
NAME: Final = "gw.example"
NODES: Final = (1, 2)
WITHIN_S: Final = 60.0
PRODUCE: Final = 0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(node_ids=NODES)) as cluster:
        yield cluster


def killed(gateway: GatewayProcess) -> None:
    gateway.kill()


def drained(gateway: GatewayProcess) -> None:
    assert gateway.stop() == 0


@dataclass(frozen=True, slots=True)
class Way:
    """Two gateways, what clients bootstrap at, how they are run, and the balancer before the gateways."""

    gateways: Sequence[GatewayProcess]
    servers: str
    run_by: Sequence[str] = ()
    balancer: subprocess.Popen[bytes] | None = None


def gateway_at(
    brokers: Cluster,
    events: str,
    host: str,
    port: int = 0,
    first_node_port: int = 0,
    listener: Mapping[str, Any] | None = None,
    **settings: Any,
) -> GatewayProcess:
    """A gateway on this address, on ports of its own or on those of another one."""
    made = GatewayProcess(
        brokers.bootstrap_servers(),
        settings={"events": {"topic": events, "replication_factor": 1}, **settings},
        node_ids=NODES,
        ready_within_s=90,
    )
    made.config["listeners"] = [
        {
            "bind": f"{host}:{port or made.port}",
            "advertise": host,
            "node_ports": {"first": first_node_port or made.first_node_port},
            **(listener or {}),
        }
    ]
    return made


def two_bootstrap_servers(brokers: Cluster, events: str, _folder: Path, _stack: ExitStack) -> Way:
    """The control: each gateway shows itself alone."""
    first, second = (gateway_at(brokers, events, host) for host in (FIRST, SECOND))
    return Way((first, second), f"{FIRST}:{first.port},{SECOND}:{second.port}")


def one_name(
    brokers: Cluster,
    events: str,
    folder: Path,
    _stack: ExitStack,
    first_at: str = FIRST,
    second_at: str = SECOND,
) -> Way:
    """examples/fleet/one-name.yaml: a name with two addresses."""
    example = yaml.safe_load((EXAMPLES / "fleet" / "one-name.yaml").read_text())["listeners"][0]
    assert example["advertise"] == NAME
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{first_at} {NAME}\n{second_at} {NAME}\n")
    named = {"advertise": NAME}
    first = gateway_at(brokers, events, first_at, listener=named)
    second = gateway_at(brokers, events, second_at, first.port, first.first_node_port, named)
    script = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    return Way((first, second), f"{NAME}:{first.port}", ("unshare", "-m", "sh", "-c", script, "sh"))


def one_port(brokers: Cluster, events: str, _folder: Path, _stack: ExitStack) -> Way:
    """examples/fleet/one-machine.yaml: gateways of one machine on one port."""
    assert yaml.safe_load((EXAMPLES / "fleet" / "one-machine.yaml").read_text())["reuse_port"] is True
    first = gateway_at(brokers, events, FIRST, reuse_port=True)
    second = gateway_at(brokers, events, FIRST, first.port, first.first_node_port, reuse_port=True)
    return Way((first, second), f"{FIRST}:{first.port}")


def balancer(
    brokers: Cluster,
    events: str,
    folder: Path,
    stack: ExitStack,
    first_at: str = FIRST,
    second_at: str = SECOND,
) -> Way:
    """examples/haproxy/haproxy.cfg, with addresses and ports of this machine."""
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is missing")
    listener = yaml.safe_load((EXAMPLES / "haproxy" / "pidgate.yaml").read_text())["listeners"][0]
    changed = {"advertise": BALANCER, "proxy_protocol_from": ["127.0.0.1", first_at, second_at]}
    gateways: list[GatewayProcess] = []
    for host in (first_at, second_at):
        port, node_port = (gateways[0].port, gateways[0].first_node_port) if gateways else (0, 0)
        made = gateway_at(brokers, events, host, port, node_port)
        node_ports = {**listener["node_ports"], "first": node_port or made.first_node_port}
        made.config["listeners"][0] |= {
            **listener,
            **changed,
            "node_ports": node_ports,
            "bind": f"{host}:{port or made.port}",
        }
        gateways.append(made)
    first, second = gateways
    text = (EXAMPLES / "haproxy" / "haproxy.cfg").read_text()
    for written, here in (
        ("bind :", f"bind {BALANCER}:"),
        ("9292", str(first.port)),
        ("9301", str(first.first_node_port)),
        ("9302", str(first.first_node_port + 1)),
        ("check port 9290", "check addr 127.0.0.1"),
        ("server gw-1 10.0.0.11:", f"server gw-1 {first_at}:"),
        ("server gw-2 10.0.0.12:", f"server gw-2 {second_at}:"),
    ):
        assert written in text
        text = text.replace(written, here)
    # Both admin addresses are on one host here.
    for number, made in enumerate(gateways, 1):
        text = re.sub(rf"(server gw-{number} .*)", rf"\1 port {made.admin_port}", text)
    config = folder / "haproxy.cfg"
    config.write_text(text)
    return Way((first, second), f"{BALANCER}:{first.port}", balancer=haproxy(config, stack))


def haproxy(config: Path, stack: ExitStack, *options: str) -> subprocess.Popen[bytes]:
    command: list[str | Path] = ["haproxy", "-db", "-f", config, *options]
    process = guard.spawn(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    stack.callback(guard.ended, process)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


WAYS: Final = (two_bootstrap_servers, one_name, one_port, balancer)
LEFT_ALONE: Final = {"two_bootstrap_servers": {"aiokafka", "kafka-python"}}


@pytest.mark.parametrize("fault", [killed, drained])
@pytest.mark.parametrize("way_of", WAYS)
def test_every_family_goes_on_through_the_other_gateway(
    brokers: Cluster,
    tmp_path: Path,
    way_of: Callable[[Cluster, str, Path, ExitStack], Way],
    fault: Callable[[GatewayProcess], None],
) -> None:
    name = f"{way_of.__name__}-{fault.__name__}".replace("_", "-")
    with ExitStack() as stack:
        way = way_of(brokers, f"__{name}", tmp_path, stack)
        first, second = way.gateways
        stack.enter_context(first)
        with Outage(brokers.bootstrap_servers(), way.servers, name, way.run_by) as outage:
            stack.enter_context(second)
            until(lambda: second.metrics().value("pidgate_ready") == 1)
            pauses = outage.pauses(lambda: fault(first), WITHIN_S)
            failed = outage.check()
        shown = {family: round(pause, 1) for family, pause in pauses.items()}
        print(f"\n{name} took {outage.fault_s:.1f} s: {shown}, failed {failed}, missing {outage.missing}")
        stuck = {family for family, pause in pauses.items() if pause > WITHIN_S}
        assert stuck == LEFT_ALONE.get(way_of.__name__, set())


def test_the_gateways_are_taken_out_with_clients_running(brokers: Cluster, tmp_path: Path) -> None:
    """examples/haproxy/without-gateways.cfg: HAProxy leads to the brokers, then the gateways drain."""
    with ExitStack() as stack:
        way = balancer(brokers, "__taken-out", tmp_path, stack)
        for gateway in way.gateways:
            stack.enter_context(gateway)
        text = (EXAMPLES / "haproxy" / "without-gateways.cfg").read_text()
        first = way.gateways[0]
        ports = {"9292": first.port, "9301": first.first_node_port, "9302": first.first_node_port + 1}
        for written, here in (
            *((f"bind :{port}", f"bind {BALANCER}:{real}") for port, real in ports.items()),
            *((f"10.0.0.2{node}:9092", ":".join(map(str, brokers.nodes[node]))) for node in NODES),
        ):
            assert written in text
            text = text.replace(written, here)
        config = tmp_path / "without-gateways.cfg"
        config.write_text(text)

        def taken_out() -> None:
            assert way.balancer is not None
            haproxy(config, stack, "-sf", str(way.balancer.pid))
            time.sleep(1)
            for gateway in way.gateways:
                assert gateway.stop() == 0

        with Outage(brokers.bootstrap_servers(), way.servers, "taken-out") as outage:
            pauses = outage.pauses(taken_out, WITHIN_S)
            failed = outage.check()
        shown = {family: round(pause, 1) for family, pause in pauses.items()}
        print(f"\ntaken out in {outage.fault_s:.1f} s: {shown}, failed {failed}, missing {outage.missing}")
        assert max(pauses.values()) < WITHIN_S
        assert failed == {}


# ---- Kubernetes: a pod is deleted --------------------------------------------------------------------------

ENDPOINT_LAG_S: Final = 2.0
"""Until every node's Service has forgotten a pod that is being deleted; kube-proxy does so behind the API."""
CHART: Final = yaml.safe_load((EXAMPLES.parent / "deploy/helm/pidgate/values.yaml").read_text())


class Service:
    """Stands for a Service of Kubernetes: it deals connections to its endpoints, without health checks or retries."""

    def __init__(self, brokers: Cluster, folder: Path, stack: ExitStack) -> None:
        advertised = {"advertise": BALANCER}
        first = gateway_at(brokers, "__service", FIRST, listener=advertised)
        second = gateway_at(brokers, "__service", SECOND, first.port, first.first_node_port, advertised)
        self.pods = (first, second)
        self.ports = (first.port, *(first.first_node_port + node for node in NODES))
        self._socket = folder / "service"
        lines = [f"global\n  stats socket {self._socket} level admin"]
        lines += [
            "defaults\n  mode tcp\n  retries 0\n  timeout connect 2s\n  timeout client 11m\n  timeout server 11m"
        ]
        for port in self.ports:
            binds = f"  bind {BALANCER}:{port}\n  bind 127.0.0.1:{port}"
            servers = f"  server gw-1 {FIRST}:{port}\n  server gw-2 {SECOND}:{port}"
            lines.append(f"listen port-{port}\n{binds}\n{servers}")
        config = folder / "service.cfg"
        config.write_text("\n".join(lines) + "\n")
        haproxy(config, stack)

    def forget(self, pod: str) -> None:
        """Deal no new connection to it; those that are open stay."""
        for port in self.ports:
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(str(self._socket))
                control.sendall(f"set server port-{port}/{pod} state maint\n".encode())
                assert control.recv(200).strip() == b""


def deleted(service: Service, prestop_s: float) -> None:
    """What a kubelet does: the preStop hook, SIGTERM, and SIGKILL at the end of the grace period."""
    forgetting = threading.Timer(ENDPOINT_LAG_S, service.forget, ["gw-1"])
    forgetting.start()
    time.sleep(prestop_s)
    assert service.pods[0].stop(CHART["terminationGracePeriodSeconds"] - prestop_s) == 0
    forgetting.join()


@pytest.mark.parametrize(
    "prestop_s", [CHART["preStopSeconds"], 0], ids=["as in the chart", "no hook: the control"]
)
def test_a_deleted_pod_resets_no_new_connection_and_loses_nothing(
    brokers: Cluster, tmp_path: Path, prestop_s: int
) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is missing")
    with ExitStack() as stack:
        service = Service(brokers, tmp_path, stack)
        for pod in service.pods:
            stack.enter_context(pod)
        servers, name = f"{BALANCER}:{service.ports[0]}", f"deleted-{prestop_s}"
        with (
            Outage(brokers.bootstrap_servers(), servers, name) as outage,
            connects(service.ports[0], 4) as clients,
        ):
            time.sleep(2)
            assert not failures(clients.outcomes())
            pauses = outage.pauses(lambda: deleted(service, prestop_s), WITHIN_S)
            found = clients.outcomes()
            failed = outage.check()
        shown = {family: round(pause, 1) for family, pause in pauses.items()}
        print(f"\n{name} took {outage.fault_s:.1f} s: {dict(found)}, {shown}, failed {failed}")
        assert max(pauses.values()) < WITHIN_S
        if prestop_s:
            assert failures(found) == {}
            assert failed == {}
        else:
            assert failures(found), "the Service deals connections to a port that is closed"


def failures(outcomes: Counter[Outcome]) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in outcomes.items() if outcome not in ("answered", "late")}


@pytest.mark.parametrize(("way", "stuck"), [("one_name", {"kafkajs"}), ("balancer", set[str]())])
def test_a_gateway_vanishes_with_its_machine(way: str, stuck: set[str]) -> None:
    """Its address answers nothing any more, not even a refusal."""
    if shutil.which("ip") is None or subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        pytest.skip("no network namespace is to be had here")
    command = ["unshare", "-n", sys.executable, "-m", "tests.support.machine_gone", way]
    done = subprocess.run(
        command, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=350, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(way, found)
    assert {family for family, pause in found["pauses"].items() if pause == float("inf")} == stuck


# ---- a supervisor that starts it again ---------------------------------------------------------------

RESTART_S: Final = 1.0
"""RestartSec of deploy/systemd/pidgate.service."""
HANG_S: Final = 10.0


def started_again(gateway: GatewayProcess, signal_number: int) -> None:
    """Wait for its end by this signal, and start it as systemd does."""
    assert gateway.wait(20) == -signal_number
    time.sleep(RESTART_S)
    gateway.start()


def segmentation_fault(gateway: GatewayProcess) -> None:
    gateway.signal(signal.SIGSEGV)
    started_again(gateway, signal.SIGSEGV)
    assert "Fatal Python error: Segmentation fault" in gateway.log_text()


def out_of_memory(gateway: GatewayProcess) -> None:
    """Killed by the kernel, while it takes a frame that is allowed."""
    assert gateway.pid is not None
    with memory_group() as group:
        group.take(gateway.pid)
        group.leave(20 * 2**20)
        host, _, port = gateway.config["listeners"][0]["bind"].partition(":")
        while gateway.is_alive:  # the kernel may have dealt the connection to the other one
            with suppress(OSError), socket.create_connection((host, int(port))) as client:
                client.sendall(struct.pack(">ihhih", 90 * 2**20, PRODUCE, 9, 1, -1))
                for _ in range(80):
                    client.sendall(bytes(2**20))
        started_again(gateway, signal.SIGKILL)


def hang(gateway: GatewayProcess) -> None:
    """Stand still for HANG_S, and go on: nobody restarts it."""
    gateway.signal(signal.SIGUSR1)
    until(lambda: gateway.status("/livez") == 503, HANG_S)
    until(lambda: gateway.status("/livez") == 200, HANG_S)


@pytest.mark.parametrize("number", [1, 2], ids=["one gateway", "two on one port"])
@pytest.mark.parametrize("fault", [segmentation_fault, out_of_memory, hang])
def test_nothing_is_lost_when_it_is_started_again(
    brokers: Cluster, number: int, fault: Callable[[GatewayProcess], None]
) -> None:
    name = f"{fault.__name__}-{number}".replace("_", "-")
    with ExitStack() as stack:
        first = gateway_at(brokers, f"__{name}", FIRST, reuse_port=True)
        first._module = "tests.support.hanging"
        first._environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "HANG_S": str(HANG_S)}
        second = gateway_at(brokers, f"__{name}", FIRST, first.port, first.first_node_port, reuse_port=True)
        for gateway in (first, second)[:number]:
            stack.enter_context(gateway)
        servers = f"{FIRST}:{first.port}"
        outage = stack.enter_context(Outage(brokers.bootstrap_servers(), servers, name))
        pauses = outage.pauses(lambda: fault(first), WITHIN_S)
        failed = outage.check()
        shown = {family: round(pause, 1) for family, pause in pauses.items()}
        print(f"\n{name} took {outage.fault_s:.1f} s: {shown}, failed {failed}, missing {outage.missing}")
        assert max(pauses.values()) < WITHIN_S
        if number > 1:
            assert failed == {}, "with one gateway sarama and kafkajs give up meanwhile, and say so"
