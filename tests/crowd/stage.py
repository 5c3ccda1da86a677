"""Where a crowd plays: two brokers, and before them gateways on one port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from pidgate import open_files
from tests.crowd.plan import OF_A_PROCESS, RATE, CrowdPlan
from tests.crowd.producers import password_of
from tools.bench.compiled import compiled, environment
from tools.sandbox import guard
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec
from tools.sandbox.topics import create_topic

TOPIC: Final = "crowd"
PARTITIONS: Final = 8


class TooFewOpenFiles(Exception):
    """The limit of open files is too low for so many connections, and only root may raise it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs."""

    cluster: Cluster
    gateways: list[GatewayProcess]

    def rewrite(self, quotas: dict[str, Any]) -> None:
        """Write these quotas into the files of all gateways, which look once a second."""
        for gateway in self.gateways:
            gateway.config["quotas"] = {**gateway.config["quotas"], **quotas}
            assert gateway.directory is not None
            new = gateway.directory / "pidgate.yaml.new"
            new.write_text(yaml.safe_dump(gateway.config, sort_keys=False))
            new.rename(gateway.directory / "pidgate.yaml")


def spec_of(plan: CrowdPlan, rogues: list[str], users: list[str]) -> ClusterSpec:
    """Two brokers, which have an open file for each connection, as a process of clients has."""
    accounts = " ".join(f'user_{user}="{password_of(user)}"' for user in (*users, *rogues, SUPER_USER))
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {accounts};"
    return ClusterSpec(
        nodes=2,
        sasl=True,
        users={SUPER_USER: password_of(SUPER_USER)},
        heap_mb=1024,
        # The C1 compiler alone is for short tests.
        jvm_options=("-XX:+UseSerialGC",),
        properties={
            f"listener.name.{SASL_PLAINTEXT.lower()}.plain.sasl.jaas.config": login,
            "num.network.threads": "3",
        },
    )


@contextmanager
def stage_of(plan: CrowdPlan, rogues: list[str], users: list[str]) -> Iterator[Stage]:
    """Brokers and gateways, all of them ready. Raises TooFewOpenFiles, CannotCompile."""
    wanted = 2 * OF_A_PROCESS
    if (allowed := open_files.allow_most(wanted)) < wanted:
        raise TooFewOpenFiles(f"{allowed} open files are allowed, {wanted} are needed: ulimit -n, as root")
    folder = guard.temporary_directory("crowd-")
    password = folder / "password"
    password.write_text(password_of(SUPER_USER))
    password.chmod(0o600)
    with ExitStack() as stack:
        stack.callback(guard.remove_directory, folder)
        cluster = stack.enter_context(Cluster(spec_of(plan, rogues, users)))
        create_topic(cluster.bootstrap_servers(), TOPIC, PARTITIONS)
        gateways = [_gateway(cluster, plan, folder, password, number) for number in range(plan.gateways)]
        # Without it a gateway keeps open files for the ports of brokers that may come.
        gateways[0].config["listeners"][0]["node_ports"]["node_ids"] = sorted(cluster.nodes)
        for gateway in gateways:
            gateway.port, gateway.first_node_port = gateways[0].port, gateways[0].first_node_port
            gateway.config |= {"reuse_port": True, "listeners": gateways[0].config["listeners"]}
            stack.enter_context(gateway)
        yield Stage(cluster, gateways)


def _gateway(cluster: Cluster, plan: CrowdPlan, folder: Path, password: Path, number: int) -> GatewayProcess:
    window = f"{plan.window_s}s"
    return GatewayProcess(
        cluster.bootstrap_servers(SASL_PLAINTEXT),
        quotas={
            "mode": "enforce",
            "default": {"producer_ids_rate": RATE},
            "producer_ids": {"window": window, "remember": "24h"},
        },
        settings={
            "gateway_id": f"gw-{number}",
            "events": {"replication_factor": 1, "retention": "2d"},
            "own_client": {"mechanism": "PLAIN", "username": SUPER_USER, "password_file": str(password)},
            "log_level": "info",
            "state_dir": str(folder / f"state-{number}"),
        },
        node_ids=tuple(cluster.nodes),
        environment=environment(compiled()),
        ready_within_s=120,
    )
