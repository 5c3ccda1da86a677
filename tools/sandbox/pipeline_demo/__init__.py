"""The pipeline demo: a rogue is observed, detected, and held by the recommended quota.

Broker, gateway, clients and jobs are real processes. The results rely on the clients' journals, the broker's
disk and the files written by the jobs.
"""
