"""The figures of each user that are not whole numbers: every share and mean of rates_users is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from pidgate.pipeline.schemas import schema_of

Row = Mapping[str, Any]

_PERCENTILES: Final = (50, 95, 99)
USERS: Final = schema_of(
    "string: user; int64: first_ms last_ms ids new_ids peak_new_ids_per_minute peak_new_ids_per_hour "
    "peak_new_ids_per_day; double: new_ids_per_hour_p50 new_ids_per_hour_p95 new_ids_per_hour_p99; "
    "int64: life_ms_p50 life_ms_p95 requests; double: requests_per_id partitions_per_id; "
    "int64: refusals refused_ids waited_ms_p50 waited_ms_p95 gave_up ids_held states_held"
)


def rates_users(users: pa.Table) -> pa.Table:
    """Return the result table rates_users from the whole numbers of rates/by_user.sql."""
    return pa.Table.from_pylist([{**row, **figures(row)} for row in users.to_pylist()], USERS)


def figures(row: Row) -> dict[str, float | None]:
    """Return the shares and means of one user; None where there is nothing to divide by."""
    ids, with_partitions = row["ids"], row["ids_with_partitions"]
    return {
        "requests_per_id": row["requests"] / ids if ids else None,
        "partitions_per_id": row["partitions"] / with_partitions if with_partitions else None,
    } | {f"new_ids_per_hour_p{percent}": _per_hour(row, percent) for percent in _PERCENTILES}


def _per_hour(row: Row, percent: int) -> float | None:
    """Return the percentile of new ids per hour, interpolated linearly like numpy's."""
    hours, quiet, busy = row["hours"], row["quiet_hours"], row["busy_hours"]
    if hours is None:
        return None
    place, hundredths = divmod((hours - 1) * percent, 100)
    places = (place, min(place + 1, hours - 1))
    below, above = (0 if at < quiet else busy[at - quiet] for at in places)
    return float(below + (above - below) * hundredths / 100)
