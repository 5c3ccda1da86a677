"""Frames that are computed once and kept on disk while several passes read them: the heap is for the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame when it is first read, and only then, until the block ends.

    Spark knows a frame by its plan: whoever asks for the same of the same tables meanwhile reads what is kept.
    """
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()
