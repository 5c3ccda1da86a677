"""`--engine local`: the sample that ships with the package, without Spark, without Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pidgate.pipeline.cli import app
from pidgate.pipeline.commands.run import SAMPLE_FOLDER
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.tables import Tables


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, on a machine without Java."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_the_shipped_sample_names_its_rogues(here: Path) -> None:
    done = CliRunner().invoke(app, ["run", "--engine", "local", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    at = Tables(None, SAMPLE_FOLDER)
    assert {row["pattern"] for row in at.query("offenders", "from found where harmful")} >= {
        "restart_loop",
        "producer_per_batch",
        "producer_per_error",
    }
    assert found["not_run"] == []
    assert "First look (--engine local)" in done.stderr
    assert SAMPLE_FOLDER in done.stderr
    assert at.query("rates_users", "select count(*) as users from found") == [{"users": 16}]
    assert Path(SAMPLE_FOLDER, "report.html").exists()
    assert Path(SAMPLE_FOLDER, "recommended", "quotas.yaml").exists()


def test_a_folder_of_ones_own_without_events_is_no_sample(here: Path) -> None:
    failure = CliRunner().invoke(app, ["run", "--engine", "local", "--tables", "mine"]).exception
    assert isinstance(failure, HistoryEmpty)
    assert not (here / SAMPLE_FOLDER).exists()


def test_a_topic_is_not_read_by_it(here: Path) -> None:
    failure = CliRunner().invoke(app, ["run", "--engine", "local", "--kafka", "kafka:9092"]).exception
    assert isinstance(failure, BadOption)
