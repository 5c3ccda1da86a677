"""All jobs in one session: what they share, what one that fails leaves, and what is shown meanwhile."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pidgate.pipeline import cli
from pidgate.pipeline.commands.common import Progress
from pidgate.pipeline.commands.run import Jobs, chosen, jobs, run_jobs
from pidgate.pipeline.days import EVER
from pidgate.pipeline.engines import Results, results_of
from pidgate.pipeline.errors import BadOption, HistoryEmpty, TableUnreadable
from pidgate.pipeline.passes import FAILOVER, IDS, OFFENDERS, RATES, Pass
from pidgate.pipeline.report.rows import JOB_OF
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.tables import Tables
from tests.pipeline.studied import quiet, scenes, write_history

if TYPE_CHECKING:
    from pidgate.events.definitions import Event
    from pidgate.pipeline.commands.common import Say
    from pidgate.pipeline.runs import Run


@pytest.fixture
def met(tables: Tables) -> Tables:
    """Tables with events, and no result yet."""
    write_history(tables.root, scenes().stream.events())
    return tables


def test_every_job_of_the_report_has_run(studied: tuple[Tables, list[Event]]) -> None:
    tables, _ = studied
    assert set(jobs()) == set(JOB_OF.values())
    assert [name for name in JOB_OF if not tables.exists("results", name)] == []


# What is shared


def test_one_pass_computes_all_but_recommendations(met: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Sequence[str]] = []

    def counted(todo: Pass, *rest: Any) -> Results:
        passes.append(todo.jobs)
        return results_of(todo, *rest)

    monkeypatch.setattr("pidgate.pipeline.commands.run.results_of", counted)
    shared = (RATES, OFFENDERS, IDS, FAILOVER)
    run_jobs(met, chosen(jobs(), shared), EVER, quiet(shared))
    assert passes == [shared]
    assert all(
        met.exists("results", name)
        for name, job in JOB_OF.items()
        if job in shared and name[:9] != "detector_"
    )
    assert not met.files.names("scratch"), "the shared tables are removed"


# One that fails


def number(value: int) -> Jobs:
    """A job that writes one number."""
    return {f"number{value}": lambda run, _: write_number(run, value)}


def write_number(run: Run, value: int) -> None:
    run.write("number", pa.table({"id": range(value)}))


def test_a_job_that_fails_is_named_and_leaves_what_was_there(met: Tables) -> None:
    def breaks(run: Run, say: Say) -> None:
        write_number(run, 7)
        say("half of it")
        raise TableUnreadable("there is no floor.")

    todo = number(3) | {"breaks": breaks} | number(5)
    with pytest.raises(TableUnreadable) as failure:
        run_jobs(met, todo, EVER, quiet([*todo]))
    assert len(met.query("number")) == 3
    (note,) = failure.value.__notes__
    assert "Job breaks failed" in note


def test_only_the_jobs_that_are_named_run(met: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    every = number(3) | number(5) | {"ids": lambda run, _: write_number(run, 7)}
    assert list(chosen(every, ["ids", "number3"])) == ["number3", "ids"]
    assert (chosen(every, ["report"]), chosen(every, None), chosen(every, [])) == ({}, every, every)
    with pytest.raises(
        BadOption, match=r"--only weather: there is no such job\. Choose from number3, number5"
    ):
        chosen(every, ["ids", "weather"])

    monkeypatch.setattr("pidgate.pipeline.commands.run.jobs", lambda *_, **__: every)
    assert CliRunner().invoke(cli.app, ["run", "--tables", met.root, "--only", "number5"]).exit_code == 0
    assert len(met.query("number")) == 5
    assert not met.exists("report.html")


def test_without_events_no_job_begins(tables: Tables) -> None:
    with pytest.raises(HistoryEmpty, match="no decision events"):
        run_jobs(tables, number(3), EVER, quiet(["number3"]))
    assert not tables.exists("results", "number")


def test_a_cluster_without_init_producer_id_leaves_out_ids(met: Tables) -> None:
    met.files.remove("events/init_producer_id")
    said: list[str] = []
    with replacing(met) as run:
        jobs()["ids"](run, said.append)
    assert said[0].startswith("left out: no init_producer_id events")


def test_the_command_goes_from_the_jobs_to_the_report(
    met: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one job: all of them together take minutes, and are behind the tests of the report."""
    monkeypatch.setattr("pidgate.pipeline.commands.run.jobs", lambda *_, **__: chosen(jobs(), ["ids"]))
    output = tmp_path / "r.html"

    done = CliRunner().invoke(cli.app, ["run", "--tables", met.root, "--output", str(output), "--json"])

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["not_run"] == ["failover", "offenders", "rates", "recommend"]
    assert output.exists()
    steps = [line.split(maxsplit=2)[2] for line in done.stderr.splitlines() if " s  " in line]
    assert [step.split(" in ")[0] for step in steps if "done" in step] == [
        "ids        done (1 of 2)",
        "report     done (2 of 2)",
    ]


def test_the_command_says_cause_remedy_and_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        error = TableUnreadable("results/x is incomplete. Remove it.")
        error.add_note("(Job rates failed.)")
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == (
        "pidgate pipeline: results/x is incomplete. Remove it. (Job rates failed.)\n"
    )


# What is shown

STEP = "Arrivals of 500 users, healthy by the history's own labels. Every rate is tried on all of them ..."


def shown(*, terminal: bool) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=terminal, color_system=None)
    progress = Progress(console, ["rates", "recommend"])
    with progress.of("recommend"):
        progress.say(STEP)
    with pytest.raises(ZeroDivisionError), progress.of("rates"):
        raise ZeroDivisionError
    without_moves = re.sub(r"\x1b\[[0-9?]*[A-Za-z]|\r", "\n", text.getvalue())
    return [line for line in without_moves.splitlines() if line]


def test_a_log_has_one_line_for_each_step() -> None:
    step, done, failed = shown(terminal=False)
    assert step == f"   0 s  recommend  {STEP}"
    assert done == "   0 s  recommend  done (2 of 2) in 0 s"
    assert failed == "   0 s  rates      failed after 0 s"


def test_on_a_terminal_nothing_is_wider_than_it() -> None:
    lines = shown(terminal=True)
    assert any("recommend, 2 of 2" in line for line in lines), "what runs now"
    assert max(map(len, lines)) <= 80
    assert sum("Arrivals" in line or "tried" in line for line in lines) == 2, "wrapped beside the job's name"
