"""Branch coverage of the pure packages by the unit tests, and which test files run which lines.

    python -m tools.house.branches measure     # runs tests/unit once, some 15 minutes on one core
    python -m tools.house.branches report      # prints a table from the data

The data file has a context for each test file (`tools.house.contexts`); `tools.house.mutation` reads it. Processes
that tests start are not measured.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import coverage

from tools.house.tree import ROOT, real_folder

PURE = ("quota", "protocol", "events", "gateway/proxy")
MARKS = "not nightly and not faults and not clients and not install and not kafka"


def measure(root: Path, data_file: Path, tests: list[str]) -> int:
    """Run the tests under coverage; return pytest's exit code."""
    source = ",".join(str(real_folder(root, name)) for name in PURE)
    run = ["-m", "coverage", "run", "--branch", f"--data-file={data_file}", f"--source={source}"]
    pytest = ["-m", "pytest", "-q", "-p", "tools.house.contexts", "-m", MARKS, *tests]
    times = {"HOUSE_TIMES_FILE": str(times_file(data_file)), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *run, *pytest], cwd=root, env={**os.environ, **times}).returncode


def times_file(data_file: Path) -> Path:
    """Return where the seconds of each test file are."""
    return data_file.with_name(f"{data_file.name}-times.json")


def rows(root: Path, data_file: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Yield the counts of each package."""
    measured = coverage.Coverage(str(data_file))
    measured.load()
    found = {name: Counter[str]() for name in PURE}
    for name in PURE:
        folder = real_folder(root, name)
        for file in sorted(folder.rglob("*.py")):
            one = measured._analyze(str(file)).numbers  # no public function gives branches by file
            found[name] += Counter(
                statements=one.n_statements,
                missing_statements=one.n_missing,
                branches=one.n_branches,
                missing_branches=one.n_missing_branches,
                excluded=one.n_excluded,
            )
    yield from found.items()


def share(all_of_it: int, missing: int) -> str:
    return f"{1 - missing / all_of_it:.2%} ({missing} of {all_of_it} missing)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "report"])
    parser.add_argument("tests", nargs="*", default=["tests/unit"])
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="top of a checkout; it has to be the one installed"
    )
    parser.add_argument("--data", type=Path, default=ROOT / ".coverage-baseline")
    options = parser.parse_args()
    root, data = options.root.resolve(), options.data.resolve()
    if options.what == "measure":
        sys.exit(measure(root, data, options.tests))
    for name, found in rows(root, data):
        branches = share(found["branches"], found["missing_branches"])
        statements = share(found["statements"], found["missing_statements"])
        print(f"| {name} | branches {branches} | statements {statements} | excluded {found['excluded']} |")


if __name__ == "__main__":
    main()
