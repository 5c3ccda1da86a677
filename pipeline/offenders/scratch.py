"""Intermediate tables in a folder of their own, which is gone afterwards. The only I/O of this package.

Not persist(): Spark would carry the plan of each stage along into the next, where it is read several times, and
spend minutes on plans of plans. What was written and read again has no past.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pidgate.pipeline.tables import Tables

Keep = Callable[[str, "DataFrame"], "DataFrame"]
"""Computes a frame once, under a name, and gives what is read from now on in its place."""


@contextmanager
def scratch(tables: Tables) -> Iterator[Keep]:
    """What is kept lies under `<tables>/scratch/` until the block ends."""
    parts = ("scratch", secrets.token_hex(4))

    def keep(name: str, frame: DataFrame) -> DataFrame:
        path = tables.path(*parts, name)
        frame.write.parquet(path)
        return tables.spark.read.schema(frame.schema).parquet(path)

    try:
        yield keep
    finally:
        tables.files.remove("/".join(parts))
