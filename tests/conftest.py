"""For all tests: say which Kafka serves those that any cluster can serve, and what is tried twice.

A test against real brokers on a busy machine of two cores may miss a time limit: it is run once more, and the closing
line says so ("1 rerun", with the failure above it). At most REAL_RERUNS of them in a run: what fails more often is
broken. All other tests, and so the rules that mutants are held against, have one try. `pytest --force-reruns=0` gives
everybody one, `--fail-on-flaky` fails a run that needed a second.

With several processes (make test) each starts the clusters that its tests share; what must not be spread over them
is kept together by `Whole`. The mark xdist_group does not do it: pytest-xdist 3.8 writes the group into a field that
pytest 9.2 no longer reads, so that Spark ran in every process and each fixture of a module was made twice.

An error outside of tests ends the process it is in, and what pytest-xdist says in the end is only that tests are
missing: the first such error is printed last. The text of a failed test must not be one (`sendable`). A process that
is gone ends the run: with one in its place pytest-xdist 3.8 waits for ever (its issue 1323).

A comparison that fails is explained in the same way everywhere, and in no time: with CI set pytest explains it whole,
which for megabytes takes minutes, also where a mutant is to fail.
"""

import os
import re
import signal
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadGroupScheduling, LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.bounds import THOROUGH
from tests.support.by_night import is_by_night
from tests.support.clusters import Choice, choose
from tests.support.inputs import INPUTS, ROOT, unchanged
from tests.support.reports import sendable

for variable in ("CI", "BUILD_NUMBER"):
    os.environ.pop(variable, None)

settings.register_profile("pidgate", settings(), deadline=None)  # a busy machine is not a fault
settings.load_profile("pidgate")

CHOICE = pytest.StashKey[Choice]()

REAL_RERUNS = 2

MOST_LINES = 20
"""Of an error outside of tests."""

WHOLE_MODULES = (
    "tests/kafka/",
    "tests/pipeline/",
    "tests/hostile/",
    "tests/fuzz/",
    *INPUTS,
    "tests/unit/test_architecture",
)
"""Their fixtures start brokers and clients, compile or install; the last one reads all modules."""

NEEDS_SPARK = re.compile(r"\b(spark|tables): ")
"""A test or fixture with one of these arguments: Spark is slow to start, so one process runs their files."""


@cache
def needs_spark(module: str) -> bool:
    # Read from the text: what gives out the tests to the processes has collected none.
    return module.startswith("tests/pipeline/") and bool(
        NEEDS_SPARK.search((ROOT / module).read_text("utf-8"))
    )


DEAR_CLUSTERS = re.compile(r"three_brokers|old_cluster|\bguarded: Cluster")
"""Clusters that one process starts for all who need them."""


@cache
def needs_dear_clusters(module: str) -> bool:
    return module.startswith("tests/kafka/") and bool(
        DEAR_CLUSTERS.search((ROOT / module).read_text("utf-8"))
    )


def group_of(test: str) -> str:
    """Return the group of a test: tests of one group run in one process."""
    module = test.partition("::")[0]
    if needs_spark(module):
        return "spark"
    if needs_dear_clusters(module) and not THOROUGH:
        return "dear clusters"
    if module.startswith("tests/image/"):
        return "image"  # one build serves them all
    if module.startswith("tests/hostile/") and not THOROUGH:
        return "hostile"  # one cluster serves the few of the day
    return module if module.startswith(WHOLE_MODULES) else test


class Whole(LoadGroupScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def mixed(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order of `make test`: those on a real Kafka, which wait, among those that compute.

    One after the other the former leave a third of two processors idle. Their groups begin with the largest; of the
    others those of the simulator take long, so that short ones are left for the end: a fifth of them.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group_of(item.nodeid), []).append(item)
    waiting = sorted((group for name, group in groups.items() if not is_unit(name)), key=len, reverse=True)
    long = [group for name, group in groups.items() if is_unit(name, "simulator/")]
    short = [group for name, group in groups.items() if is_unit(name) and not is_unit(name, "simulator/")]
    if not waiting:
        return list(items)
    now, turns = len(short) * 4 // 5, len(waiting)
    order = list[list[pytest.Item]]()
    for turn, group in enumerate(waiting):
        order.append(group)
        order += long[turn * len(long) // turns : (turn + 1) * len(long) // turns]
        order += short[turn * now // turns : (turn + 1) * now // turns]
    return [item for group in (*order, *short[now:]) for item in group]


def is_unit(test: str, folder: str = "") -> bool:
    return test.startswith(f"tests/unit/{folder}")


# Optional: without pytest-xdist nobody asks.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return Whole(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    left_out = unchanged()
    for item in items:
        if is_by_night(item.nodeid):
            item.add_marker(pytest.mark.nightly)
        if item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.flaky(reruns=1))
            continue
        for reason in (reason for place, reason in left_out.items() if item.nodeid.startswith(place)):
            item.add_marker(pytest.mark.skip(reason=reason))
    yield  # those that the command line leaves out, some by the marks, are taken out
    if hasattr(config, "workerinput") and not THOROUGH:
        items[:] = mixed(items)


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts in the background ignores it, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("max_suite_reruns", None) is None:
        config.option.max_suite_reruns = REAL_RERUNS
    # Named as text: vulture finds nobody who reads the attribute.
    vars(config.option)["maxworkerrestart"] = "0"
    config.stash[CHOICE] = choose()


outside_of_tests: list[str] = []
"""Errors that no test is to blame for, as pytest shows them."""


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any], dict[str, Any]]:
    return sendable((yield))


def pytest_internalerror(excrepr: object) -> None:
    outside_of_tests.append(str(excrepr))


def pytest_unconfigure(config: pytest.Config) -> None:
    if outside_of_tests and not hasattr(config, "workerinput"):
        lines = outside_of_tests[0].splitlines()
        print("The first error outside of tests ended with:", *lines[-MOST_LINES:], sep="\n  ")


def pytest_report_header(config: pytest.Config) -> str:
    return f"kafka: {config.stash[CHOICE]}"


@pytest.fixture(scope="session")
def cluster_choice(pytestconfig: pytest.Config) -> Choice:
    """Which cluster `any_cluster` is, and why."""
    return pytestconfig.stash[CHOICE]
