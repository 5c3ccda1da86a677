"""One Spark for all tests of the pipeline: they run on one process of pytest-xdist (see their pytestmark)."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import JavaUnfit
from pipeline.java import java_home
from pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(autouse=True)
def _sockets_of_pyspark() -> Iterator[None]:
    """It leaves some open to the garbage collector; that must not be laid on another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Small, with the Kafka connector. Without a Java the tests are skipped, except in CI."""
    try:
        java_home()
    except JavaUnfit as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))
    from pipeline.session import spark_session

    session = spark_session("tests", master="local[2]", memory="1g", with_kafka=True)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, str(tmp_path / "tables"))
