"""Rates: how many producer ids each user has in use, how fast new ones come, and what the brokers hold of them.

From events to results in three steps, so that each table is read once and nothing large is sorted by user:

    id_hours   decisions + id_usage   -> one row per user, client, id and hour in which the id was used
    arriving   arrivals + refusals    -> counts per user, client and minute
    by_time, held, users: the result tables, from these two alone
"""
