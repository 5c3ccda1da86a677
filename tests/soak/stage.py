"""Where a soak plays: a broker with logins, and the gateway before it with a plain and a TLS listener."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.inside.sitecustomize import MB_PER_H
from tests.soak.plan import SoakPlan
from tests.support.tls_listener import add_tls_listener
from tools.bench.compiled import compiled, environment
from tools.sandbox.certificates import Authority
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, SUPER_USER, ClusterSpec
from tools.sandbox.topics import create_topic

GOOD, ROGUE = "alice", "bob"
PARTITIONS: Final = 3
INSIDE: Final = Path(__file__).parent / "inside"
CHECKED, LOADED = "soak-checked", "soak-loaded"
"""Topics: of clients that keep journals, and of the synthetic producers. What is old is deleted of the second only."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, and where clients find it."""

    cluster: Cluster
    gateway: GatewayProcess
    tls_servers: str
    ca_file: Path
    folder: Path


def spec() -> ClusterSpec:
    return ClusterSpec(sasl=True, heap_mb=384, properties={"log.retention.check.interval.ms": "60000"})


def stage_of(cluster: Cluster, plan: SoakPlan, folder: Path) -> Stage:
    """The gateway is not started. Its certificate and its password are files in `folder`."""
    servers = cluster.bootstrap_servers()
    create_topic(servers, CHECKED, PARTITIONS)
    small = {"retention.ms": "-1", "retention.bytes": "20000000", "segment.bytes": "10000000"}
    create_topic(servers, LOADED, PARTITIONS, config=small)
    password = folder / "password"
    password.write_text(cluster.spec.users[SUPER_USER])
    password.chmod(0o600)
    authority = Authority(folder)
    remember = f"{plan.remember_s}s"
    gateway = GatewayProcess(
        cluster.bootstrap_servers(SASL_PLAINTEXT),
        quotas={
            "mode": "enforce",
            "default": {"producer_ids_rate": 100_000},
            "users": {ROGUE: {"producer_ids_rate": plan.rogue_ids}},
            "producer_ids": {"window": remember, "remember": remember, "max_throttle": "1s"},
        },
        settings={
            "events": {"replication_factor": 1, "retention": "1h"},
            "own_client": {
                "mechanism": "PLAIN",
                "username": SUPER_USER,
                "password_file": str(password),
            },
            "log_level": "warning",
            "state_dir": str(folder / "state"),
        },
        environment=_as_installed(plan.leak_mb_per_h),
        ready_within_s=120,
    )
    return Stage(cluster, gateway, add_tls_listener(gateway, authority), authority.ca_file, folder)


def _as_installed(leak_mb_per_h: float) -> dict[str, str]:
    """The environment of the compiled gateway, with a leak if one is asked for. Raises CannotCompile."""
    found = environment(compiled())
    if leak_mb_per_h:
        found["PYTHONPATH"] = os.pathsep.join((str(INSIDE), found["PYTHONPATH"]))
        found[MB_PER_H] = str(leak_mb_per_h)
    return found
