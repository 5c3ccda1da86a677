"""Users that burn producer ids, found in months of events by the rules of `pidgate.findings`.

by_id.sql      a bucket of producer ids -> one row per id: start, last use, requests, errors
sources.sql    all ids of some users -> places, sources, and the sums behind their features
apps.sql       the same of the calm ones of each application
findings.py    features from the sums, and one row per user and pattern, in words
"""
