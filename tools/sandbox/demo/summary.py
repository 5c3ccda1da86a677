"""demo-summary.json: the facts of the last screen, each with its source. Schema: docs/tutorial/demo.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pidgate.load.journal import Outcome as Told
from tools.sandbox.demo import verifier
from tools.sandbox.demo.evidence import Evidence, Half
from tools.sandbox.demo.findings import (
    Latency,
    bystander_saw,
    ids_in_log,
    latency,
    mallory_saw,
    refused_by_gateway,
    states_in_log,
)
from tools.sandbox.demo.plan import ALICE, BOB, CAROL, MALLORY, Plan, plain
from tools.sandbox.demo.verdict import Outcome
from tools.sandbox.play import Check

SCHEMA_VERSION = 1

_METRICS = "the gateway's /metrics, for comparison only"


def write(path: Path, summary: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def summarize(plan: Plan, evidence: Evidence, checks: Sequence[Check], outcome: Outcome) -> dict[str, Any]:
    """Return the summary as plain JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "passed": outcome.passed,
        "verdict": list(outcome.sentences),
        "settings": {
            "quota": None if plan.quota is None else plain(plan.quota),
            "rogues": plan.rogues,
            "seed": plan.seed,
            "kafka_version": plan.version,
            "heap_mb": plan.heap_mb,
        },
        "direct": _half(evidence.direct),
        "through_gateway": _half(evidence.through_gateway),
        "who": _who(plan, evidence.through_gateway),
        "bystanders": [_bystander(evidence, user) for user in (ALICE, BOB)],
        "machine_delay_ms": _fact(
            {
                "direct_runs": round(evidence.baseline_delay_ms, 1),
                "direct": round(evidence.direct.delay_ms, 1),
                "through_gateway": round(evidence.through_gateway.delay_ms, 1),
            },
            "a timer of 5 ms in the demo's process: p99 of its lateness",
        ),
        "mallory_saw": _mallory(evidence.through_gateway),
        "gateway_says": _gateway_says(evidence.through_gateway),
        "checks": [asdict(check) for check in checks],
        "next_command": outcome.next_command,
        "total_s": _fact(round(evidence.total_s, 1), "the demo's clock"),
    }


def _fact(value: object, source: str) -> dict[str, object]:
    return {"value": value, "source": source}


def _half(half: Half) -> dict[str, Any]:
    peak_mb = max((point.heap_used_mb for point in half.points), default=0)
    states = half.broker.states
    kept = None if states is None else sum(len(ids) for topic in states.values() for ids in topic.values())
    return {
        "broker_died": _fact(half.died, verifier.PROCESS),
        "attack_s": _fact(round(half.attack_s, 1), "the demo's clock"),
        "exit_code": _fact(half.broker.exit_code, verifier.PROCESS),
        "out_of_memory": _fact(half.broker.out_of_memory, verifier.BROKER_LOG),
        "heap_peak_mb": _fact(peak_mb, verifier.GC_LOG),
        "ids_in_log": _fact(ids_in_log(half), verifier.SEGMENTS),
        "states_in_log": _fact(states_in_log(half), verifier.SEGMENTS),
        "states_kept": _fact(kept, verifier.DESCRIBE),
        "over_time": {
            "columns": ["at_s", "heap_used_mb", "ids_per_partition", "alive"],
            "sources": ["the demo's clock", verifier.GC_LOG, verifier.DESCRIBE, verifier.PROCESS],
            "rows": [
                [round(point.at_s, 1), point.heap_used_mb, point.ids, point.alive] for point in half.points
            ],
        },
    }


def _who(plan: Plan, through: Half) -> list[dict[str, Any]]:
    saw = mallory_saw(through)
    ids = ids_in_log(through)
    mallory: dict[str, Any] = {
        "user": MALLORY,
        "does": "a new idempotent producer for each batch",
        "client_ids": _fact(list(saw.client_ids), verifier.JOURNAL),
        "hosts": _fact(list(saw.hosts), verifier.JOURNAL),
        "ids_brought": _fact(saw.brought, verifier.JOURNAL),
        "ids_in_log": _fact(ids[MALLORY], verifier.SEGMENTS),
    }
    carol: dict[str, Any] = {
        "user": CAROL,
        "does": "crashes after its first record and is started again",
        "starts": _fact(len(through.carol.entries), verifier.JOURNAL),
        "acknowledged": _fact(through.carol.count(Told.ACKNOWLEDGED), verifier.JOURNAL),
        "ids_in_log": _fact(ids[CAROL], verifier.SEGMENTS),
    }
    named = {refused.user: refused for refused in refused_by_gateway(through)}
    for person in (mallory, carol):
        user = str(person["user"])
        rate = plan.rate_of(user)
        person["quota_per_hour"] = None if rate is None else plain(rate)
        refused = named.get(user)
        person["named_by_gateway"] = _fact(
            None
            if refused is None
            else {"client_ids": sorted(refused.client_ids), "hosts": sorted(refused.hosts)},
            "the gateway's log",
        )
    return [mallory, carol]


_COUNTS = ("sent", "acknowledged", "failed", "unknown")


def _bystander(evidence: Evidence, user: str) -> dict[str, Any]:
    saw, direct = bystander_saw(evidence.through_gateway, user), bystander_saw(evidence.direct, user)
    verdict = saw.verdict
    return {
        "user": user,
        "client": saw.client,
        "client_id": saw.client_id,
        "refused": _fact(saw.refused, verifier.LIBRARY),
        **{name: _fact(getattr(saw, name), verifier.JOURNAL) for name in _COUNTS},
        "in_log": _fact(None if verdict is None else verdict.in_log, verifier.READ_BACK),
        "log_check": _fact(None if verdict is None else verdict.summary(), verifier.READ_BACK),
        "latency_ms": _fact(_latency(saw.latency), verifier.JOURNAL),
        "latency_ms_direct_runs": _fact(
            [_latency(latency(run[user])) for run in evidence.baseline], verifier.JOURNAL
        ),
        "beside_rogues_directly": _fact({name: getattr(direct, name) for name in _COUNTS}, verifier.JOURNAL),
    }


def _latency(found: Latency | None) -> dict[str, int] | None:
    return None if found is None else {"p50": found.p50_ms, "p99": found.p99_ms}


def _mallory(through: Half) -> dict[str, Any]:
    saw = asdict(mallory_saw(through))
    of_who = ("brought", "client_ids", "hosts")
    return {name: _fact(value, verifier.JOURNAL) for name, value in saw.items() if name not in of_who}


def _gateway_says(through: Half) -> dict[str, Any]:
    """Return the gateway's own figures, which no check uses."""
    metrics = through.gateway.metrics if through.gateway else None
    if metrics is None:
        return {}
    return {
        user: {
            "admitted": _fact(int(metrics.value("pidgate_producer_ids_admitted_total", user=user)), _METRICS),
            "refused": _fact(int(metrics.value("pidgate_producer_ids_refused_total", user=user)), _METRICS),
        }
        for user in (ALICE, BOB, CAROL, MALLORY)
    }
