"""The verifier on hand-made evidence: good evidence passes, and each thing that is wrong fails its check."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_evidence import (
    ADMITTED,
    CLICKS_PARTITIONS,
    PLAN,
    good_evidence,
    refused_event,
)
from tools.sandbox.demo.evidence import Evidence
from tools.sandbox.demo.findings import mallory_ids
from tools.sandbox.demo.plan import ALICE, BOB, CLICKS, ORDERS, Plan
from tools.sandbox.demo.summary import summarize
from tools.sandbox.demo.verdict import conclude
from tools.sandbox.demo.verifier import verify
from tools.sandbox.play import Check


def failed(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.passed}


def test_good_evidence_passes_every_check() -> None:
    checks = verify(PLAN, good_evidence())

    assert failed(checks) == set()
    assert len({check.name for check in checks}) == len(checks) >= 18
    assert all(check.source for check in checks)


def direct_survives(evidence: Evidence) -> None:
    evidence.direct.broker.exit_code = None


def dies_behind_the_gateway(evidence: Evidence) -> None:
    evidence.through_gateway.broker.exit_code = 3


def hangs(evidence: Evidence) -> None:
    evidence.through_gateway.broker.answers = False


def one_id_too_many(evidence: Evidence) -> None:
    # Kept and written alike, and mallory knows of it: only the quota is broken.
    broker = evidence.through_gateway.broker
    mallory = evidence.through_gateway.mallory["mallory-etl-1"]
    mallory.sent(None, 16, at_ms=1_000)
    mallory.acknowledged(None, 16, at_ms=1_100)
    assert broker.states is not None
    broker.states = {
        **broker.states,
        CLICKS: {partition: [*ADMITTED, 16] for partition in CLICKS_PARTITIONS},
    }
    broker.segments[CLICKS].batches.update({(partition, 16): 1 for partition in CLICKS_PARTITIONS})


def loses_a_batch(evidence: Evidence) -> None:
    broker = evidence.through_gateway.broker
    del broker.segments[CLICKS].batches[5, ADMITTED[0]]
    assert broker.states is not None
    clicks = {**broker.states[CLICKS], 5: list(ADMITTED[1:])}
    broker.states = {**broker.states, CLICKS: clicks}


def writes_a_batch_twice(evidence: Evidence) -> None:
    evidence.through_gateway.broker.segments[CLICKS].batches[5, ADMITTED[0]] = 2


def refuses_nobody(evidence: Evidence) -> None:
    for entry in mallory_ids(evidence.through_gateway).values():
        entry.refusals.clear()


def refuses_alice(evidence: Evidence) -> None:
    notes = evidence.through_gateway.notes
    evidence.through_gateway.notes = {**notes, ALICE: {**notes[ALICE], "refused": 1}}


def leaves_alice_without_an_answer(evidence: Evidence) -> None:
    evidence.through_gateway.bystanders[ALICE].sent(1, 0, at_ms=0)


def loses_bobs_record(evidence: Evidence) -> None:
    log = evidence.through_gateway.broker.log
    evidence.through_gateway.broker.log = {**log, ORDERS: list(log[ORDERS])[:-1]}


def gateway(**changes: Any) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        assert evidence.through_gateway.gateway is not None
        evidence.through_gateway.gateway = replace(evidence.through_gateway.gateway, **changes)

    return change


MALLORY_REFUSED = refused_event("mallory", "mallory-etl-1", "127.0.0.66")
ALICE_REFUSED = refused_event("alice", "alice-orders", "127.0.0.1")
DOES_NOT_SERVE = {"and still serves"}
CLICKS_TRUE = "mallory's acknowledged batches are in the log once, refused ones never"
TOLD_WHY = "mallory was refused with a reason and a throttle time"
NAMES = "it names the refused users, and no others"
STAYED_UP = "the gateway stayed up and stopped on SIGTERM"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (direct_survives, {"directly, the broker dies of memory"}),
        (
            dies_behind_the_gateway,
            {"through the gateway, it outlives that time", "and never ran out of memory"},
        ),
        (hangs, DOES_NOT_SERVE | {CLICKS_TRUE}),
        (one_id_too_many, {"mallory's new ids stay within the quota"}),
        (loses_a_batch, {CLICKS_TRUE}),
        (writes_a_batch_twice, {CLICKS_TRUE}),
        (refuses_nobody, {TOLD_WHY}),
        (refuses_alice, {"alice was never refused"}),
        (leaves_alice_without_an_answer, {"all of alice's records are acknowledged"}),
        (loses_bobs_record, {"bob's acknowledged records are in the log exactly once, in order"}),
        (gateway(alive_after_attack=False, exit_code=1), {STAYED_UP}),
        (gateway(log_events=[MALLORY_REFUSED, {"event": "unexpected_error"}]), {STAYED_UP}),
        (gateway(log_events=[MALLORY_REFUSED, ALICE_REFUSED]), {NAMES}),
    ],
)
def test_each_fault_fails_its_check_and_no_other(
    fault: Callable[[Evidence], None], expected: set[str]
) -> None:
    evidence = good_evidence()
    fault(evidence)

    assert failed(verify(PLAN, evidence)) == expected


def test_without_a_quota_the_same_evidence_cannot_pass() -> None:
    checks = verify(Plan(quota=None), good_evidence())

    assert failed(checks) >= {
        "mallory's new ids stay within the quota",
        "carol's new ids stay within the quota",
    }


def test_the_conclusion_follows_the_checks() -> None:
    evidence = good_evidence()
    logs = Path("/kept")
    checks = verify(PLAN, evidence)
    passed = conclude(PLAN, evidence, checks, logs)
    a_failure = [*checks, Check("one more", False, "nothing", "nowhere")]
    off = Plan(quota=None)

    assert passed.passed
    assert "died after 10.0 s" in passed.sentences[0]
    assert "lives after 15.0 s" in passed.sentences[1]
    assert "8 of 8 records" in passed.sentences[1]
    assert "QUOTA=off" in passed.next_command
    assert not conclude(PLAN, evidence, a_failure, logs).passed
    assert conclude(PLAN, evidence, a_failure, logs).next_command == "ls /kept"
    assert "QUOTA=off" not in conclude(off, evidence, a_failure, logs).next_command


def test_the_summary_gives_each_number_a_source() -> None:
    evidence = good_evidence()
    checks = verify(PLAN, evidence)
    summary = summarize(PLAN, evidence, checks, conclude(PLAN, evidence, checks, Path("/kept")))
    written = json.loads(json.dumps(summary))["mallory_saw"]
    assert written["error_codes"]["value"] == {"19": written["refusals"]["value"]}

    assert summary["passed"]
    assert summary["mallory_saw"]["refused"]["value"] == 2
    assert summary["mallory_saw"]["gave_up"]["value"] == 2
    assert summary["direct"]["exit_code"]["value"] == 3
    assert summary["through_gateway"]["states_kept"]["value"] == 3 * 200 + 3
    assert [person["user"] for person in summary["bystanders"]] == [ALICE, BOB]
    # 4, 5, 6 ms, by nearest rank; the first record, of 3 ms, is the connecting one.
    assert summary["bystanders"][0]["latency_ms"]["value"] == {"p50": 5, "p99": 6}
    assert summary["bystanders"][0]["latency_ms_direct_runs"]["value"] == [{"p50": 4, "p99": 5}]
    assert all(fact["source"] for fact in facts(summary))


def facts(node: object) -> list[dict[str, Any]]:
    """Every {"value": ..., "source": ...} in the tree."""
    if isinstance(node, dict):
        found = [node] if "value" in node else []
        return found + [fact for child in node.values() for fact in facts(child)]
    if isinstance(node, list):
        return [fact for child in node for fact in facts(child)]
    return []
