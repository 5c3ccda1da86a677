"""Rates: each user's producer ids in use, arrivals of new ones, and ids held by brokers.

Three steps from events to results, so that each table is read once and nothing large is sorted by user:

    id_hours   decisions + id_usage   -> one row per user, client, id and hour of use
    arriving   arrivals + refusals    -> counts per user, client and minute
    by_time, held, users: the result tables, from these two
"""
