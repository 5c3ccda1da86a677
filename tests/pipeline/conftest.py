"""One Spark for all tests of the pipeline: they run on one process of pytest-xdist (see their pytestmark)."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pidgate.pipeline.errors import JavaUnfit
from pidgate.pipeline.session import java_home
from pidgate.pipeline.tables import Tables
from tools.sandbox.pipeline_demo.plan import BRIEF_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pidgate.events.definitions import Event


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def _collect() -> None:
    """PySpark leaves sockets open to the garbage collector; that must not be laid on another test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _sockets_of_fixtures() -> Iterator[None]:
    yield
    _collect()


@pytest.fixture(autouse=True)
def _sockets_of_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        _collect()


PARTITIONS = "2"
"""Of a shuffle: tables of tests have few rows. Jobs as they are submitted (test_spark_submit.py) keep Spark's own."""
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Small. Without a Java the tests are skipped, except in CI."""
    try:
        java_home()
    except JavaUnfit as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))
    from pidgate.pipeline.session import spark_session

    with pytest.MonkeyPatch.context() as only_here:
        only_here.setenv("PYSPARK_SUBMIT_ARGS", BRIEF_SPARK)
        # Python workers import what tests hand them, from tests/support.
        only_here.setenv("PYTHONPATH", os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]))
        session = spark_session("tests", master="local[2]", memory="1g")
    session.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    # What was imported by now stays: the collector need not look through it after each test.
    _collect()
    gc.freeze()
    yield session
    session.stop()
    gc.unfreeze()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, str(tmp_path / "tables"))


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, list[Event]]:
    """One history, and what every job wrote of it. To be read only."""
    from tests.pipeline.studied import study

    return study(tmp_path_factory.mktemp("studied"))
