"""Columns of an Arrow table: text as places in a list of words, numbers that may be missing, what is all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

SHORT_LIST = 2_000


def coded(codes: Any, words: Sequence[str]) -> pa.Array:
    """Text as places in a list of words: what is said a million times is kept once."""
    distinct: dict[str, int] = {}
    place = np.array([distinct.setdefault(word, len(distinct)) for word in words] or [0], np.int32)
    coded = pa.DictionaryArray.from_arrays(place[np.asarray(codes)], pa.array(list(distinct), pa.string()))
    # Each hour's file would hold the whole list.
    return coded if len(distinct) < SHORT_LIST else coded.cast(pa.string())


def same(word: str, size: int) -> pa.Array:
    return coded(np.zeros(size, np.int32), [word])


def array_of(values: Any, field: pa.Field, size: int) -> pa.Array:
    if values is None:
        return pa.nulls(size, field.type)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and pa.types.is_integer(field.type):
        missing = np.isnan(values)
        return pa.array(np.where(missing, 0, values).astype(np.int64), field.type, mask=missing)
    return pa.array(values, field.type)


def schema_of(schema: pa.Schema, columns: dict[str, Any]) -> pa.Schema:
    def of(field: pa.Field) -> pa.Field:
        given = columns.get(field.name)
        return field.with_type(given.type) if isinstance(given, pa.DictionaryArray) else field

    return pa.schema([of(field) for field in schema])
