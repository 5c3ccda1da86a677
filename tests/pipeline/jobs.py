"""Jobs of the pipeline as processes of their own, which tests may kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from pidgate.pipeline.cli import app
from tools.sandbox import guard


def commanded(command: str, tables: str, *options: str) -> Result:
    """Run a command in this process, to its end; ingest takes the signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        done = CliRunner().invoke(app, [command, "--tables", tables, *options])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@contextmanager
def running_job(job: str, tables: Path | str, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job, or `history`, with its output at the end of `log`; what is left of it is killed."""
    started = ["tools.history"] if job == "history" else ["pidgate.pipeline", job]
    memory = () if job == "report" else ("--memory", "700m")
    command = [sys.executable, "-m", *started, "--tables", str(tables), *memory]
    with log.open("ab") as out:
        process = guard.spawn([*command, *options], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        guard.ended(process)
