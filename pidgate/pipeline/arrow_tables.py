"""Parquet files of the tables that are written and read without Spark: by its tasks, and those that are small."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from pidgate.pipeline.files import Files


def write(files: Files, path: str, table: pa.Table) -> None:
    """Write one file; readers must not look there yet."""
    # Numbers in a row gain nothing from a dictionary, and pay for it.
    texts = [field.name for field in table.schema if not pa.types.is_integer(field.type)]
    with files.output(path) as stream:
        pq.write_table(table, stream, compression="snappy", use_dictionary=texts, store_schema=False)


def read(files: Files, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of all these files, whoever wrote them; none without a file."""
    found = []
    for path in paths:
        with files.input(path) as stream:
            found.append(pq.ParquetFile(stream).read(schema.names).cast(schema))
    return pa.concat_tables(found) if found else schema.empty_table()
