"""Counters of the hot path, and the Prometheus metrics made of them and of the other rooms."""
