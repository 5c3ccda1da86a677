"""The command `pidgate`. Exit code 2 means a mistake in the command line or in a file.

This module only parses (options.py). The code of a command is imported when it runs: `run` has to listen
within half a second.
"""

from typing import Annotated

import typer

from pidgate.cli import quotas
from pidgate.cli.options import (
    CheckOptions,
    DoctorOptions,
    ExplainOptions,
    HealthOptions,
    LoadOptions,
    ModeOptions,
    MyOptions,
    PromoteOptions,
    RunOptions,
    TopOptions,
    WhoOptions,
    add_commands,
)
from pidgate.help_text import PLAIN, CommandGroup

app = typer.Typer(
    name="pidgate",
    no_args_is_help=True,
    cls=CommandGroup,
    **PLAIN,
)

COMMANDS = {
    "run": (RunOptions, "running.run"),
    "check": (CheckOptions, "checking.check"),
    "who": (WhoOptions, "who.who"),
    "load": (LoadOptions, "load.load"),
    "doctor": (DoctorOptions, "doctor.doctor"),
    "health": (HealthOptions, "health.health"),
    "promote": (PromoteOptions, "promote.promote"),
    "my": (MyOptions, "my.my"),
    "mode": (ModeOptions, "quota_change.mode"),
    "explain": (ExplainOptions, "explain.explain"),
    "top": (TopOptions, "top.top"),
}
add_commands(app, COMMANDS)
app.add_typer(quotas.app, name="quotas")


def _show_version(is_asked: bool) -> None:
    if not is_asked:
        return
    from pidgate import version as installed

    build = "compiled" if installed.is_compiled() else "in plain Python"
    lanes = "with lanes" if installed.has_lanes() else "without lanes"
    typer.echo(f"pidgate {installed.version()} (hot path {build}, {lanes})")
    raise typer.Exit


@app.command(
    add_help_option=False,
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    },
)
def pipeline(context: typer.Context) -> None:
    """Study the events on Spark: which users create producer ids, why, and recommended quotas."""
    import os

    from pidgate.child_python import python_module

    # A separate process, so that neither package imports the other: each ships alone.
    command = python_module("pidgate.pipeline", *context.args)
    os.execv(command[0], command)


@app.callback()
def options(
    is_asked: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """A Kafka quota gateway: holds each user to a quota of new producer ids (KIP-936)."""


@app.command()
def version() -> None:
    """Show the version, whether the hot path is compiled, and whether there are lanes."""
    _show_version(True)
