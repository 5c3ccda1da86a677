"""Raw results of one half of the demo; the verifier and the screens only read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidgate.load.journal import ProducerJournal
from tools.sandbox.demo.segments import TopicIds
from tools.sandbox.demo.watch import Point
from tools.sandbox.gateway import Metrics
from tools.sandbox.log_checker import LogRecord


@dataclass(kw_only=True)
class BrokerEvidence:
    """The broker after the rogues' time."""

    exit_code: int | None
    """None: running."""
    out_of_memory: str
    """The log line that reports it, or an empty string."""
    answers: bool
    """Whether it responded with metadata and a producer id after the attack."""
    states: Mapping[str, Mapping[int, Sequence[int]]] | None
    """Topic -> partition -> producer ids kept, by DescribeProducers; None without a response."""
    segments: Mapping[str, TopicIds]
    """Producer ids in the segment files on its disk, by topic."""
    log: Mapping[str, Sequence[LogRecord]] = field(default_factory=dict)
    """Topics of alice, bob and carol, read back from the broker with librdkafka; empty for a dead one."""


@dataclass(kw_only=True)
class GatewayEvidence:
    """The gateway's process, log and metrics."""

    alive_after_attack: bool
    exit_code: int | None
    """After SIGTERM."""
    ran_s: float
    log_events: Sequence[Mapping[str, Any]]
    metrics: Metrics | None


@dataclass(kw_only=True)
class Half:
    """One half: direct, or through the gateway."""

    attack_s: float
    """Duration of the rogues: the plan's, or until the broker died."""
    points: Sequence[Point]
    broker: BrokerEvidence
    mallory: Mapping[str, ProducerJournal]
    """By client id; each number is a producer id."""
    carol: ProducerJournal
    bystanders: Mapping[str, ProducerJournal]
    delay_ms: float
    """p99 of the lateness of a timer on this machine."""
    notes: Mapping[str, Mapping[str, Any]]
    """Notes of alice's and bob's client libraries."""
    gateway: GatewayEvidence | None = None

    @property
    def died(self) -> bool:
        return self.broker.exit_code is not None


@dataclass(kw_only=True)
class Evidence:
    """All results of the demo."""

    baseline: Sequence[Mapping[str, ProducerJournal]]
    """alice's and bob's journals of each direct run without rogues."""
    baseline_delay_ms: float
    """p99 of a timer's lateness in these runs."""
    direct: Half
    through_gateway: Half
    total_s: float
