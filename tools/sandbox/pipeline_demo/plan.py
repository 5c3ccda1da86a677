"""Parameters and names of the pipeline demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.sandbox.demo.plan import ALICE, BOB, MALLORY, password_of
from tools.sandbox.jars import NEWEST
from tools.sandbox.spec import ClusterSpec

OWN: Final = "pidgate"
HEALTHY: Final = (ALICE, BOB)

ORDERS_PARTITIONS, CLICKS_PARTITIONS = 4, 6
EVENTS_TOPIC: Final = "__pidgate_events"
NODE_ID: Final = 1
BRIEF_SPARK: Final = (
    "--conf spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1 --conf spark.sql.codegen.wholeStage=false "
    "--conf spark.sql.codegen.factoryMode=NO_CODEGEN --conf spark.sql.adaptive.enabled=false pyspark-shell"
)
"""Options for a JVM that lives for minutes on a few thousand events.

Compilation and adaptive planning would be most of its work. Results stay the same. Tests use it too.
"""
BURST: Final = 1.0
"""The gateway's default: a quiet user may bring one more window's ids immediately."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All parameters."""

    seconds: float = 40.0
    """Duration of each act."""
    threads: int = 4
    """Threads of mallory's process; each opens producer after producer."""
    per_s: float = 50.0
    """Records of each healthy producer."""
    seed: int = 1
    version: str = NEWEST
    memory: str = "1g"
    """Heap of the jobs' JVM."""
    rogue_patience_s: float = 12.0
    """Time after which mallory's producers give up a refused batch."""

    def cluster(self) -> ClusterSpec:
        users = {name: password_of(name) for name in (*HEALTHY, MALLORY, OWN)}
        return ClusterSpec(version=self.version, sasl=True, users=users, keep_logs_on_failure=False)


@dataclass(frozen=True, slots=True)
class Act:
    """A period of sending with its own topics, so that each log holds one act."""

    name: str
    directory: Path

    @property
    def orders(self) -> str:
        return f"orders-{self.name}"

    @property
    def clicks(self) -> str:
        return f"clicks-{self.name}"
