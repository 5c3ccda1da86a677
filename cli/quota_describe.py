"""`pidgate quotas describe` and `pidgate quotas diff`: what holds, who said so, and what the file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final

from pidgate.cli import quota_words as words
from pidgate.cli.admin_client import Gateway, Told, Where, for_each
from pidgate.cli.quota_words import MODE, RATE
from pidgate.units import moment, printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 140


@dataclass(frozen=True)
class Asked:
    """Whom it is about: `user`, the default user alone, or (neither) everybody of whom something is said."""

    user: str | None = None
    default_only: bool = False
    zone: tzinfo | None = None
    width: int | None = None


def describe(where: Where, asked: Asked) -> int:
    """Show what holds; returns the exit code."""
    return for_each(where, "quotas describe", _asking(asked), lambda told: _show_described(told, asked))


def diff(where: Where, asked: Asked) -> int:
    """Show what was changed at run time, and what the file says instead; returns the exit code."""

    def ask(gateway: Gateway) -> Told:
        told = gateway.get("/v1/quotas", user=asked.user)
        changed = [row for row in differences(told) if _is_asked_for(row, asked)]
        return {
            **{key: told[key] for key in ("address", "gateway", "wall_ms", "window_ms", "quota_version")},
            "differences": changed,
        }

    return for_each(where, "quotas diff", ask, lambda told: _show_diff(told, asked))


def _asking(asked: Asked) -> Callable[[Gateway], Told]:
    def ask(gateway: Gateway) -> Told:
        told = gateway.get("/v1/quotas", user=asked.user)
        if asked.default_only:
            told["entries"] = [entry for entry in told["entries"] if entry["user"] is None]
        return told

    return ask


# ---- describe ------------------------------------------------------------------------------------------


def _show_described(told: Told, asked: Asked) -> None:
    console = _console(asked)
    for line in headline(told, asked.zone):
        console.print(line, soft_wrap=True)
    rows = [row for entry in told["entries"] for row in rows_of(entry, told, asked)]
    if rows:
        _print_table(console, ("user", "setting", "value", "from", "set by", "tokens", "owner", "note"), rows)


def headline(told: Told, zone: tzinfo | None) -> Iterator[str]:
    """The gateway, and the mode of all."""
    cluster = f", cluster {printable(told['cluster'])}" if told["cluster"] else ""
    yield f"{told['gateway']} at {told['address']}{cluster}, quota version {told['quota_version']}"
    mode = told["mode"]
    by = words.who_and_when(mode, zone)
    source = f"{words.where_from({**mode, 'of': 'user'}, zone)}{f', by {by}' if by else ''}"
    file = f"; the file says {mode['in_file']}" if mode["value"] != mode["in_file"] else ""
    yield f"mode of all users: {mode['value']} ({source}{file})"
    if told["cluster_producer_ids_rate"] is not None:
        ceiling = words.value(RATE, told["cluster_producer_ids_rate"], told["window_ms"])
        yield f"all users together: {ceiling} (file)"


def rows_of(entry: Mapping[str, Any], told: Told, asked: Asked) -> Iterator[tuple[str, ...]]:
    """A row for each setting of which something is said; of the one user asked for, what holds."""
    name = words.whom(entry["user"])
    if entry["user"] is None:
        said = {RATE: entry["producer_ids_rate"]}
    elif asked.user is not None:
        said = {RATE: entry["effective_rate"], MODE: entry["effective_mode"]}
    else:
        own = {RATE: entry["producer_ids_rate"], MODE: entry["mode"]}
        said = {
            setting: one
            for setting, one in own.items()
            if one["source"] != "nothing" or one["in_file"] is not None
        }
        said = said or ({} if entry["byte_rates"] else {RATE: entry["effective_rate"]})
    nothing = "no limit" if asked.user is not None else words.nothing_said(entry["user"])
    exempt = " (exempt)" if entry.get("is_exempt") else ""
    place = -1
    for place, (setting, one) in enumerate(said.items()):
        yield (
            name if place == 0 else "",
            setting,
            words.value(setting, one["value"], told["window_ms"], nothing)
            + (exempt if setting == RATE else ""),
            words.where_from({**one, "of": "user"} if entry["user"] is None else one, asked.zone),
            words.who_and_when(one, asked.zone),
            words.tokens(entry) if setting == RATE else "",
            printable(entry["owner"]) if place == 0 else "",
            printable(one["note"] or (entry["note"] if place == 0 else "")),
        )
    yield from _byte_rows(entry, "" if place >= 0 else name)


def _byte_rows(entry: Mapping[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    """The file's byte rates of the user; which of them holds for a client is in docs/byte-quotas.md."""
    for rates in entry["byte_rates"]:
        client_id = rates["client_id"]
        of_client = "" if client_id is None else f" of client {printable(client_id) or '(default)'}"
        for setting in ("producer_byte_rate", "consumer_byte_rate"):
            if rates[setting] is not None:
                value = words.bytes_per_s(rates[setting]) + of_client
                yield (name, setting, value, "file", "", "", "", "")
                name = ""


# ---- diff ----------------------------------------------------------------------------------------------


def differences(told: Told) -> list[Told]:
    """One for each change that was made at run time: what holds now, what the file says, who said otherwise."""
    said = {(RATE, entry["user"]): entry["producer_ids_rate"] for entry in told["entries"]}
    said |= {(MODE, entry["user"]): entry["mode"] for entry in told["entries"] if entry["user"] is not None}
    said[MODE, None] = told["mode"]
    found = []
    for change in told["changes"]:
        now = said.get((change["setting"], change["user"]))
        if now is not None:
            found.append({**change, "in_force": now["value"], "in_file": now["in_file"]})
    return sorted(found, key=lambda row: (row["user"] is not None, row["user"] or "", row["setting"]))


def _is_asked_for(row: Told, asked: Asked) -> bool:
    if asked.default_only:
        return row["user"] is None and row["setting"] == RATE
    return asked.user is None or row["user"] == asked.user


def _show_diff(told: Told, asked: Asked) -> None:
    console = _console(asked)
    console.print(f"{told['gateway']} at {told['address']}", soft_wrap=True)
    if not told["differences"]:
        console.print("Nothing was changed at run time: what the file says holds.")
        return
    _print_table(
        console,
        ("user", "setting", "set at run time", "in force", "file (after reset)", "set by", "until", "note"),
        [_diff_row(row, told["window_ms"], asked.zone) for row in told["differences"]],
    )
    console.print("pidgate quotas reset, and pidgate mode file --all, let the file hold again.")


def _diff_row(row: Told, window_ms: int, zone: tzinfo | None) -> tuple[str, ...]:
    setting, nothing = row["setting"], words.nothing_said(row["user"])
    changed = "removed" if row["action"] == "remove" else words.value(setting, row["value"], window_ms)
    return (
        words.whom(row["user"], setting),
        setting,
        changed,
        words.value(setting, row["in_force"], window_ms, nothing),
        words.value(setting, row["in_file"], window_ms, nothing),
        words.who_and_when(row, zone),
        "" if row["until_wall_ms"] is None else moment(row["until_wall_ms"], zone),
        printable(row["note"]),
    )


def _console(asked: Asked) -> Console:
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if asked.width is not None or not console.is_terminal:
        console.width = asked.width or WIDTH_WITHOUT_TERMINAL
    return console


def _print_table(console: Console, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    used = [any(row[place] for row in rows) for place in range(len(columns))]
    for column, is_used in zip(columns, used, strict=True):
        if is_used:
            table.add_column(column, overflow="fold", no_wrap=column in ("setting", "tokens"))
    for row in rows:
        table.add_row(*(Text(cell) for cell, is_used in zip(row, used, strict=True) if is_used))
    console.print(table)
