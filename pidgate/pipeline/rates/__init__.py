"""Rates: each user's producer ids in use, arrivals of new ones, and ids held by brokers.

by_id.sql     a bucket of producer ids -> partial sums by user
by_user.sql   the partial sums of all buckets -> result tables
"""
