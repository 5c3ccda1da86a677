"""Counters of the hot path, and the Prometheus metrics of the whole gateway."""
