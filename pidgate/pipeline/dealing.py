"""Rows dealt out to buckets of producer ids and to parts of the users, alike by both engines."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pidgate.pipeline.kernels import ArrowTables
from pidgate.quota.decisions import IDS_OF_BLOCK

Places = NDArray[np.int64]
Placed = Callable[[pa.Table, int], Places]
"""Function from a table and the number of places to the place of each row."""


def place_by_id(table: pa.Table, buckets: int) -> Places:
    """Return the bucket of each row. Rows without an id are spread by their number."""
    name = "producer_id" if "producer_id" in table.column_names else "answered_producer_id"
    ids = table[name].to_numpy()
    if "seq" in table.column_names:
        ids = np.where(ids < 0, table["seq"].to_numpy(), ids)
    found: Places = ids % buckets
    return found


def place_by_user(table: pa.Table, parts: int) -> Places:
    names, numbers = numbered(table["user"])
    of_names = np.array([zlib.crc32(name.encode()) % parts for name in names] or [0])
    found: Places = of_names[numbers]
    return found


def numbered(column: pa.ChunkedArray) -> tuple[list[str], Places]:
    """Return the different texts of a column, and the number of each row's text among them."""
    texts = column.combine_chunks()
    texts = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts.dictionary.to_pylist(), texts.indices.to_numpy(zero_copy_only=False)


def dealt(table: pa.Table, places: Places, number: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield each place that has rows, with these."""
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(number + 1))
    ordered = table.take(pa.array(order))
    for place, (begin, end) in enumerate(pairwise(bounds)):
        if end > begin:
            yield place, ordered.slice(begin, end - begin)


def dealt_to_parts(tables: ArrowTables, parts: int) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield (part, name, rows) of the partial tables of a bucket: by user or block, or to all parts."""
    for name, table in tables.items():
        if "user" in table.column_names:
            places = place_by_user(table, parts)
        elif "block_start" in table.column_names:
            places = table["block_start"].to_numpy() // IDS_OF_BLOCK % parts
        else:
            yield from ((part, name, table) for part in range(parts))
            continue
        yield from ((part, name, rows) for part, rows in dealt(table, places, parts))
