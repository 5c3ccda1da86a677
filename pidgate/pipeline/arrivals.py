"""Arrivals: the times at which users brought new producer ids, admitted or not.

arrivals.sql is the single definition of "new id" for all jobs. It reads decisions and knows no quotas; the
replay decides admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pidgate.pipeline.kernels import Kernel

REMEMBER_MS: Final = 24 * 3_600_000
"""The gateway's default for `remember`, and the brokers' default for producer.id.expiration.ms."""

DECISIONS: Final = (
    "user", "client_id", "address", "producer_id", "decision", "reason", "wall_time_ms", "gateway_id", "incarnation",
    "seq", "connection_id", "transactional", "transactional_id_hash", "topic",
)  # fmt: skip
"""Columns of decision events that the definition reads."""
_RESULT: Final = (
    "user string, producer_id bigint, at_ms bigint, first_admitted_ms bigint, refusals bigint, client_id string, "
    "address string, topic string, transactional boolean, transactional_id_hash string, gateway_id string, "
    "incarnation string, connection_id bigint"
)


def arrivals(decisions: DataFrame, remember_ms: int = REMEMBER_MS) -> DataFrame:
    """Return one row per (user, producer id) and stay: decisions at most `remember_ms` apart.

    first_admitted_ms: null if the id was never admitted ("refused id"), otherwise it is a "new id" of that time.
    Ids below 0 (InitProducerId judged before an id existed) are excluded.
    """
    # By id, since one user may have nearly all rows.
    by_id = decisions.where(f.col("producer_id") >= 0).select(*DECISIONS).repartition("producer_id")
    return by_id.mapInArrow(_arrived(remember_ms), _RESULT)


def _arrived(remember_ms: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = list(batches)
        if gathered:
            with Kernel(
                {"decision": pa.Table.from_batches(gathered)}, {"remember_ms": remember_ms}
            ) as kernel:
                kernel.run("arrivals")
                yield from kernel.table("arrivals").to_batches(max_chunksize=10_000)

    return run
