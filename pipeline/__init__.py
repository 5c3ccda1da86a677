"""What the gateways' events tell: who burns producer ids and why, and what the quotas should be. On Spark.

Transforms are pure (DataFrame in, DataFrame out); commands/ reads and writes. Imports `quota` (a replay decides with
the gateway's own code) and `events` (their one definition), and ships without the gateway.
"""
