"""Producers of the demos, each a program of its own: real clients that behave well, synthetic ones that do not.

They know addresses and passwords, and nothing of gateways and quotas. Each writes a journal of its answers, line by
line, so that it survives its own or the broker's end.
"""
