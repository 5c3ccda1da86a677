"""The pipeline's jobs as people run them: `pidgate pipeline JOB`, one process each."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidgate.child_python import python_module
from pidgate.sandbox import guard

_WITHIN_S = 600.0
_TAIL_LINES = 25


class JobFailed(Exception):
    """A job ended with an error. The message ends with its output."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has ended well."""

    typed: str
    took_s: float
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Return the output of `--json`."""
        return json.loads(self.stdout)


def run(job: str, tables: Path, *options: str, memory: str) -> Job:
    """Run one and wait for its end. Raises JobFailed."""
    typed = ["pipeline", job, "--tables", str(tables), *options, "--memory", memory]
    began_s = time.monotonic()
    code, stdout, stderr = pidgate(typed, tables.parent / f"{job}.log")
    if code != 0:
        said = "\n".join((stderr + stdout).splitlines()[-_TAIL_LINES:])
        raise JobFailed(f"pidgate pipeline {job} ended with {code}:\n{said}")
    return Job(" ".join(["pidgate", *typed]), time.monotonic() - began_s, stdout, stderr)


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
