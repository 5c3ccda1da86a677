"""Synthetic clients, well-behaved and misbehaving, that send at fixed times and measure the answers.

`pidgate load`, the demos, the benchmark and the tests use this library.
"""
