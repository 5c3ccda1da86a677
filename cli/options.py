"""The options of each command, declared once: name, type, help and default.

A new option is a field of the command's dataclass here; the command's work gets the dataclass as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar, get_type_hints

import typer

USAGE_ERROR: Final = 2

_Options = TypeVar("_Options")
_Work = Callable[[_Options], int]


def command(app: typer.Typer, name: str | None = None) -> Callable[[_Work[_Options]], _Work[_Options]]:
    """Register a function from one of the dataclasses below to an exit code; its docstring is the help."""

    def register(work: _Work[_Options]) -> _Work[_Options]:
        hints = get_type_hints(work)
        del hints["return"]
        (options,) = hints.values()
        types = get_type_hints(options, include_extras=True)

        def run(**values: Any) -> None:
            raise typer.Exit(work(options(**values)))

        run.__name__, run.__doc__, run.__annotations__ = work.__name__, work.__doc__, types
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if field.default is MISSING else field.default,
                    annotation=types[field.name],
                )
                for field in fields(options)
            ]
        )
        app.command(name)(run)
        return work

    return register


def complain(command: str, text: str) -> NoReturn:
    """Print an error of usage and end the command."""
    typer.echo(f"pidgate {command}: {text}", err=True)
    raise typer.Exit(USAGE_ERROR)


ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The YAML file.", show_default=False, metavar="FILE")
]
AdminOption = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="HOST:PORT",
        show_default=False,
        help="The gateway to ask (default: admin.bind of --config, 127.0.0.1:9290); again for each further one.",
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        show_default=False,
        help="Holds what admin.token_file of the gateway holds.",
    ),
]
UserOption = Annotated[
    str | None, typer.Option("--user", "--entity-name", metavar="USER", show_default=False, help="This user.")
]
NeededUserOption = Annotated[str, typer.Option("--user", "--entity-name", metavar="USER", show_default=False)]
UserArgument = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
ForOption = Annotated[
    str, typer.Option("--for", metavar="2h", show_default=False, help="Ends by itself after 30m, 2h, 1d.")
]
NoteOption = Annotated[
    str, typer.Option("--note", show_default=False, help="Why, for whoever reads it later.")
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """`pidgate run`; what is None is left to loading.from_options."""

    config: ConfigOption = None
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Run without a file, before these brokers: host:port,host:port")
    ] = None
    bind: Annotated[str | None, typer.Option(help="Where clients bootstrap (default: 127.0.0.1:9292).")] = (
        None
    )
    advertise: Annotated[
        str | None, typer.Option(help="The host shown to clients (default: the host of --bind).")
    ] = None
    node_ports_first: Annotated[
        int | None, typer.Option(help="The port of node 0; node n is n ports above (default: 9300).")
    ] = None
    admin: Annotated[str | None, typer.Option(help="Health and metrics (default: 127.0.0.1:9290).")] = None
    default_producer_ids_rate: Annotated[
        float | None, typer.Option(help="New producer ids per hour for each user (default: no limit).")
    ] = None
    mode: Annotated[str | None, typer.Option(help="observe or enforce (default: observe).")] = None
    log_format: Annotated[str | None, typer.Option(help="json or console (default: console).")] = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """`pidgate check`."""

    config: ConfigOption = None
    partitions_per_id: Annotated[
        int, typer.Option(min=1, help="Partitions that one producer writes to, for the worst case.")
    ] = 50
    replication_factor: Annotated[int, typer.Option(min=1, help="Of the topics.")] = 3
    brokers: Annotated[int, typer.Option(min=1, help="Brokers in the cluster.")] = 3
    expiry: Annotated[str, typer.Option(help="The brokers' producer.id.expiration.ms: 24h, 7d.")] = "24h"
    bytes_per_state: Annotated[int, typer.Option(min=1, help="What one producer state takes.")] = 250
    users: Annotated[int, typer.Option(min=0, help="How many users to expect that are not named.")] = 1
    heap: Annotated[
        str | None,
        typer.Option(help="What the states may take on one broker: 512MiB. Warns if it is too small."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False


@dataclass(frozen=True, kw_only=True)
class WhoOptions:
    """`pidgate who`; `since` as people write durations."""

    config: ConfigOption = None
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Read without a file, from these brokers: host:port,host:port")
    ] = None
    topic: Annotated[
        str | None, typer.Option(help="The events topic (default: events.topic, __pidgate_events).")
    ] = None
    since: Annotated[str, typer.Option(help="How far back: 30m, 1h, 7d.")] = "1h"
    user: Annotated[str | None, typer.Option(help="This user only.")] = None
    top: Annotated[int, typer.Option(min=1, help="How many users to show, most new ids first.")] = 20
    as_json: Annotated[bool, typer.Option("--json", help="For programs; docs/who.md says what is in it.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """`pidgate load`; durations and sizes as people write them."""

    topic: Annotated[str, typer.Option(help="Where to produce to.", show_default=False)]
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="A gateway, or brokers without one: host:port,host:port")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="Send to the gateway on this machine that has this file.", metavar="FILE"
        ),
    ] = None
    producers: Annotated[int, typer.Option(min=0, help="Well-behaved ones (1 if no other kind).")] = 0
    crash_loops: Annotated[
        int, typer.Option(min=0, help="Loops of: connect, take an id, send one batch, die.")
    ] = 0
    id_per_batch: Annotated[int, typer.Option(min=0, help="Loops that make a producer for each batch.")] = 0
    new_on_error: Annotated[
        int, typer.Option(min=0, help="Producers that are made anew after each error.")
    ] = 0
    transactional: Annotated[
        int, typer.Option(min=0, help="Transactional ones, a batch in each transaction.")
    ] = 0
    rate: Annotated[
        float | None, typer.Option(help="Batches a second of all producers in sum.", show_default=False)
    ] = None
    rate_each: Annotated[
        float | None, typer.Option(help="Batches a second of each producer (default: 10).")
    ] = None
    rate_of: Annotated[
        list[str] | None,
        typer.Option(
            help="Of one kind in sum: crash-loops=5. More than once for more kinds.", metavar="KIND=RATE"
        ),
    ] = None
    duration: Annotated[str, typer.Option(help="How long: 30s, 5m.")] = "10s"
    record_size: Annotated[str, typer.Option(help="Bytes of a record's value: 1000, 10KiB.")] = "1000"
    records_per_batch: Annotated[int, typer.Option(min=1, help="Records in each batch.")] = 1
    acks: Annotated[str, typer.Option(help="all or 1.")] = "all"
    seed: Annotated[int, typer.Option(help="Of the records and of when each kind begins.")] = 1
    client_id: Annotated[str, typer.Option(help="Transactional ids are this and a number.")] = "pidgate-load"
    user: Annotated[str | None, typer.Option(help="Log in with SASL.", show_default=False)] = None
    password_file: Annotated[Path | None, typer.Option(help="Holds the password.", show_default=False)] = None
    mechanism: Annotated[
        str | None, typer.Option(help="PLAIN (default), SCRAM-SHA-256 or SCRAM-SHA-512.")
    ] = None
    create_topic: Annotated[bool, typer.Option("--create-topic", help="Make the topic if it is missing.")] = (
        False
    )
    partitions: Annotated[int | None, typer.Option(min=1, help="Of a topic that is made (default: 1).")] = (
        None
    )
    delivery_timeout: Annotated[str, typer.Option(help="When a batch is given up.")] = "120s"
    drain: Annotated[str, typer.Option(help="How long to wait for the last answers.")] = "5s"
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs; docs/load.md says what is in it.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    """`pidgate health`."""

    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Take admin.bind from this file, if it exists.", metavar="FILE"),
    ] = None
    admin: Annotated[str | None, typer.Option(help="The admin address (default: 127.0.0.1:9290).")] = None
    ready: Annotated[bool, typer.Option("--ready", help="Ask /readyz instead of /livez.")] = False
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for an answer.")] = 3.0


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """The running gateways that a command calls: by a file, by addresses, or the one on this machine."""

    config: ConfigOption = None
    admin: AdminOption = None
    token_file: TokenOption = None
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: a list, one object for each gateway.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """`pidgate promote`."""

    user: UserArgument
    config: ConfigOption = None
    admin: AdminOption = None
    token_file: TokenOption = None
    since: Annotated[str, typer.Option(help="How far back to look: 1h, 1d, 7d.")] = "1d"
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False


@dataclass(frozen=True, kw_only=True)
class EntityOptions(GatewayOptions):
    """`pidgate quotas describe`, `diff` and `reset`; the entity is spelled as kafka-configs does."""

    user: UserOption = None
    entity_default: Annotated[
        bool, typer.Option("--entity-default", "--user-defaults", help="The default user: who is not named.")
    ] = False
    entity_type: Annotated[str, typer.Option("--entity-type", help="users; there is nothing else.")] = "users"

    def entity(self, *, needed: bool = True) -> str | None:
        """Return the user; None for the default user and, unless one is `needed`, when none is named.

        Ends the command when the options do not fit.
        """
        if self.entity_type != "users":
            complain(
                "quotas",
                f"--entity-type {self.entity_type} has no quota of new producer ids; only users have",
            )
        if self.user == "":
            complain("quotas", "a user has a name; --entity-default is for those that are not named")
        if self.entity_default and self.user is not None:
            complain("quotas", "either --user or --entity-default")
        if needed and not self.entity_default and self.user is None:
            complain("quotas", "whose quota? write --user alice, or --entity-default")
        return self.user


@dataclass(frozen=True, kw_only=True)
class DeleteOptions(EntityOptions):
    """`pidgate quotas delete`."""

    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class AlterOptions(EntityOptions):
    """`pidgate quotas alter`."""

    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config", metavar="producer_ids_rate=100", show_default=False, help="Or mode=enforce."
        ),
    ] = None
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="producer_ids_rate",
            show_default=False,
            help="Nothing is said about it any more, whatever the file says.",
        ),
    ] = None
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class BlockOptions(GatewayOptions):
    """`pidgate quotas block`."""

    user: UserArgument
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class RaiseOptions(BlockOptions):
    """`pidgate quotas raise`."""

    rate: Annotated[str, typer.Argument(metavar="RATE", show_default=False, help="New ids per window.")]


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(GatewayOptions):
    """`pidgate quotas release`."""

    user: NeededUserOption
    producer_id: Annotated[int, typer.Option("--producer-id", min=0, metavar="ID", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class RefillOptions(GatewayOptions):
    """`pidgate quotas refill`."""

    user: UserArgument


@dataclass(frozen=True, kw_only=True)
class ModeOptions(GatewayOptions):
    """`pidgate mode`."""

    to: Annotated[str, typer.Argument(metavar="observe|enforce|file", show_default=False)]
    of_all: Annotated[
        bool, typer.Option("--all", help="Every user, whatever is said of it elsewhere. Has to be typed.")
    ] = False
    user: UserOption = None
    lasts: ForOption = ""
    note: NoteOption = ""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(GatewayOptions):
    """`pidgate explain`."""

    user: NeededUserOption
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, metavar="ID", show_default=False)
    ] = None
