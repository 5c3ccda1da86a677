"""Costs of the gateway, measured against no proxy, a bare pass-through and HAProxy (tools/bench/README.md).

The gateway runs as a process of its own and is reached by its ports alone: nothing here imports it.
"""
