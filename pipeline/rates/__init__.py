"""Rates: how many producer ids each user has in use, how fast new ones come, and what the brokers hold of them.

From events to results in three steps, so that each table is read once and nothing large is sorted by user:

    id_hours   decisions + id_usage   -> one row per user, client, id and hour in which the id was used
    arriving   arrivals + refusals    -> counts per user, client and minute
    by_time, held, sketches, clients, users: the result tables, from these two alone
"""

from pipeline.rates.arriving import arriving
from pipeline.rates.by_time import by_time
from pipeline.rates.clients import rates_clients
from pipeline.rates.held import held_by_hour, id_stays
from pipeline.rates.id_hours import id_hours
from pipeline.rates.sketches import daily_sketches, estimated_ids
from pipeline.rates.users import rates_users
from pipeline.rates.waiting import waiting

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
