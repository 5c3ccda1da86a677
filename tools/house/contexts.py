"""Pytest plugin: give every test file its own coverage context, and write down how long each file takes.

`tools.house.branches measure` runs it under coverage.py. A context is a test file, not a test: the contexts of 10,000
tests would make the data a hundred times larger, and choosing the tests of a mutant needs files only.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator

import coverage
import pytest

TIMES_FILE = os.environ.get("HOUSE_TIMES_FILE", ".coverage-times.json")

seconds = defaultdict[str, float](float)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    file = item.nodeid.partition("::")[0]
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(file)
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        seconds[file] += time.perf_counter() - start


def pytest_sessionfinish() -> None:
    with open(TIMES_FILE, "w") as out:
        json.dump({file: round(value, 3) for file, value in sorted(seconds.items())}, out, indent=0)
