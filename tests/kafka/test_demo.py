"""The demo as its users run it. Both runs kill a broker, so they belong to `make faults`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidgate.load.journal import Outcome, ProducerJournal
from tests.support.log_checks import raise_if_bad
from tools.sandbox import guard
from tools.sandbox.demo.segments import read_topic
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import PLAINTEXT, SASL_PLAINTEXT
from tools.sandbox.topics import create_topic

ROOT = Path(__file__).parents[2]


def demo(directory: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and summary of one run; its temporary files stay below the directory."""
    path = directory / "demo-summary.json"
    done = subprocess.run(
        [sys.executable, "-m", "tools.sandbox.demo", "--summary", str(path), *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert path.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(path.read_text())


@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_broker_dies_directly_and_lives_behind_the_gateway(tmp_path: Path) -> None:
    code, output, summary = demo(tmp_path)

    assert [check for check in summary["checks"] if not check["passed"]] == []
    assert code == 0, output
    assert summary["direct"]["broker_died"]["value"] is True
    assert summary["through_gateway"]["broker_died"]["value"] is False
    assert summary["through_gateway"]["ids_in_log"]["value"]["mallory"] in (101, 102)
    headings = [
        "Verdict",
        "Who and why",
        "Bystanders",
        "What mallory saw",
        "Heap and ids over time",
        f"Checks: {len(summary['checks'])} of {len(summary['checks'])}",
        "Next",
    ]
    assert [line.strip() for line in output.splitlines() if line.strip() in headings] == headings
    assert [path.name for path in tmp_path.iterdir()] == ["demo-summary.json"]


@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_without_a_quota_the_verifier_fails_and_the_exit_code_tells(tmp_path: Path) -> None:
    code, output, summary = demo(tmp_path, "--quota", "off")

    assert code == 1, output
    assert summary["passed"] is False
    assert summary["through_gateway"]["broker_died"]["value"] is True
    failed = {check["name"] for check in summary["checks"] if not check["passed"]}
    assert "through the gateway, it outlives that time" in failed
    assert "mallory's new ids stay within the quota" in failed
    kept = next(path for path in tmp_path.iterdir() if path.name.startswith("pidgate-demo-"))
    assert (kept / "direct" / "broker.log").stat().st_size > 0
    assert (kept / "gateway" / "pidgate.log").stat().st_size > 0


@pytest.mark.kafka
class TestProducers:
    """Each of the demo's producers for a moment, directly."""

    @pytest.mark.parametrize(("client", "mechanism"), [("confluent", "PLAIN"), ("aiokafka", "SCRAM-SHA-256")])
    def test_a_bystanders_journal_is_what_the_log_holds(
        self,
        client: str,
        mechanism: str,
        sasl_cluster: Cluster,
        topic_name: Callable[[str], str],
        tmp_path: Path,
    ) -> None:
        topic = create_topic(sasl_cluster.bootstrap_servers(PLAINTEXT), topic_name("orders"), 2)
        path, notes = tmp_path / "journal", tmp_path / "notes"

        play(
            *("bystander", *login(sasl_cluster), "--client", client, "--mechanism", mechanism),
            *("--client-id", "orders", "--topic", topic, "--partitions", "2"),
            *("--journal", str(path), "--notes", str(notes)),
            until=lambda: written(path).count("acknowledged") >= 50,
        )

        journal = ProducerJournal.load(path)
        assert journal.count(Outcome.ACKNOWLEDGED) == len(journal.entries) >= 50
        verdict = check([journal], read_log(sasl_cluster.bootstrap_servers(PLAINTEXT), topic), only_ours=True)
        raise_if_bad(verdict)
        assert json.loads(notes.read_text())["refused"] == 0

    def test_each_of_the_rogues_batches_has_an_id_of_its_own(
        self, sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
    ) -> None:
        topic = create_topic(sasl_cluster.bootstrap_servers(PLAINTEXT), topic_name("clicks"), 3)
        path = tmp_path / "journal"

        play(
            *("synthetic", "id-per-batch", *login(sasl_cluster), "--client-id", "etl-1", "--topic", topic),
            *("--threads", "2", "--journal", str(path)),
            until=lambda: written(path).count("acknowledged") >= 20,
        )

        entries = ProducerJournal.load(path).entries.items()
        acknowledged = {n for (_, n), entry in entries if entry.outcome is Outcome.ACKNOWLEDGED}
        found = read_topic(sasl_cluster.directory / "node-1" / "data", topic)
        assert len(acknowledged) >= 20
        assert acknowledged <= found.ids
        assert {found.partitions_of()[producer_id] for producer_id in acknowledged} == {3}
        assert found.doubled() == []

    def test_each_life_of_the_crash_loop_has_an_id_of_its_own(
        self, sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
    ) -> None:
        topic = create_topic(sasl_cluster.bootstrap_servers(PLAINTEXT), topic_name("nightly"))
        path = tmp_path / "journal"

        play(
            *("synthetic", "crash-loop", *login(sasl_cluster), "--client-id", "nightly", "--topic", topic),
            *("--journal", str(path)),
            until=lambda: written(path).count("acknowledged") >= 2,
        )

        journal = ProducerJournal.load(path)
        raise_if_bad(check([journal], read_log(sasl_cluster.bootstrap_servers(PLAINTEXT), topic)))
        found = read_topic(sasl_cluster.directory / "node-1" / "data", topic)
        assert len(found.ids) == journal.count(Outcome.ACKNOWLEDGED) == len(journal.entries) >= 2


def login(cluster: Cluster) -> list[str]:
    server = cluster.bootstrap_servers(SASL_PLAINTEXT)
    return ["--bootstrap-server", server, "--user", "alice", "--password", "alice-secret"]


def play(*arguments: str, until: Callable[[], bool]) -> None:
    """Run one of the producers until something has happened, then let it end as it is meant to."""
    process = guard.spawn([sys.executable, "-m", f"tools.sandbox.producers.{arguments[0]}", *arguments[1:]])
    give_up_s = time.monotonic() + 60
    while not until() and process.poll() is None and time.monotonic() < give_up_s:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 0
    guard.ended(process)


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_quota_that_is_none_is_told_at_once() -> None:
    for quota in ("many", "-1", "1/0"):
        done = subprocess.run(
            [sys.executable, "-m", "tools.sandbox.demo", f"--quota={quota}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert "quota" in done.stderr
