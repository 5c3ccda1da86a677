"""For all tests: say which Kafka serves those that any cluster can serve."""

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
