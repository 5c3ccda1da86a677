"""Three brokers of each Kafka version, one gateway before them, and the matrix, which is written at the end."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.clients.report import FAILED, JSON_FILE, MARKDOWN_FILE, NOT_OFFERED, OK, Cell, Matrix
from tests.clients.roster import KAFKAS
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import ClusterSpec

_MATRIX = pytest.StashKey[Matrix]()

_KIP_848_PREVIEW = {"group.coordinator.rebalance.protocols": "classic,consumer"}


@pytest.fixture(scope="module", params=KAFKAS, ids=lambda version: f"kafka-{version}")
def three_of(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers with gaps in their ids; Kafka 3.9 with KIP-848 switched on, which it has as a preview."""
    preview = _KIP_848_PREVIEW if request.param == OLDEST else {}
    cluster = Cluster(ClusterSpec(node_ids=(1, 5, 102), version=request.param, properties=preview))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop(keep_logs=request.session.testsfailed > 0)


@pytest.fixture(scope="module")
def gateway(three_of: Cluster) -> Iterator[GatewayProcess]:
    """A gateway that enforces a quota which nobody here reaches."""
    quotas = {"mode": "enforce", "default": {"producer_ids_rate": 1_000}}
    with GatewayProcess(three_of.bootstrap_servers(), node_ids=three_of.nodes, quotas=quotas) as process:
        yield process


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MATRIX] = Matrix()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    key = _key(getattr(item, "callspec", None))
    if key is not None and (report.when == "call" or not report.passed):
        cells = item.config.stash[_MATRIX].cells
        # A failing teardown does not take back what the call has shown.
        if report.when != "teardown":
            cells[key] = _cell(report)
    return report


def _key(callspec: Any) -> tuple[str, str, str] | None:
    """Kafka version, client and column of a test of the matrix."""
    if callspec is None or "client" not in callspec.params:
        return None
    given = callspec.params
    client = str(given["client"])
    if "kerberized" in given:
        return given["kerberized"], client, "GSSAPI"
    if "logged_in" in given:
        return given["brokers"], client, given["logged_in"]
    column = given["feature"] if "feature" in given else str(given["refused_clients_of"])
    return given["three_of"], client, column


def _cell(report: pytest.TestReport) -> Cell:
    if report.skipped:
        assert isinstance(report.longrepr, tuple)
        return Cell(NOT_OFFERED, report.longrepr[2].removeprefix("Skipped: "))
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        return Cell(FAILED, crash.message.splitlines()[0] if crash else "see the log of the run")
    told = dict(report.user_properties)
    return Cell(str(told.get("state", OK)), str(told.get("note", "")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    matrix = session.config.stash[_MATRIX]
    if matrix.cells:
        JSON_FILE.write_text(matrix.to_json())
        MARKDOWN_FILE.write_text(matrix.to_markdown())
