"""The load library: well-behaved and misbehaving synthetic clients that send at fixed times and measure the
answers.

`pidgate load`, the demos, the benchmark and the tests use it.
"""
