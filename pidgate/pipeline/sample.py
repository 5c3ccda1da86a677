"""The small sample of events that ships with the package: three days of made-up users, to try `--engine local`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from pidgate.pipeline.schemas import PARTITIONS, table_schema
from pidgate.pipeline.tables import Tables

FOLDER: Final = "pidgate-sample"
"""Where its tables are written, below the working directory."""
_EVENTS: Final = Path(__file__).with_name("sample_events")


def sample_tables() -> Tables:
    """Return the tables of the sample; written on first use."""
    tables, folders = Tables(None, FOLDER), PARTITIONS.names
    for events in sorted(_EVENTS.glob("*.parquet")):
        if not tables.exists("events", events.stem):
            columns = [*table_schema(events.stem).names, *folders]
            ds.write_dataset(
                ds.dataset(events).scanner(columns),
                Path(FOLDER, "events", events.stem),
                format="parquet",
                partitioning=folders,
                partitioning_flavor="hive",
            )
    return tables
