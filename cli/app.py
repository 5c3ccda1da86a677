"""The command `pidgate`. Exit code 2 means: change what you typed or wrote.

Only parses (options.py); each command's work is imported when it runs: `run` has to listen within half a second.
"""

import typer

from pidgate.cli import quotas
from pidgate.cli.options import (
    CheckOptions,
    ExplainOptions,
    HealthOptions,
    LoadOptions,
    ModeOptions,
    PromoteOptions,
    RunOptions,
    WhoOptions,
    command,
)

app = typer.Typer(
    name="pidgate",
    help="A Kafka quota gateway: holds each user to a quota of new producer ids (KIP-936).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@command(app)
def run(options: RunOptions) -> int:
    """Run the gateway in the foreground until SIGTERM or SIGINT."""
    from pidgate.cli import running

    return running.run(options)


@command(app)
def check(options: CheckOptions) -> int:
    """Validate a file, say in plain words what it means, and what its quotas allow at most on the brokers."""
    from pidgate.cli import checking

    return checking.check(options)


@command(app)
def who(options: WhoOptions) -> int:
    """Show who brings new producer ids, from the events topic, and what to do about it."""
    from pidgate.cli import who as work

    return work.who(options)


@command(app)
def load(options: LoadOptions) -> int:
    """Send with synthetic producers, good and bad ones, and measure what comes back."""
    from pidgate.cli import load as sending

    return sending.load(options)


@command(app)
def health(options: HealthOptions) -> int:
    """Ask a running gateway whether it lives; exit code 0 or 1. Made for container health checks."""
    from pidgate.cli import health as work

    return work.health(options)


@command(app)
def promote(options: PromoteOptions) -> int:
    """Show what enforcing a user's quota would have refused lately, then ask whether to enforce it."""
    from pidgate.cli import promote as work

    return work.promote(options)


app.add_typer(quotas.app, name="quotas")


@command(app)
def mode(options: ModeOptions) -> int:
    """Observe or enforce, for a user or for all of them, on every gateway; file: what the file says."""
    from pidgate.cli import quota_change

    return quota_change.mode(options)


@command(app)
def explain(options: ExplainOptions) -> int:
    """Show why a user is refused, or is not: tokens, ids in line, the last refusal and until when."""
    from pidgate.cli import explain as work

    return work.explain(options)


@app.command(
    add_help_option=False,
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    },
)
def pipeline(context: typer.Context) -> None:
    """Study the events on Spark: who burns producer ids and why, and what the quotas should be."""
    import os

    from pidgate.child_python import python_module

    # A process of its own, so that neither of the two has to know the other: each ships alone.
    command = python_module("pidgate.pipeline", *context.args)
    os.execv(command[0], command)


@app.command()
def version() -> None:
    """Show the version, and whether the hot path is compiled."""
    from pidgate import version as installed

    build = "compiled" if installed.is_compiled() else "in plain Python"
    typer.echo(f"pidgate {installed.version()} (hot path {build})")


def main() -> None:
    """The entry point of the console script."""
    app(prog_name="pidgate")


if __name__ == "__main__":
    main()
