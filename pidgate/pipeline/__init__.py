"""Analysis of gateway events on Spark: users that create many producer ids, the causes, and fitting quotas.

Kernels are pure (Arrow tables in and out); commands/ has the options and messages. The package imports `quota` (a
replay decides with the gateway's code) and `events` (the shared definitions), and ships without the gateway.
"""
