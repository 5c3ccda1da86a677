"""Recommended quotas: each user's history replayed at candidate rates, on the cluster, in one pass.

judged.py       arrivals, and their health
candidates.py   the rates to try for each user
trial.py        one user's history at all of its rates, by quota's own code; no Spark
trials.py       the same for all users: sorted, streamed, heavy users in several parts
evidence.py     all evidence about one user
chosen.py       from evidence to a rate, or none; reasons.py explains it and other remedies; no Spark
recommended.py  the result tables
quotas_file.py  the file for the gateway, and its diff
in_force.py     the quotas in force, from the newest config event
"""
