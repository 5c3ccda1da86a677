"""For all tests: say which Kafka serves those that any cluster can serve.

With several processes (make test) each starts the clusters that its tests share. What must not be spread over them
says so in its own file: `pytestmark = pytest.mark.xdist_group(...)`; a mark that a hook sets comes too late.
"""

import pytest

from tests.support.clusters import Choice, choose

CHOICE = pytest.StashKey[Choice]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CHOICE] = choose()


def pytest_report_header(config: pytest.Config) -> str:
    return f"kafka: {config.stash[CHOICE]}"


@pytest.fixture(scope="session")
def cluster_choice(pytestconfig: pytest.Config) -> Choice:
    """Which cluster `any_cluster` is, and why."""
    return pytestconfig.stash[CHOICE]
