"""The command line in the process of the test, for what a command says: starting one takes a second of CPU.

What concerns a process (signals, ports, how it ends, `pidgate run`) takes a process: see tests/unit/cli/test_cli.py.
"""

from pathlib import Path
from subprocess import CompletedProcess

from typer.testing import CliRunner

from pidgate.cli.app import app


def typed(*words: str | Path) -> "CompletedProcess[str]":
    """Return how `pidgate WORDS` ended and what it wrote."""
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="pidgate")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
