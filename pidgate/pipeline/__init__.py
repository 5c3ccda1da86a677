"""Analysis of gateway events on Spark: users that create many producer ids, the causes, and fitting quotas.

Transforms are pure (DataFrame in, DataFrame out); commands/ does I/O. Imports `quota` (a replay decides with
the gateway's code) and `events` (the shared definitions), and ships without the gateway.
"""
