"""Every event that a gateway writes fits into its table, field by field."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pidgate.events.definitions import EVENT_TYPES, Event
from pidgate.events.writing import to_json
from pidgate.pipeline.schemas import ORIGIN, table_schema
from tests.unit.events.made_up import any_event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(any_event)
def test_what_a_gateway_writes_comes_back_whole(spark: SparkSession, event: Event) -> None:
    text = to_json(event).decode()
    schema = from_arrow_schema(pa.schema(list(table_schema(event.type))[: -len(ORIGIN)]))
    told = spark.createDataFrame([(text,)], "value string").select(
        f.from_json("value", schema).alias("event")
    )
    row = told.select("event.*").collect()[0].asDict(recursive=True)
    assert row == {"schema_version": json.loads(text)["schema_version"], **asdict(event)}


@pytest.mark.parametrize("word", EVENT_TYPES)
def test_a_table_has_the_event_and_where_it_lay(word: str) -> None:
    told = [one.name for one in fields(EVENT_TYPES[word])]
    origin = ["kafka_partition", "kafka_offset", "append_time_ms"]
    assert table_schema(word).names == ["schema_version", *told, *origin]
