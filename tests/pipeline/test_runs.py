"""A killed run leaves the last results, all of them, or its own, all of them; and nobody writes results another way."""

from __future__ import annotations

import ast
import hashlib
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pidgate import pipeline
from pidgate.pipeline import swaps as swaps_module
from pidgate.pipeline.errors import TableUnreadable
from pidgate.pipeline.files import Files
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.swaps import Swaps
from tests.pipeline.jobs import running_job
from tests.pipeline.mortal import Killed, Mortal, files_on, put

if TYPE_CHECKING:
    from pidgate.pipeline.tables import Tables

PLACES = ("results/rates_users", "results/held_by_hour", "recommended")


def look(files: Files, root: Path) -> list[str]:
    """What a reader finds at each place, now."""
    found = (root / Swaps(files).where(f"{place}/part") for place in PLACES)
    return [path.read_text() if path.exists() else "nothing" for path in found]


def run_of(files: Files, root: Path, words: str) -> None:
    swaps = Swaps(files)
    folder = swaps.begin()
    for place in PLACES:
        put(root, f"{folder}/written/{place}/part", words)
    swaps.commit(folder, PLACES)


def killed_at_each_step(tmp_path: Path, is_store: bool) -> Iterator[tuple[Path, list[list[str]]]]:
    """Yield root and all that a reader saw, of a run that was killed before each of its changes, until one was not."""
    for steps in range(100):
        root = tmp_path / str(steps)
        plain = files_on(root, is_store=is_store)
        run_of(plain, root, "old")
        mortal = Mortal(steps, partial(look, plain, root), is_store)
        try:
            run_of(files_on(root, mortal, is_store=is_store), root, "new")
        except Killed:
            yield root, [*mortal.seen, look(plain, root)]
        else:
            yield root, mortal.seen
            break
    assert 5 < steps < 99


kinds = pytest.mark.parametrize("is_store", [False, True], ids=["disk", "store"])


@kinds
def test_killed_at_each_step_the_results_are_of_one_run(tmp_path: Path, is_store: bool) -> None:
    outcomes = set()
    for root, seen in killed_at_each_step(tmp_path, is_store):
        for found in seen:
            assert found in (["old"] * 3, ["new"] * 3), f"killed before step {root.name}"
        outcomes.add(seen[-1][0])
        # The same job again, and not a word of the killed one is left.
        files = files_on(root, is_store=is_store)
        run_of(files, root, "newer")
        assert look(files, root) == ["newer"] * 3
        assert [(root / place / "part").read_text() for place in PLACES] == ["newer"] * 3
    assert outcomes == {"old", "new"}


@kinds
def test_without_the_commit_a_reader_finds_a_mixture(
    tmp_path: Path, is_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check above says of renames alone."""
    monkeypatch.setattr(Swaps, "where", lambda _, path: path)
    everything = [found for _, seen in killed_at_each_step(tmp_path, is_store) for found in seen]
    assert any(len(set(found)) > 1 for found in everything)


@kinds
def test_a_later_run_of_any_job_moves_what_a_killed_one_left(
    tmp_path: Path, is_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swaps_module, "MOVING_MS", 0)
    monkeypatch.setattr(swaps_module, "RUNNING_MS", 0)
    for root, seen in killed_at_each_step(tmp_path, is_store):
        Swaps(files_on(root, is_store=is_store)).begin()
        assert [(root / place / "part").read_text() for place in PLACES] == seen[-1]
        assert list((root / "scratch").glob("[!.]*")) == []


def test_the_runs_of_others_are_left_alone(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    mine = Swaps(files).begin()
    put(tmp_path, f"{mine}/written/results/x/part", "mine")
    Swaps(files).begin()
    assert (tmp_path / mine / "written/results/x/part").exists()


def test_a_commit_that_is_none_is_named(tmp_path: Path) -> None:
    put(tmp_path, "scratch/0000000000001-aa/commit.json", "{}")
    with pytest.raises(TableUnreadable, match=r"commit\.json was not written by a job"):
        Swaps(Files(str(tmp_path))).where("results/x")


def numbers(count: int) -> pa.Table:
    return pa.table({"id": range(count)})


def test_a_job_that_fails_in_the_middle_leaves_the_last_results(tables: Tables) -> None:
    with replacing(tables) as run:
        run.write("a", numbers(3))
        run.write_text("recommended", "quotas.yaml", "old")

    def fails() -> None:
        with replacing(tables) as run:
            run.write("a", numbers(5))
            run.write_text("recommended", "quotas.yaml", "new")
            assert len(run.query("a")) == 5
            assert len(tables.query("a")) == 3, "no reader looks there"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(tables.query("a")) == 3
    assert tables.text("recommended", "quotas.yaml") == "old"
    assert not list(Path(tables.root, "scratch").glob("[!.]*"))


# Nobody else writes

WRITERS = {"engines.py", "runs.py", "files.py", "swaps.py", "history.py", "report.py"}
"""history: labels, into the folder of its run; report: a file of its own, beside and renamed."""


def writes(source: str) -> bool:
    """Whether a module writes by Spark or replaces a file by itself."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = [func for func in calls if isinstance(func, ast.Attribute)]
    spark = any("write" in ast.unparse(func.value).split(".")[1:] for func in names)
    return spark or any(func.attr == "replace" and "files" in ast.unparse(func.value) for func in names)


def test_results_are_written_by_runs_alone() -> None:
    folder = Path(pipeline.__file__).parent
    modules = [path for path in folder.rglob("*.py") if path.parent.name != "ingest"]
    assert {path.name for path in modules if writes(path.read_text())} <= WRITERS
    assert writes('frame.coalesce(1).write.mode("overwrite").parquet(path)'), "the way that it was"


# kill -9

JOBS = ("rates", "offenders", "recommend", "ids", "failover")
SIZE = ("--users", "12", "--days", "8", "--events", "40000", "--seed", "5")


def started(job: str, tables: Path, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running_job(job, tables, tables.parent / f"{job}.log", *options)


def results(tables: Path) -> dict[str, str]:
    """Every file that a person or a program reads, and what is in it."""
    places = (tables / name for name in ("results", "recommended"))
    files = (path for place in places for path in place.rglob("[!.]*"))
    return {
        str(path.relative_to(tables)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file()
    }


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_every_job_killed_leaves_the_last_results(tmp_path: Path) -> None:
    """Killed as soon as it has written the first of them: a job that deletes before it writes had none by then."""
    tables = tmp_path / "tables"
    with started("history", tables, *SIZE) as process:
        assert process.wait(600) == 0, (tmp_path / "history.log").read_text()
    for job in JOBS:
        with started(job, tables) as process:
            assert process.wait(600) == 0, (tmp_path / f"{job}.log").read_text()
        before = results(tables)
        assert before
        with started(job, tables) as process:
            while process.poll() is None and not list(tables.glob("scratch/*/written/*")):
                time.sleep(0.05)
            assert process.poll() is None
        assert results(tables) == before, job
