"""Synthetic producers, each a program of its own: the well-behaved, the rogue and the one that crash-loops.

They are clients like any other: they know addresses and passwords, and nothing of gateways and quotas.
Each writes a journal of what it was told, line by line, so that it survives its own or the broker's end.
"""
