"""The demo: a broker dies of producer ids without the gateway, and lives behind it.

    python -m tools.sandbox.demo --quota 100 --rogues 4 --seed 1

What is claimed is computed from the brokers, the log and the clients' own journals. The gateway is started as
its users start it; its counters are shown beside what was found, never instead of it.
"""
