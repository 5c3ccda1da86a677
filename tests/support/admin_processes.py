"""`pidgate run` with a file of the test's own, for what GatewayProcess's configuration does not show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pidgate.child_python import python_module
from tools.sandbox import guard


class _Process(guard.GuardedProcess):
    def __init__(self, file: Path) -> None:
        with file.with_suffix(".log").open("ab") as log:
            self._process = guard.spawn(
                python_module("pidgate", "run", "--config", str(file)), stdout=log, stderr=log
            )


@contextmanager
def serving(file: Path, is_up: Callable[[], bool], within_s: float = 30.0) -> Iterator[None]:
    """Run until the block ends; the log is beside the file. Raises AssertionError when it does not come up."""
    process = _Process(file)
    try:
        give_up_s = time.monotonic() + within_s
        while not is_up():
            log = file.with_suffix(".log").read_text()
            assert process.is_alive, log
            assert time.monotonic() < give_up_s, log
            time.sleep(0.1)
        yield
    finally:
        process.kill()
