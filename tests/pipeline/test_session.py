"""A Spark that does not fit is refused before anything starts."""

from __future__ import annotations

import pyspark
import pytest

from pidgate.pipeline import session
from pidgate.pipeline.errors import SparkUnfit


def test_the_spark_that_is_installed_fits() -> None:
    session.check_spark(pyspark.__version__)


@pytest.mark.parametrize("version", ["3.5.4", "4.0.4", "4.10.1", "5.0.0", ""])
def test_another_spark_is_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(SparkUnfit, match=rf"Spark {version}.*4\.1\.x"):
        session.spark_session("refused")
