"""Frames computed once and kept on disk during several passes, which saves heap for the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame on first read and keep it until the block ends.

    Spark identifies a frame by its plan, so the same query on the same tables also reads the kept frame.
    """
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()
