"""Recommended quotas: each user's history replayed at candidate rates, on the cluster, in one pass.

judged.py       arrivals, and which of them are healthy
candidates.py   which rates are tried for whom
trial.py        one user's history at all of its rates, by quota's own code; no Spark
trials.py       the same for everybody: sorted, streamed, the heavy users in several parts
evidence.py     all that is known of one user
chosen.py       from that to a rate, or none; reasons.py  why, and what else would help; no Spark
recommended.py  the result tables
quotas_file.py  the file for the gateway, and what it changes
in_force.py     the quotas in force, from the newest config event
"""
