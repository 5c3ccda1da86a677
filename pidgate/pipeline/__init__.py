"""Analysis of the gateways' events on Spark: who burns producer ids and why, and which quotas fit.

Transforms are pure (DataFrame in, DataFrame out); commands/ reads and writes. Imports `quota` (a replay decides with
the gateway's own code) and `events` (their one definition), and ships without the gateway.
"""
