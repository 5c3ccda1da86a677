"""The command `pidgate`: run, check, who, health, version. Exit code 2 means: change what you typed or wrote.

Only parses; each command's work is imported when it runs, because `run` has to listen within half a second.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="pidgate",
    help="A Kafka quota gateway: holds each user to a quota of new producer ids (KIP-936).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

USAGE_ERROR = 2

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The YAML file.", show_default=False, metavar="FILE")
]


@app.command()
def run(
    config: ConfigOption = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Run without a file, before these brokers: host:port,host:port")
    ] = None,
    bind: Annotated[
        str | None, typer.Option(help="Where clients bootstrap (default: 127.0.0.1:9292).")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(help="The host shown to clients (default: the host of --bind).")
    ] = None,
    node_ports_first: Annotated[
        int | None, typer.Option(help="The port of node 0; node n is n ports above (default: 9300).")
    ] = None,
    admin: Annotated[str | None, typer.Option(help="Health and metrics (default: 127.0.0.1:9290).")] = None,
    default_producer_ids_rate: Annotated[
        float | None, typer.Option(help="New producer ids per hour for each user (default: no limit).")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="observe or enforce (default: observe).")] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console (default: console).")] = None,
) -> None:
    """Run the gateway in the foreground until SIGTERM or SIGINT."""
    from gateway.cli import running

    options = {
        "bind": bind,
        "advertise": advertise,
        "node_ports_first": node_ports_first,
        "admin": admin,
        "default_producer_ids_rate": default_producer_ids_rate,
        "mode": mode,
        "log_format": log_format,
    }
    given = {name: value for name, value in options.items() if value is not None}
    raise typer.Exit(running.run(config, bootstrap_servers, given))


@app.command()
def check(config: ConfigOption = None) -> None:
    """Validate a file and say in plain words what it means."""
    from gateway.cli import checking

    if config is None:
        typer.echo("pidgate check: which file? Name it with --config FILE", err=True)
        raise typer.Exit(USAGE_ERROR)
    raise typer.Exit(checking.check(config))


@app.command()
def who(
    config: ConfigOption = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Read without a file, from these brokers: host:port,host:port")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The events topic (default: events.topic, __pidgate_events).")
    ] = None,
    since: Annotated[str, typer.Option(help="How far back: 30m, 1h, 7d.")] = "1h",
    user: Annotated[str | None, typer.Option(help="This user only.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many users to show, most new ids first.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs; docs/who.md says what is in it.")
    ] = False,
) -> None:
    """Tell who brings new producer ids, from the events topic, and what to do about it."""
    from gateway.cli import who as telling

    asked = telling.Asked(
        config=config,
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        since=since,
        user=user,
        top=top,
        as_json=as_json,
    )
    raise typer.Exit(telling.who(asked))


@app.command()
def health(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Take admin.bind from this file, if it exists.", metavar="FILE"),
    ] = None,
    admin: Annotated[str | None, typer.Option(help="The admin address (default: 127.0.0.1:9290).")] = None,
    ready: Annotated[bool, typer.Option("--ready", help="Ask /readyz instead of /livez.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for an answer.")] = 3.0,
) -> None:
    """Ask a running gateway whether it lives; exit code 0 or 1. Made for container health checks."""
    from gateway.cli import health as asking

    raise typer.Exit(asking.health(config, admin, ready=ready, timeout_s=timeout_s))


@app.command()
def version() -> None:
    """Show the version."""
    from gateway.version import version as installed

    typer.echo(f"pidgate {installed()}")


def main() -> None:
    """The entry point of the console script."""
    app(prog_name="pidgate")


if __name__ == "__main__":
    main()
