"""The demo: a broker dies of producer ids without the gateway, and survives behind it.

    python -m tools.sandbox.demo --quota 100 --rogues 4 --seed 1

Results are computed from the brokers, the log and the clients' own journals. The gateway is started as users
start it; its counters are shown beside the results, but never used for them.
"""
