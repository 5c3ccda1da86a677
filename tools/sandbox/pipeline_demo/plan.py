"""The numbers and names of the pipeline demo."""

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
"""For a JVM that lives for minutes, on a few thousand events: compiling code, and planning anew, would be most of its
work. What is computed stays the same. Tests run with it, too."""
BURST: Final = 1.0
"""The gateway's default: a quiet user may bring one more window's worth at once."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that can be chosen."""

    seconds: float = 40.0
    """Time that the producers send in each act."""
    threads: int = 4
    """Of mallory's process; each makes producer after producer."""
    per_s: float = 50.0
    """Records of each healthy producer."""
    seed: int = 1
    version: str = NEWEST
    memory: str = "1g"
    """Heap of the JVM that runs the jobs."""
    rogue_patience_s: float = 12.0
    """After which mallory's producers give a refused batch up."""

    def cluster(self) -> ClusterSpec:
        users = {name: password_of(name) for name in (*HEALTHY, MALLORY, OWN)}
        return ClusterSpec(version=self.version, sasl=True, users=users, keep_logs_on_failure=False)


@dataclass(frozen=True, slots=True)
class Act:
    """One time that all producers send: its topics are its own, so that each log holds one act."""

    name: str
    directory: Path

    @property
    def orders(self) -> str:
        return f"orders-{self.name}"

    @property
    def clicks(self) -> str:
        return f"clicks-{self.name}"
