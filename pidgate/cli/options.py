"""The options of each command, declared once: name, type, help and default.

A new option is a field of the command's dataclass here; the command receives the dataclass. Its docstring is
the help of the command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar, get_type_hints

import typer

from pidgate.client_settings import KafkaConfigOption
from pidgate.names import unescaped

USAGE_ERROR: Final = 2

_T = TypeVar("_T")


def add_commands(app: typer.Typer, commands: Mapping[str, tuple[type[Any], str]]) -> None:
    """Register commands by name: a dataclass below, whose docstring is the help, and "module.function".

    The function is in this folder. It takes the options and returns the exit code. Its module is imported
    when the command runs.
    """
    for name, (options, work) in commands.items():
        app.command(name, help=inspect.getdoc(options))(_callback(options, work))


def _callback(options: type[Any], work: str) -> Callable[..., None]:
    """Return the function from whose signature typer reads the options."""
    types = get_type_hints(options, include_extras=True)

    def run(**values: Any) -> None:
        module, _, function = work.partition(".")
        raise typer.Exit(getattr(import_module(f"pidgate.cli.{module}"), function)(options(**values)))

    parameters = [_parameter(one, types[one.name]) for one in fields(options)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(one: Field[Any], annotation: Any) -> inspect.Parameter:
    if _OPTION in one.metadata:
        annotation = Annotated[annotation, one.metadata[_OPTION]]
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_OPTION: Final = "option"


def option(default: _T, help: str, *names: str, **more: Any) -> _T:
    """Return a dataclass field for an option.

    `more` is passed to typer, which derives a missing name from the field's.
    """
    return field(default=default, metadata={_OPTION: typer.Option(*names, help=help, **more)})


def complain(command: str, text: str) -> NoReturn:
    """Print a usage error and exit."""
    typer.echo(f"pidgate {command}: {text}", err=True)
    raise typer.Exit(USAGE_ERROR)


ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="The YAML file.", metavar="FILE")]
AdminOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The gateway to ask (default: admin.bind of --config, 127.0.0.1:9290), https://HOST:PORT with TLS; again "
        "for each further one.",
    ),
]
CaOption = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="Call with TLS, trusting this CA (PEM).")
]
TokenOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A copy of the gateway's admin.token_file.")
]
UserOption = Annotated[
    str | None,
    typer.Option(
        "--user", "--entity-name", metavar="USER", parser=unescaped, help="This user, as tables show it."
    ),
]
NeededUserOption = Annotated[
    str, typer.Option("--user", "--entity-name", metavar="USER", parser=unescaped, show_default=False)
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", parser=unescaped, show_default=False)]
ForOption = Annotated[
    str, typer.Option("--for", metavar="2h", show_default=False, help="Ends by itself after 30m, 2h, 1d.")
]
NoteOption = Annotated[str, typer.Option(show_default=False, help="The reason, shown with the change.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Run the gateway in the foreground until SIGTERM or SIGINT."""

    # None leaves the value to loading.from_options.
    config: ConfigOption = None
    bootstrap_servers: str | None = option(
        None, "Run without a file, before these brokers: host:port,host:port"
    )
    bind: str | None = option(
        None, "Where clients bootstrap, node n 8 + n ports above it (default: 127.0.0.1:9292)."
    )
    admin: str | None = option(
        None,
        "Health and metrics (default: 127.0.0.1:9290); overrides the file, so that one serves several gateways.",
    )
    state_dir: str | None = option(None, "Directory of the state; overrides the file.")
    topics: bool | None = option(
        None, "Without a file: create the events and quotas topics, and keep the state there.", "--topics"
    )


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Validate a file and explain it."""

    config: ConfigOption = None
    as_json: bool = option(False, "For programs.", "--json")


@dataclass(frozen=True, kw_only=True)
class WhoOptions:
    """Show which users create new producer ids, from the events topic, and what to do about it. With --admin: from the
    memory of running gateways.
    """

    config: ConfigOption = None
    admin: list[str] | None = option(
        None,
        "Ask this gateway instead of the topic; https://HOST:PORT with TLS; again for each further one.",
        metavar="HOST:PORT",
    )
    ca_file: CaOption = None
    token_file: TokenOption = None
    kafka_config: KafkaConfigOption = None
    bootstrap_servers: str | None = option(
        None, "Read without a file, from these brokers: host:port,host:port"
    )
    topic: str | None = option(None, "The events topic (default: events.topic, __pidgate_events).")
    since: str = option("1h", "How far back: 30m, 1h, 7d.")
    user: str | None = option(None, "This user only.", parser=unescaped)
    top: int = option(20, "How many users to show, most new ids first.", min=1)
    as_json: bool = option(False, "JSON; see docs/how-to/who.md.", "--json")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Send with good and bad synthetic clients, and report their results. Kinds: docs/how-to/load.md."""

    topic: Annotated[str, typer.Option(help="Topic to produce to.", show_default=False)]
    bootstrap_servers: str | None = option(
        None, "A gateway, or brokers.", "--bootstrap-servers", "-b", metavar="HOST:PORT"
    )
    config: Path | None = option(
        None, "The gateway of this file, on this machine.", "--config", "-c", metavar="FILE"
    )
    kafka_config: KafkaConfigOption = None
    clients: list[str] | None = option(
        None, "steady=8, crash-loop=2@5 (5/s), steady=1@max.", "--clients", "-n", metavar="KIND=N@RATE"
    )
    batch: str = option("1x1000", "Records x bytes of each: 10x1KiB.")
    duration: str = option("10s", "30s, 5m.")
    create_topic: int = option(0, "Create a missing topic, with N partitions.", min=0, metavar="N")
    client_id: str = option("pidgate-load", "Prefix of transactional ids, too.")
    delivery_timeout: str = option("120s", "When a batch is given up.")
    drain: str = option("5s", "Time to wait for the last answers.")
    as_json: bool = option(False, "For programs; see docs/how-to/load.md.", "--json")


@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    """Check that a running gateway is alive; exit code 0 or 1. For container health checks."""

    config: Path | None = option(
        None, "Take admin.bind from this file, if it exists.", "--config", "-c", metavar="FILE"
    )
    admin: str | None = option(
        None, "The admin address (default: 127.0.0.1:9290), https://HOST:PORT with TLS."
    )
    ca_file: CaOption = None
    ready: bool = option(False, "Ask /readyz instead of /livez.", "--ready")


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Options that select running gateways: by a file, by addresses, or the one on this machine."""

    config: ConfigOption = None
    admin: AdminOption = None
    ca_file: CaOption = None
    token_file: TokenOption = None
    as_json: bool = option(False, "For programs: a list, one object for each gateway.", "--json")


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(GatewayOptions):
    """Check what a gateway needs before it starts (--config), and say whether the gateway, a broker or a quota is slow
    while it runs (--admin). Exit code 1: a check failed; 2: one could not be made.
    """

    as_json: bool = option(False, "For programs.", "--json")
    bundle: Path | None = option(
        None, "Write file, metrics and state without secrets to this tar.gz.", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """Show who waits now and the users of one gateway, live on this terminal. Needs pip install 'pidgate[top]'."""

    config: ConfigOption = None
    admin: str | None = option(
        None, "The admin address (default: 127.0.0.1:9290), https://HOST:PORT with TLS."
    )
    ca_file: CaOption = None
    token_file: TokenOption = None


@dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """Show what a user's quota would have refused in the recorded time, then ask whether to enforce it."""

    user: UserArgument
    config: ConfigOption = None
    admin: AdminOption = None
    ca_file: CaOption = None
    token_file: TokenOption = None
    since: str = option("1d", "Length of the past to replay: 1h, 1d, 7d.")
    yes: bool = option(False, "Do not ask.", "--yes")


@dataclass(frozen=True, kw_only=True)
class EntityOptions(GatewayOptions):
    """A user or the default user, with the option names of kafka-configs."""

    user: UserOption = None
    entity_default: bool = option(
        False,
        "The default user: all users without a quota of their own.",
        "--entity-default",
        "--user-defaults",
    )

    def entity(self, *, needed: bool = True) -> str | None:
        """Return the user. None: the default user, or none given where none is `needed`.

        Exits when the options do not fit.
        """
        if self.user == "":
            complain("quotas", "an empty user name; use --entity-default for the default user")
        if self.entity_default and self.user is not None:
            complain("quotas", "either --user or --entity-default")
        if needed and not self.entity_default and self.user is None:
            complain("quotas", "no user; write --user alice, or --entity-default")
        return self.user


class DescribeOptions(EntityOptions):
    """Show the quotas in force, with their source, author and time."""


class DiffOptions(EntityOptions):
    """Show changes made at run time next to the file's quotas."""


class ResetOptions(EntityOptions):
    """Remove changes made at run time: the file's quotas apply again."""


@dataclass(frozen=True, kw_only=True)
class AlterOptions(EntityOptions):
    """Set or remove a rate or a mode, as kafka-configs does."""

    add: list[str] | None = option(
        None,
        "producer_ids_rate=100, mode=enforce; or another rate.",
        "--add-config",
        metavar="NAME=VALUE",
    )
    delete: list[str] | None = option(
        None,
        "Apply the default user's value of it, overriding the file.",
        "--delete-config",
        metavar="NAME",
    )
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class BlockOptions(GatewayOptions):
    """Refuse every new producer id of a user; its running producers continue."""

    user: UserArgument
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class RaiseOptions(BlockOptions):
    """Raise a user's quota for a limited time: raise alice 500 --for 2h."""

    rate: Annotated[str, typer.Argument(metavar="RATE", show_default=False, help="New ids per window.")]


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(GatewayOptions):
    """Admit one refused producer id, uncharged, on its next attempt."""

    user: NeededUserOption
    producer_id: Annotated[int, typer.Option("--producer-id", min=0, metavar="ID", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class RefillOptions(GatewayOptions):
    """Fill a user's bucket to its full burst now."""

    user: UserArgument


@dataclass(frozen=True, kw_only=True)
class GraceOptions(GatewayOptions):
    """Admit new producer ids uncharged for a time, 10 times the rate at most: for an application that moves behind a
    running gateway. --end refuses from now on, also within the grace of a cold start.
    """

    user: UserOption = None
    of_all: bool = option(False, "Every user without a grace of its own.", "--all")
    lasts: ForOption = ""
    end: bool = option(False, "No grace any more.", "--end")
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class ModeOptions(GatewayOptions):
    """Set a user or all users to observe or enforce, on every gateway; file: as in the file."""

    to: Annotated[str, typer.Argument(metavar="observe|enforce|file", show_default=False)]
    of_all: bool = option(
        False, "Every user, overriding all other settings. Required unless --user is given.", "--all"
    )
    user: UserOption = None
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class MyOptions:
    """Ask the gateway, as a client: is my user throttled, why, until when, and what should I change. Over Kafka's
    protocol, with the settings of the application.
    """

    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers", "-b", metavar="HOST:PORT", show_default=False, help="The gateway."
        ),
    ]
    kafka_config: KafkaConfigOption = None
    as_json: bool = option(False, "For programs.", "--json")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(GatewayOptions):
    """Show which clients wait now, why and until when. With --user: why that user is refused or admitted, with tokens,
    queued ids, and the last refusal and its end. With --fleet: who waits at any gateway.
    """

    user: UserOption = None
    fleet: bool = option(
        False, "Ask all gateways of the fleet, through the events topic of the one that is named.", "--fleet"
    )
    producer_id: int | None = option(None, "", "--producer-id", min=0, metavar="ID")
