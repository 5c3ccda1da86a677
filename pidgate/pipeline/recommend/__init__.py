"""Recommended quotas: each user's history replayed by the gateway's own bucket, with the price of each rate.

by_id.sql       arrivals with health and traffic
by_user.sql     each user's story
measured.py     one user's needs (measures.sql) and the costs of rates; trial.py replays one rate
chosen.py       the rule: from needs to a cap for now and a rate after mending
sentences.py    every sentence, from a row of the result tables
recommended.py  the result tables
quotas_file.py  the file for the gateway, and its diff
"""
