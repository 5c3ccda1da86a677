"""For all tests: say which Kafka serves those that any cluster can serve, and what is tried twice.

A test against real brokers on a busy machine of two cores may miss a time limit: it is run once more, and the closing
line says so ("1 rerun", with the failure above it). At most REAL_RERUNS of them in a run: what fails more often is
broken. All other tests, and so the rules that mutants are held against, have one try. `pytest --force-reruns=0` gives
everybody one, `--fail-on-flaky` fails a run that needed a second.

With several processes (make test) each starts the clusters that its tests share; what must not be spread over them
is kept together by `Whole`. The mark xdist_group does not do it: pytest-xdist 3.8 writes the group into a field that
pytest 9.2 no longer reads, so that Spark ran in every process and each fixture of a module was made twice.
"""

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadGroupScheduling, LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.clusters import Choice, choose

CHOICE = pytest.StashKey[Choice]()

REAL_RERUNS = 2

WHOLE_MODULES = (
    "tests/kafka/",
    "tests/install/",
    "tests/unit/test_compiled.py",
    "tests/unit/test_dockerfile.py",
)
"""Their fixtures start brokers and clients, compile or install."""

WITHOUT_SPARK = frozenset(
    f"tests/pipeline/test_{name}.py"
    for name in (
        "failover_cascade",
        "failover_kip",
        "history_recordings",
        "history_stretch",
        "recommend_file",
        "recommend_trial",
        "replay",
        "report_words",
    )
)
"""Of tests/pipeline those that need not wait for the process that has the JVM."""


def group_of(test: str) -> str:
    """Tests of one group run in one process; larger groups begin earlier, single tests fill what time is left."""
    module = test.partition("::")[0]
    if module.startswith("tests/pipeline/") and module not in WITHOUT_SPARK:
        return "spark"
    return module if module.startswith(WHOLE_MODULES) or module in WITHOUT_SPARK else test


class Whole(LoadGroupScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


# Optional: without pytest-xdist nobody asks.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return Whole(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("max_suite_reruns", None) is None:
        config.option.max_suite_reruns = REAL_RERUNS
    config.stash[CHOICE] = choose()


def pytest_report_header(config: pytest.Config) -> str:
    return f"kafka: {config.stash[CHOICE]}"


@pytest.fixture(scope="session")
def cluster_choice(pytestconfig: pytest.Config) -> Choice:
    """Which cluster `any_cluster` is, and why."""
    return pytestconfig.stash[CHOICE]
