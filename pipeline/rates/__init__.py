"""Rates: how many producer ids each user has in use, how fast new ones come, and what the brokers hold of them.

From events to results in three steps, so that each table is read once and nothing large is sorted by user:

    id_hours   decisions + id_usage   -> one row per user, client, id and hour in which the id was used
    arriving   arrivals + refusals    -> counts per user, client and minute
    by_time, held, sketches, clients, users: the result tables, from these two alone
"""

from pidgate.pipeline.rates.arriving import arriving
from pidgate.pipeline.rates.by_time import by_time, rates_clients
from pidgate.pipeline.rates.held import held_by_hour, id_stays
from pidgate.pipeline.rates.id_hours import id_hours
from pidgate.pipeline.rates.sketches import daily_sketches, estimated_ids
from pidgate.pipeline.rates.users import rates_users, waiting

__all__ = [
    "arriving",
    "by_time",
    "daily_sketches",
    "estimated_ids",
    "held_by_hour",
    "id_hours",
    "id_stays",
    "rates_clients",
    "rates_users",
    "waiting",
]
