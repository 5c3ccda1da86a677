"""libFuzzer's loop around one decoder: `python -m tests.fuzz.harness NAME CORPUS -max_total_time=60`."""

from __future__ import annotations

import itertools
import sys

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

with atheris.instrument_imports(include=["pidgate.protocol", "pidgate.events", "pidgate.gateway"]):
    from tests.fuzz import kio_oracle
    from tests.fuzz.kafka_oracle import kafka
    from tests.fuzz.targets import TARGETS

MEMORY_IS_MEASURED_EVERY = 16
"""It makes decoding several times slower."""


def main() -> None:
    target = TARGETS[sys.argv.pop(1)]
    numbers = itertools.count()
    kio_oracle.kio_may_abort = True
    kafka()  # a JVM's start is no input's time

    def one(data: bytes) -> None:
        target.hold(data, measure_memory=next(numbers) % MEMORY_IS_MEASURED_EVERY == 0)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
