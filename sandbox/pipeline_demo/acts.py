"""An act: alice and bob send steadily, mallory opens a producer for each batch; then the log is read back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.load.plan import Kind
from pidgate.sandbox.demo.cast import Member, Tail
from pidgate.sandbox.demo.segments import read_topic
from pidgate.sandbox.errors import SandboxError
from pidgate.sandbox.gateway import GatewayProcess
from pidgate.sandbox.journal import Outcome, ProducerJournal
from pidgate.sandbox.kafka import Cluster
from pidgate.sandbox.log_checker import Verdict, check, read_log
from pidgate.sandbox.pipeline_demo.plan import (
    CLICKS_PARTITIONS,
    CLIENTS,
    EVENTS_TOPIC,
    HEALTHY,
    MALLORY,
    NODE_ID,
    ORDERS_PARTITIONS,
    OWN,
    PASSWORDS,
    Act,
    Plan,
)
from pidgate.sandbox.producers.batch_journal import BatchJournal
from pidgate.sandbox.spec import SASL_PLAINTEXT
from pidgate.sandbox.topics import create_topic

_FIRST_RECORDS = 10
_FIRST_RECORDS_WITHIN_S = 60.0
_STOP_WITHIN_S = 10.0
_LINE_EVERY_S = 5.0
# Only Linux has all of 127/8 on its loopback interface.
_ROGUES_HOST = ["--from-host", "127.0.0.66"] if sys.platform == "linux" else []

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class HealthySaw:
    """One healthy user, by its journal, its client library and the log."""

    sent: int
    acknowledged: int
    refused: int | None
    """None: the client was killed before it could tell."""
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class ActEvidence:
    """What one act left behind."""

    ran_s: float
    healthy: Mapping[str, HealthySaw]
    mallory: BatchJournal
    mallory_ids_in_log: int
    """Producer ids in the segment files of her topic, on the broker's disk."""
    gateway_exit_code: int
    gateway_trouble: frozenset[str]


def gateway_for(plan: Plan, cluster: Cluster, directory: Path, quotas: Mapping[str, Any]) -> GatewayProcess:
    """A gateway with these quotas. It writes events, and so remembers over acts what it let in."""
    password = directory / "own-password"
    password.write_text(PASSWORDS[OWN])
    own = {"mechanism": "SCRAM-SHA-256", "username": OWN, "password_file": str(password)}
    return GatewayProcess(
        cluster.bootstrap_servers(SASL_PLAINTEXT),
        quotas=quotas,
        settings={
            "gateway_id": "demo",
            "own_client": {"sasl": own},
            "events": {"enabled": True, "topic": EVENTS_TOPIC, "partitions": 1, "replication_factor": 1},
        },
    )


def play(plan: Plan, act: Act, cluster: Cluster, quotas: Mapping[str, Any], say: Say) -> ActEvidence:
    """One act from an empty topic to the log read back. Raises SandboxError, GatewayNotReady."""
    act.directory.mkdir()
    create_topic(cluster.bootstrap_servers(), act.orders, ORDERS_PARTITIONS)
    create_topic(cluster.bootstrap_servers(), act.clicks, CLICKS_PARTITIONS)
    with gateway_for(plan, cluster, act.directory, quotas) as gateway:
        members, began_s = _send(plan, act, gateway, say)
        exit_code = gateway.stop()
        ran_s = time.monotonic() - began_s
        trouble = frozenset(str(event.get("event")) for event in gateway.log_events())
    log = read_log(cluster.bootstrap_servers(), act.orders)
    data = cluster.directory / f"node-{NODE_ID}" / "data"
    return ActEvidence(
        ran_s=ran_s,
        healthy={user: _healthy(members[user], log) for user in HEALTHY},
        mallory=BatchJournal.load(members[MALLORY].journal_path),
        mallory_ids_in_log=len(read_topic(data, act.clicks).ids),
        gateway_exit_code=exit_code,
        gateway_trouble=trouble & {"unexpected_error", "quota_failed_open", "events_dropped"},
    )


def _send(plan: Plan, act: Act, gateway: GatewayProcess, say: Say) -> tuple[dict[str, Member], float]:
    """Healthy first, the rogue when they are at work; all end when the time is up."""
    began_s = time.monotonic()
    members = {user: Member(user, act.directory) for user in (*HEALTHY, MALLORY)}
    try:
        for user in HEALTHY:
            _start_healthy(plan, act, gateway, members[user])
        _await_first_records(members)
        _start_rogue(plan, act, gateway, members[MALLORY])
        _watch(plan, members, say)
    finally:
        for member in members.values():
            member.ask_to_stop()
        for member in members.values():
            member.wait(_STOP_WITHIN_S)
    return members, began_s


def _start_healthy(plan: Plan, act: Act, gateway: GatewayProcess, member: Member) -> None:
    client, mechanism = CLIENTS[member.name]
    member.start(
        "bystander",
        [
            *("--client", client, "--mechanism", mechanism, *_login(gateway, member.name)),
            *("--topic", act.orders, "--partitions", str(ORDERS_PARTITIONS)),
            *("--client-id", f"{member.name}-orders", "--per-s", str(plan.per_s)),
            *("--journal", str(member.journal_path), "--notes", str(member.notes_path)),
        ],
    )


def _start_rogue(plan: Plan, act: Act, gateway: GatewayProcess, member: Member) -> None:
    member.start(
        "synthetic",
        [
            Kind.ID_PER_BATCH,
            *_login(gateway, MALLORY),
            *("--topic", act.clicks, "--threads", str(plan.threads)),
            *("--client-id", "mallory-etl", "--delivery-timeout-s", str(plan.rogue_patience_s)),
            *("--journal", str(member.journal_path), "--seed", str(plan.seed)),
            *_ROGUES_HOST,
        ],
    )


def _login(gateway: GatewayProcess, user: str) -> list[str]:
    return ["--bootstrap-server", gateway.bootstrap_servers, "--user", user, "--password", PASSWORDS[user]]


def _await_first_records(members: Mapping[str, Member]) -> None:
    give_up_s = time.monotonic() + _FIRST_RECORDS_WITHIN_S
    while any(_told(members[user]) < _FIRST_RECORDS for user in HEALTHY):
        if time.monotonic() > give_up_s:
            raise SandboxError(f"alice and bob had nothing acknowledged within {_FIRST_RECORDS_WITHIN_S:g} s")
        time.sleep(0.1)


def _told(member: Member) -> int:
    """Records acknowledged by now."""
    return sum(event["event"] == "acknowledged" for event in Tail(member.journal_path).new())


def _watch(plan: Plan, members: Mapping[str, Member], say: Say) -> None:
    journal, tail = BatchJournal(), Tail(members[MALLORY].journal_path)
    began_s = time.monotonic()
    while (left_s := began_s + plan.seconds - time.monotonic()) > 0:
        time.sleep(min(_LINE_EVERY_S, left_s))
        journal.replay(tail.new())
        good = ", ".join(f"{user} {_told(members[user]):,}" for user in HEALTHY)
        say(
            f"{time.monotonic() - began_s:3.0f} of {plan.seconds:.0f} s: acknowledged {good}; mallory "
            f"{len(journal.acknowledged):,} ids in, {len(journal.refused):,} refused"
        )


def _healthy(member: Member, log: Any) -> HealthySaw:
    journal = ProducerJournal.load(member.journal_path)
    return HealthySaw(
        sent=len(journal.entries),
        acknowledged=journal.count(Outcome.ACKNOWLEDGED),
        refused=member.notes().get("refused"),
        verdict=check([journal], log),
    )
