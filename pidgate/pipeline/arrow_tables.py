"""Parquet tables written and read without Spark: by its tasks, and small ones."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from pidgate.pipeline.files import Files


def write(files: Files, path: str, table: pa.Table) -> None:
    """Write one file, in a folder that readers do not use yet."""
    # Dictionaries slow down sequential numbers and save no space.
    texts = [field.name for field in table.schema if not pa.types.is_integer(field.type)]
    with files.output(path) as stream:
        pq.write_table(table, stream, compression="snappy", use_dictionary=texts, store_schema=False)


def read(files: Files, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of all files; an empty table without files."""
    found = []
    for path in paths:
        with files.input(path) as stream:
            found.append(pq.ParquetFile(stream).read(schema.names).cast(schema))
    return pa.concat_tables(found) if found else schema.empty_table()
