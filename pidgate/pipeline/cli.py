"""The command `pidgate pipeline`. Exit code 2: the arguments or the environment need a correction."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

import typer

from pidgate.help_text import PLAIN, CommandGroup
from pidgate.pipeline.commands.analyses import ids, offenders, rates
from pidgate.pipeline.commands.failover import failover
from pidgate.pipeline.commands.ingest import ingest
from pidgate.pipeline.commands.recommend import recommend
from pidgate.pipeline.commands.report import report
from pidgate.pipeline.commands.run import run
from pidgate.pipeline.errors import PipelineError

USAGE_ERROR = 2

app = typer.Typer(
    name="pidgate pipeline",
    help="Find users that burn producer ids, recommend quotas, simulate broker deaths. Runs on Spark.",
    no_args_is_help=True,
    add_completion=False,
    cls=CommandGroup,
    **PLAIN,
)

JOBS: tuple[Callable[..., None], ...] = (ingest, rates, offenders, recommend, failover, ids, report, run)
for job in JOBS:
    app.command()(job)


def main() -> None:
    in_sentences(app, "pidgate pipeline")


def in_sentences(command: typer.Typer, name: str) -> None:
    """Run a command; external errors end with a sentence instead of a stack trace."""
    try:
        command(prog_name=name)
    except Exception as error:
        known = error if isinstance(error, PipelineError) else _out_of_space(error)
        if known is None:
            raise
        print(f"{name}:", known, *getattr(error, "__notes__", ()), file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _out_of_space(error: BaseException) -> PipelineError | None:
    """Return the error for a full disk, which Spark wraps in a chain of causes; otherwise None."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if not full and "No space left on device" not in str(error):
        return None
    return PipelineError(
        "the disk is full: free space in --tables and in the temporary folder (TMPDIR), then run the job again. "
        "Finished results stay; partial ones are never used."
    )
