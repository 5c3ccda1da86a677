"""The command line of `pidgate quotas`, and its kin `pidgate mode` and `pidgate explain`.

Only parses. `pidgate quotas --alter ...` and `--describe`, as kafka-configs spells it, are alter and describe; what
names no command is describe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from pidgate.cli.options import ConfigOption

USAGE_ERROR: Final = 2
_IN_KAFKA: Final = {"--describe": "describe", "--alter": "alter"}
_HELP: Final = ("--help",)

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
JsonOption = Annotated[
    bool, typer.Option("--json", help="For programs: a list, one object for each gateway.")
]
UserOption = Annotated[
    str | None, typer.Option("--user", "--entity-name", metavar="USER", show_default=False, help="This user.")
]
DefaultOption = Annotated[
    bool, typer.Option("--entity-default", "--user-defaults", help="The default user: who is not named.")
]
TypeOption = Annotated[str, typer.Option("--entity-type", help="users; there is nothing else.")]
ForOption = Annotated[
    str, typer.Option("--for", metavar="2h", show_default=False, help="Ends by itself after 30m, 2h, 1d.")
]
NoteOption = Annotated[
    str, typer.Option("--note", show_default=False, help="Why, for whoever reads it later.")
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", show_default=False)]


class _AsInKafka(TyperGroup):
    """Finds the command in what was typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in _HELP):
            found = [_IN_KAFKA[word] for word in args if word in _IN_KAFKA]
            rest = [word for word in args if word not in _IN_KAFKA]
            args = [found[0] if found else "describe", *rest]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_AsInKafka,
    help="Show and set the quotas of running gateways, for the whole fleet at once.",
    no_args_is_help=False,
)


@app.command()
def describe(
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    user: UserOption = None,
    entity_default: DefaultOption = False,
    entity_type: TypeOption = "users",
    as_json: JsonOption = False,
) -> None:
    """What holds, where that comes from, who set it and when."""
    from pidgate.cli import quota_describe as work
    from pidgate.cli.admin_client import Where

    name = _named(user, entity_default, entity_type, needed=False)
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.describe(where, work.Asked(name, entity_default)))


@app.command()
def diff(
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    user: UserOption = None,
    entity_default: DefaultOption = False,
    entity_type: TypeOption = "users",
    as_json: JsonOption = False,
) -> None:
    """What was set at run time, beside what the file says."""
    from pidgate.cli import quota_describe as work
    from pidgate.cli.admin_client import Where

    name = _named(user, entity_default, entity_type, needed=False)
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.diff(where, work.Asked(name, entity_default)))


@app.command()
def alter(
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    user: UserOption = None,
    entity_default: DefaultOption = False,
    entity_type: TypeOption = "users",
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config", metavar="producer_ids_rate=100", show_default=False, help="Or mode=enforce."
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="producer_ids_rate",
            show_default=False,
            help="Nothing is said about it any more, whatever the file says.",
        ),
    ] = None,
    lasts: ForOption = "",
    note: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set or remove producer_ids_rate and mode, as kafka-configs does."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    name = _named(user, entity_default, entity_type)
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.alter(where, name, add or (), delete or (), work.Words(lasts, note)))


@app.command()
def delete(
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    user: UserOption = None,
    entity_default: DefaultOption = False,
    entity_type: TypeOption = "users",
    note: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove the rate: what holds for the default user holds, whatever the file says."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    name = _named(user, entity_default, entity_type)
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.alter(where, name, (), ("producer_ids_rate",), work.Words("", note), "delete"))


@app.command()
def reset(
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    user: UserOption = None,
    entity_default: DefaultOption = False,
    entity_type: TypeOption = "users",
    as_json: JsonOption = False,
) -> None:
    """Forget what was set at run time: the file holds again."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    name = _named(user, entity_default, entity_type)
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.reset(where, name, work.Words()))


@app.command("raise")
def raise_(
    user: UserArgument,
    rate: Annotated[str, typer.Argument(metavar="RATE", show_default=False, help="New ids per window.")],
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    lasts: ForOption = "",
    note: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Give a user more than it has, for a while: raise alice 500 --for 2h."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.raise_rate(where, user, rate, work.Words(lasts, note)))


@app.command()
def block(
    user: UserArgument,
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    lasts: ForOption = "",
    note: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Refuse every new producer id of a user; its running producers go on."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.block(where, user, work.Words(lasts, note)))


@app.command()
def release(
    user: Annotated[str, typer.Option("--user", "--entity-name", metavar="USER", show_default=False)],
    producer_id: Annotated[int, typer.Option("--producer-id", min=0, metavar="ID", show_default=False)],
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let one producer id in, uncharged, when it comes back."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.command(where, "release", user, producer_id))


@app.command()
def refill(
    user: UserArgument,
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill a user's bucket: all of its burst, now."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.command(where, "refill", user, None))


def mode(
    to: Annotated[str, typer.Argument(metavar="observe|enforce|file", show_default=False)],
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    of_all: Annotated[
        bool, typer.Option("--all", help="Every user, whatever is said of it elsewhere. Has to be typed.")
    ] = False,
    user: UserOption = None,
    lasts: ForOption = "",
    note: NoteOption = "",
    as_json: JsonOption = False,
) -> None:
    """Observe or enforce, for a user or for all of them, on every gateway; file: what the file says."""
    from pidgate.cli import quota_change as work
    from pidgate.cli.admin_client import Where

    if to not in ("observe", "enforce", "file"):
        _complain("mode", f"{to!r} is no mode; write observe, enforce or file")
    if of_all == (user is not None):
        _complain(
            "mode",
            "whose mode? write --user alice, or --all for every user"
            if not of_all
            else "either --all or --user",
        )
    if to == "file" and lasts:
        _complain("mode", "--for goes with observe and enforce; after that the file holds again by itself")
    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.mode(where, to, user, work.Words(lasts, note)))


def explain(
    user: Annotated[str, typer.Option("--user", "--entity-name", metavar="USER", show_default=False)],
    config: ConfigOption = None,
    admin: AdminOption = None,
    token_file: TokenOption = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, metavar="ID", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Why a user is refused, or is not: tokens, ids in line, the last refusal and until when."""
    from pidgate.cli import explain as work
    from pidgate.cli.admin_client import Where

    where = Where(config, admin or (), token_file, as_json=as_json)
    raise typer.Exit(work.explain(where, work.Asked(user, producer_id)))


def _named(user: str | None, entity_default: bool, entity_type: str, *, needed: bool = True) -> str | None:
    """The user, None for the default user (or, where nobody needs to be named, for all)."""
    if entity_type != "users":
        _complain("quotas", f"--entity-type {entity_type} has no quota of new producer ids; only users have")
    if user == "":
        _complain("quotas", "a user has a name; --entity-default is for those that are not named")
    if entity_default and user is not None:
        _complain("quotas", "either --user or --entity-default")
    if needed and not entity_default and user is None:
        _complain("quotas", "whose quota? write --user alice, or --entity-default")
    return user


def _complain(command: str, text: str) -> None:
    typer.echo(f"pidgate {command}: {text}", err=True)
    raise typer.Exit(USAGE_ERROR)
