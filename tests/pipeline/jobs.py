"""Jobs of the pipeline as processes of their own, which tests may kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.sandbox import guard


@contextmanager
def running_job(job: str, tables: Path | str, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job, or `history`, with its output at the end of `log`; what is left of it is killed."""
    started = ["tools.history"] if job == "history" else ["pidgate.pipeline", job]
    command = [sys.executable, "-m", *started, "--tables", str(tables), "--memory", "700m"]
    with log.open("ab") as out:
        process = guard.spawn([*command, *options], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        guard.ended(process)
