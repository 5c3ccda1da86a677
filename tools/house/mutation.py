"""Mutation score of the quota core and of the session: what share of small changes the unit tests notice.

    python -m tools.house.branches measure                    # once: which test files run which lines
    python -m tools.house.mutation --seed 38 --results FILE       # hours or minutes, goes on where it stopped
    python -m tools.house.mutation --results FILE --report

The mutants of all TARGETS are shuffled by the seed; the first `--count` are the sample. The tests are imported once.
For each mutant the process forks, the child replaces the code of the one changed function and runs the test files
that cover the changed lines, the quickest first, up to the first test that fails. Test files that take longer
than `--tests-s` seconds together are left out, and so are tests that fail without a mutant in such a child.

mutmut 3 does not change properties and other decorated functions, and its trampolines change what the tests of work
and of memory count. cosmic-ray starts pytest anew for each mutant, which takes 20 s here.
"""

import argparse
import gc
import io
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from coverage import CoverageData

from tools.house.mutants import Mutant, mutants, mutated
from tools.house.tree import ROOT, real_folder

TARGETS = (
    "quota/*.py",
    "gateway/proxy/apis/*.py",
    "gateway/proxy/session.py",
    "gateway/proxy/connection_state.py",
    "gateway/proxy/connection_quotas.py",
    "gateway/proxy/read_ahead.py",
    "gateway/proxy/refusal_log.py",
)
"""The quota core and the sans-IO part of the session, within the package."""

KILLED, TIMEOUT, SURVIVED, UNCOVERED, UNFIT = "killed", "timeout", "survived", "uncovered", "unfit"
"""UNFIT: the new code does not fit the function (its `super()` is gone); left out of the score."""


def sample(root: Path, seed: int) -> list[Mutant]:
    """Return all mutants, in the random order of the sample."""
    files = sorted({file for target in TARGETS for file in _files(root, target)})
    found = [one for file in files for one in mutants(file.relative_to(root).as_posix(), file.read_text())]
    random.Random(seed).shuffle(found)
    return found


def _files(root: Path, target: str) -> Iterator[Path]:
    room, _, rest = target.partition("/")
    return real_folder(root, room).glob(rest)


class Choice:
    """The test files of a mutant, by the coverage contexts of its lines."""

    def __init__(self, root: Path, data_file: Path, times_file: Path, limit_s: float) -> None:
        self._root, self._limit_s = root, limit_s
        self._times: dict[str, float] = json.loads(times_file.read_text())
        self._data = CoverageData(str(data_file))
        self._data.read()
        self._lines: dict[str, dict[int, list[str]]] = {}

    def files(self, mutant: Mutant) -> list[str]:
        """Return the test files to run: the one named as the module first, then the quickest."""
        if mutant.path not in self._lines:
            self._lines[mutant.path] = self._data.contexts_by_lineno(str(self._root / mutant.path))
        first, last = mutant.lines
        lines = self._lines[mutant.path]
        found = {file for line in range(first, last + 1) for file in lines.get(line, []) if file}
        own = f"/test_{Path(mutant.path).stem}.py"
        chosen, spent_s = list[str](), 0.0
        for file in sorted(found, key=lambda file: (not file.endswith(own), self._times[file], file)):
            spent_s += self._times[file]
            if chosen and spent_s > self._limit_s:
                break
            chosen.append(file)
        return chosen


class Functions:
    """The live functions of our modules, by the place where their code stands."""

    def __init__(self, root: Path, paths: set[str]) -> None:
        self._root = root
        for path in paths:
            parts = Path(path).with_suffix("").parts
            import_module(".".join(parts if parts[0] == "pidgate" else ("pidgate", *parts)))
        self._found = defaultdict[tuple[str, str, int], list[FunctionType]](list)
        real = {name: os.path.realpath(name) for name in {one.__code__.co_filename for one in self._all()}}
        for one in self._all():
            code = one.__code__
            self._found[real[code.co_filename], code.co_qualname, code.co_firstlineno].append(one)

    @staticmethod
    def _all() -> Iterator[FunctionType]:
        return (one for one in gc.get_objects() if isinstance(one, FunctionType))

    def change(self, mutant: Mutant) -> bool:
        """Give the mutant's function its changed code; false if that does not fit."""
        file = self._root / mutant.path
        code = compile(mutated(file.read_text(), mutant.number), str(file), "exec", dont_inherit=True)
        changed = False
        for new in _codes(code):
            if new.co_qualname == mutant.function:
                for function in self._found[str(file), new.co_qualname, new.co_firstlineno]:
                    try:
                        function.__code__ = new
                    except ValueError:
                        return False
                    changed = True
        return changed


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


class Runner:
    """Pytest plugin: instead of the tests it runs the mutants."""

    def __init__(self, options: argparse.Namespace, todo: list[Mutant], choice: Choice) -> None:
        self.options, self.todo, self.choice = options, todo, choice
        self._failed: str | None = None
        self._control_file = Path(f"{options.results}.control.json")

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # not before pytest, which warns of it

        # A failing example is found once and not made smaller, and no mutant finds those of another.
        quick = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", database=None, phases=quick, deadline=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = defaultdict[str, list[pytest.Item]](list)
        for item in session.items:
            self._items[item.nodeid.partition("::")[0]].append(item)
        functions = Functions(self.options.root, {one.path for one in self.todo})
        gc.collect()
        gc.freeze()
        self._control()
        until = time.monotonic() + self.options.minutes * 60
        for mutant in self.todo:
            if time.monotonic() > until:
                break
            start = time.monotonic()
            result, test = self._result(mutant, functions)
            row = {**asdict(mutant), "result": result, "test": test, "s": round(time.monotonic() - start, 2)}
            with open(self.options.results, "a") as out:
                out.write(json.dumps(row) + "\n")
        return True

    def _control(self) -> None:
        """Run each test file without a mutant, once; its failing tests say nothing about one."""
        known: dict[str, Any] = (
            json.loads(self._control_file.read_text()) if self._control_file.exists() else {}
        )
        for file in sorted({file for one in self.todo for file in self.choice.files(one)} - set(known)):
            bad, start = set[str](), time.monotonic()
            while (end := self._forked(lambda: True, self._items[file], bad, 300))[0] == KILLED:
                bad.add(end[1] or "")
            known[file] = {
                "fails": sorted(bad) if end[0] == SURVIVED else None,
                "s": time.monotonic() - start,
            }
            self._control_file.write_text(json.dumps(known, indent=0))
        self._bad = {test for one in known.values() for test in one["fails"] or ()}
        self._seconds = {file: one["s"] for file, one in known.items() if one["fails"] is not None}

    def _result(self, mutant: Mutant, functions: Functions) -> tuple[str, str | None]:
        files = [file for file in self.choice.files(mutant) if file in self._seconds]
        if not files:
            return UNCOVERED, None
        limit_s = 10 + 3 * sum(self._seconds[file] for file in files)
        items = [item for file in files for item in self._items[file]]
        return self._forked(lambda: functions.change(mutant), items, self._bad, limit_s)

    def _forked(
        self, prepare: Callable[[], bool], items: list[pytest.Item], left_out: set[str], limit_s: float
    ) -> tuple[str, str | None]:
        """Run tests in a child, in a folder of its own, until one fails; return the result and that test."""
        with tempfile.NamedTemporaryFile() as said:
            folder = tempfile.mkdtemp(prefix="mutant-")
            child = os.fork()
            if child == 0:
                os.setsid()
                self._run(
                    prepare, [one for one in items if one.nodeid not in left_out], Path(folder), said.name
                )
            status = _wait(child, limit_s)
            shutil.rmtree(folder, ignore_errors=True)
            test = Path(said.name).read_text() or None
        if status is None:
            return TIMEOUT, test
        # A child that crashed was noticed too; it wrote down the test that it had begun.
        return {0: SURVIVED, 3: UNFIT}.get(status, KILLED), test if status not in (0, 3) else None

    def _run(self, prepare: Callable[[], bool], items: list[pytest.Item], folder: Path, said: str) -> None:
        status = 4
        try:
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            if items:
                config: Any = items[0].config
                config._tmp_path_factory._basetemp = folder
                config.get_terminal_writer()._file = io.StringIO()
            if not prepare():
                os._exit(3)
            for item, following in zip(items, [*items[1:], None], strict=True):
                Path(said).write_text(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    os._exit(1)
            status = 0
        finally:
            os._exit(status)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid


def _wait(child: int, limit_s: float) -> int | None:
    """Return the exit code of a child, None if it took too long; nothing that it started is left.

    Too long is processor time, so that a busy machine ends no mutant; one that only waits gets ten times as much.
    """
    until = time.monotonic() + 10 * limit_s
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        late = not done and (_cpu_s(child) > limit_s or time.monotonic() > until)
        if done or late:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            if not done:
                os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status) if done else None
        time.sleep(0.01)


def _cpu_s(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Score:
    """How many of how many mutants were noticed, with the 95 % interval of Wilson."""

    noticed: int = 0
    all: int = 0

    def __str__(self) -> str:
        if not self.all:
            return "no mutants"
        z, n, share = 1.96, self.all, self.noticed / self.all
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return f"{share:6.1%} ({middle - half:.1%} to {middle + half:.1%}), {self.noticed} of {n}"


def report(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the report."""
    scores = defaultdict[str, Score](Score)
    for row in rows:
        if row["result"] != UNFIT:
            folder = "quota" if "quota/" in row["path"] else "session"
            for name in ("all", f"in {folder}", f"operator {row['operator']}", row["path"]):
                scores[name].all += 1
                scores[name].noticed += row["result"] in (KILLED, TIMEOUT)
    yield "results: " + ", ".join(
        f"{n} {name}" for name, n in Counter(r["result"] for r in rows).most_common()
    )
    yield from (f"{name:45} {score}" for name, score in sorted(scores.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="the checkout; it has to be the one installed"
    )
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage-baseline")
    parser.add_argument("--times", type=Path, default=ROOT / ".coverage-baseline-times.json")
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, one a mutant")
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--tests-s", type=float, default=15, help="most seconds of test files for a mutant")
    parser.add_argument(
        "--minutes", type=float, default=600, help="stop after this long, in the order of the sample"
    )
    parser.add_argument("--report", action="store_true", help="only print what the results say")
    parser.add_argument("--survivors", action="store_true", help="and list the mutants that no test noticed")
    options = parser.parse_args()
    options.root, options.results = options.root.resolve(), options.results.resolve()
    rows = [json.loads(line) for line in options.results.open()] if options.results.exists() else []
    if not options.report:
        done = {(row["path"], row["number"]) for row in rows}
        drawn = sample(options.root, options.seed)[: options.count]
        todo = [one for one in drawn if (one.path, one.number) not in done]
        choice = Choice(options.root, options.coverage, options.times, options.tests_s)
        run(options, todo, choice)
        rows = [json.loads(line) for line in options.results.open()]
    print(*report(rows), sep="\n")
    for row in rows if options.survivors else ():
        if row["result"] in (SURVIVED, UNCOVERED):
            print(f"{row['result']:9} {row['path']}:{row['lines'][0]} {row['function']}: {row['change']}")


def run(options: argparse.Namespace, todo: list[Mutant], choice: Choice) -> None:
    """Collect the chosen test files once, then run the mutants within this pytest."""
    os.chdir(options.root)
    files = sorted({file for one in todo for file in choice.files(one)})
    marks = "not nightly and not faults and not clients and not install and not kafka"
    quiet = ["-q", "-p", "no:cacheprovider"]
    status = pytest.main(
        [*quiet, "-m", marks, "--hypothesis-seed=0", *files], plugins=[Runner(options, todo, choice)]
    )
    if status:
        sys.exit(f"pytest ended with {status}")


if __name__ == "__main__":
    main()
