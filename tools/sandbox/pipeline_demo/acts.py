"""An act: alice and bob send steadily, mallory opens a producer per batch; then the log is read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.load.journal import Outcome, ProducerJournal
from tools.sandbox.demo.cast import Bystanders, Mallory, Place, stop_all
from tools.sandbox.demo.findings import BystanderSaw, ids_refused
from tools.sandbox.demo.plan import password_of
from tools.sandbox.demo.segments import read_topic
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import read_log
from tools.sandbox.pipeline_demo.plan import (
    CLICKS_PARTITIONS,
    EVENTS_TOPIC,
    NODE_ID,
    ORDERS_PARTITIONS,
    OWN,
    Act,
    Plan,
)
from tools.sandbox.spec import SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

_FIRST_RECORDS = 10
_FIRST_RECORDS_WITHIN_S = 60.0
_LINE_EVERY_S = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ActEvidence:
    """Results of one act."""

    ran_s: float
    healthy: Mapping[str, BystanderSaw]
    mallory: ProducerJournal
    mallory_ids_in_log: int
    """Producer ids in her topic's segment files on the broker's disk."""
    gateway_exit_code: int
    gateway_trouble: frozenset[str]


def gateway_for(cluster: Cluster, directory: Path, quotas: Mapping[str, Any]) -> GatewayProcess:
    """Return a gateway with these quotas. Its events preserve admitted ids across acts."""
    password = directory / "own-password"
    password.write_text(password_of(OWN))
    own = {"mechanism": "SCRAM-SHA-256", "username": OWN, "password_file": str(password)}
    return GatewayProcess(
        cluster.bootstrap_servers(SASL_PLAINTEXT),
        quotas=quotas,
        settings={
            "gateway_id": "demo",
            "own_client": own,
            "events": {"enabled": True, "topic": EVENTS_TOPIC, "replication_factor": 1},
        },
    )


def play(plan: Plan, act: Act, cluster: Cluster, quotas: Mapping[str, Any], say: Say) -> ActEvidence:
    """Run an act from an empty topic to the log read back. Raises SandboxError, GatewayNotReady."""
    act.directory.mkdir()
    create_topic(cluster.bootstrap_servers(), act.orders, ORDERS_PARTITIONS)
    create_topic(cluster.bootstrap_servers(), act.clicks, CLICKS_PARTITIONS)
    with gateway_for(cluster, act.directory, quotas) as gateway:
        began_s = time.monotonic()
        bystanders, mallory = _send(plan, act, gateway, say)
        exit_code = gateway.stop()
        ran_s = time.monotonic() - began_s
        trouble = frozenset(str(event.get("event")) for event in gateway.log_events())
    log = read_log(cluster.bootstrap_servers(), act.orders)
    data = cluster.directory / f"node-{NODE_ID}" / "data"
    return ActEvidence(
        ran_s=ran_s,
        healthy={
            user: BystanderSaw.of(ProducerJournal.load(member.journal_path), member.notes(), log)
            for user, member in bystanders.members.items()
        },
        mallory=next(iter(mallory.journals.values())),
        mallory_ids_in_log=len(read_topic(data, act.clicks).ids),
        gateway_exit_code=exit_code,
        gateway_trouble=trouble & {"unexpected_error", "quota_failed_open", "events_dropped"},
    )


def _send(plan: Plan, act: Act, gateway: GatewayProcess, say: Say) -> tuple[Bystanders, Mallory]:
    """Run the healthy clients, then also the rogue, until the time is up."""
    place = Place(gateway.bootstrap_servers, act.directory)
    mallory = Mallory(place, act.clicks, ["mallory-etl"])
    bystanders = Bystanders(place, act.orders, ORDERS_PARTITIONS, plan.per_s)
    try:
        bystanders.wait_until_acknowledged(_FIRST_RECORDS, _FIRST_RECORDS_WITHIN_S)
        mallory.start(threads=plan.threads, patience_s=plan.rogue_patience_s, seed=plan.seed)
        _watch(plan, bystanders, mallory, say)
    finally:
        stop_all([*bystanders.members.values(), *mallory.members])
    mallory.follow()
    return bystanders, mallory


def _watch(plan: Plan, bystanders: Bystanders, mallory: Mallory, say: Say) -> None:
    began_s = time.monotonic()
    while (left_s := began_s + plan.seconds - time.monotonic()) > 0:
        time.sleep(min(_LINE_EVERY_S, left_s))
        bystanders.follow()
        mallory.follow()
        good = ", ".join(f"{user} {counts['acknowledged']:,}" for user, counts in bystanders.counts.items())
        (journal,) = mallory.journals.values()
        say(
            f"{time.monotonic() - began_s:3.0f} of {plan.seconds:.0f} s: acknowledged {good}; mallory "
            f"{journal.count(Outcome.ACKNOWLEDGED):,} ids in, {ids_refused(journal):,} refused"
        )
