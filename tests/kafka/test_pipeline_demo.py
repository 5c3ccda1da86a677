"""The pipeline demo as its users run it, and that its checks fail when they should."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pidgate.load.journal import ProducerJournal, record_value
from tools.sandbox.demo.findings import BystanderSaw
from tools.sandbox.log_checker import LogRecord
from tools.sandbox.pipeline_demo.acts import ActEvidence
from tools.sandbox.pipeline_demo.checks import Evidence, at_most, first_finding, verify
from tools.sandbox.pipeline_demo.plan import HEALTHY

ROOT = Path(__file__).parents[2]
FINDING = "mallory (mallory-etl) opens a new producer for each batch: 60 new ids"


# Kafka, Spark and two acts: more than `make test` should wait for.
@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_rogue_is_named_and_held_and_nobody_else_is_harmed(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, "-m", "tools.sandbox.pipeline_demo", "--seconds", "20", "--report", str(report)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1_100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert "mallory" in first_finding(report.read_text())
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("pidgate-pipeline-demo-")]
    assert left == []


# Its checks


def _refused(producer_id: int) -> ProducerJournal:
    journal = ProducerJournal("mallory", "clicks")
    journal.sent(None, producer_id)
    why = f"producer_ids_rate quota of user mallory exceeded: producer id {producer_id} is new"
    journal.refused(None, producer_id, 19, 9_000, why)
    return journal


def _healthy(*, lost: bool = False) -> BystanderSaw:
    journal = ProducerJournal("alice", "orders")
    log = []
    for n in range(3):
        journal.sent(0, n)
        journal.acknowledged(0, n, n)
        log.append(LogRecord(0, n, record_value("alice", 0, n)))
    return BystanderSaw.of(journal, {"refused": 0}, log[: 2 if lost else 3])


def _act(ids: int, mallory: ProducerJournal) -> ActEvidence:
    return ActEvidence(
        ran_s=20.0,
        healthy=dict.fromkeys(HEALTHY, _healthy()),
        mallory=mallory,
        mallory_ids_in_log=ids,
        gateway_exit_code=0,
        gateway_trouble=frozenset(),
    )


@pytest.fixture
def good() -> Evidence:
    return Evidence(
        observed=_act(60, ProducerJournal("mallory", "clicks")),
        enforced=_act(3, _refused(7)),
        findings=[{"user": "mallory", "weight": "bad"}, {"user": None, "weight": "good"}],
        page=f'<ol class="findings">\n  \n  <li class="bad"><h3>{FINDING}</h3></li><li>alice</li></ol>',
        quotas={"users": {"mallory": {"producer_ids_rate": 2}}},
        checked=None,
    )


def failed(evidence: Evidence) -> list[str]:
    return [one.name for one in verify(evidence) if not one.passed]


def test_what_went_well_passes(good: Evidence) -> None:
    assert failed(good) == []
    assert first_finding(good.page) == FINDING


def test_a_rogue_that_is_not_held_fails(good: Evidence) -> None:
    assert at_most(2) == 3
    loose = replace(good, enforced=replace(good.enforced, mallory_ids_in_log=4))
    assert failed(loose) == ["under the recommended quotas mallory's ids stay within her rate"]


def test_a_healthy_record_that_is_missing_fails(good: Evidence) -> None:
    harmed = replace(good.enforced, healthy={**good.enforced.healthy, "bob": _healthy(lost=True)})
    assert failed(replace(good, enforced=harmed)) == ["enforced, they are in the log exactly once, in order"]
