"""The load library: synthetic clients, good and bad ones, that send at fixed times and measure the answers.

`pidgate load`, the demos, the benchmark and the tests use it.
"""
