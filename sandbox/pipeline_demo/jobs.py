"""The pipeline's jobs as people run them: `pidgate pipeline JOB`, one process each."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pidgate.child_python import python_module
from pidgate.sandbox import guard

_WITHIN_S = 600.0
_TAIL_LINES = 25


class JobFailed(Exception):
    """A job ended with an error. The message ends with its output."""


def run(job: str, tables: Path, *options: str, memory: str) -> str:
    """Run one, wait for its end and return what it printed. Raises JobFailed."""
    typed = ["pipeline", job, "--tables", str(tables), *options, "--memory", memory]
    code, stdout, stderr = pidgate(typed, tables.parent / f"{job}.log")
    if code != 0:
        said = "\n".join((stderr + stdout).splitlines()[-_TAIL_LINES:])
        raise JobFailed(f"pidgate pipeline {job} ended with {code}:\n{said}")
    return stdout


def pidgate(words: Sequence[str], log: Path) -> tuple[int, str, str]:
    """The command line in a process of its own: exit code, stdout, stderr."""
    errors = log.with_suffix(".err")
    with log.open("wb") as out, errors.open("wb") as err:
        process = guard.spawn(python_module("pidgate", *words), stdout=out, stderr=err)
        try:
            code = process.wait(_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            guard.ended(process)
    return code, log.read_text(errors="replace"), errors.read_text(errors="replace")
