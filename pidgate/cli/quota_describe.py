"""`pidgate quotas describe` and `pidgate quotas diff`: the quotas in force with their sources, and the
file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pidgate.cli.admin_client import Gateway, JsonObject, for_each
from pidgate.cli.options import DescribeOptions, DiffOptions
from pidgate.console import plain_console, print_table
from pidgate.gateway.present import words
from pidgate.gateway.present.words import BYTE_RATES, GRACE, MODE, RATE, RATES
from pidgate.names import escaped
from pidgate.units import moment, printable

WIDTH_WITHOUT_TERMINAL: Final = 140


def describe(options: DescribeOptions) -> int:
    """Show the quotas in force; return the exit code."""
    user = options.entity(needed=False)

    def call(gateway: Gateway) -> JsonObject:
        answer = gateway.get("/v1/quotas", user=user)
        if options.entity_default:
            answer["entries"] = [entry for entry in answer["entries"] if entry["user"] is None]
        return answer

    return for_each(options, "quotas describe", call, lambda answer: _show_described(answer, user))


def diff(options: DiffOptions) -> int:
    """Show changes made at run time next to the file's values; return the exit code."""
    user = options.entity(needed=False)

    def call(gateway: Gateway) -> JsonObject:
        answer = gateway.get("/v1/quotas", user=user)
        return {
            **{key: answer[key] for key in ("address", "gateway", "wall_ms", "window_ms", "quota_version")},
            "differences": [row for row in differences(answer) if is_wanted(row)],
        }

    def is_wanted(row: JsonObject) -> bool:
        if options.entity_default:
            return row["user"] is None and row["setting"] in (*RATES, *BYTE_RATES)
        return user is None or row["user"] == user

    return for_each(options, "quotas diff", call, _show_diff)


# ---- describe ------------------------------------------------------------------------------------------


def _show_described(answer: JsonObject, user: str | None) -> None:
    console = plain_console(WIDTH_WITHOUT_TERMINAL)
    for line in headline(answer):
        console.print(line, soft_wrap=True)
    rows = [row for entry in answer["entries"] for row in rows_of(entry, answer["window_ms"], user)]
    if rows:
        print_table(console, ("user", "setting", "value", "from", "set by", "tokens", "owner", "note"), rows)
    for line in (words.when_refused(answer["entries"][0]), words.unseen(answer)):
        console.print(line, soft_wrap=True)


def headline(answer: JsonObject) -> Iterator[str]:
    """Yield the lines about the gateway, and the mode of all."""
    cluster = f", cluster {printable(answer['cluster'])}" if answer["cluster"] else ""
    yield f"{answer['gateway']} at {answer['address']}{cluster}, quota version {answer['quota_version']}"
    mode = answer["mode"]
    by = words.set_by(mode)
    source = f"{words.source({**mode, 'of': 'user'})}{f', by {by}' if by else ''}"
    file = f"; the file says {mode['in_file']}" if mode["value"] != mode["in_file"] else ""
    yield f"mode of all users: {mode['value']} ({source}{file})"
    keeper = "this gateway" if answer["keeps_byte_rates"] else "the brokers"
    yield f"byte rates set at run time: kept by {keeper} (quotas.byte_rates)"
    if answer["cluster_producer_ids_rate"] is not None:
        ceiling = words.value(RATE, answer["cluster_producer_ids_rate"], answer["window_ms"])
        yield f"all users together: {ceiling} (file)"


def rows_of(entry: Mapping[str, Any], window_ms: int, user: str | None) -> Iterator[tuple[str, ...]]:
    """Yield a row per setting of an entity; for the `user` named in the options, the effective settings."""
    name = words.entity(entry["user"])
    if entry["user"] is None:
        settings = {RATE: entry[RATE], **_set({rate: entry[rate] for rate in RATES[1:]})}
    elif user is not None:
        others = _set({rate: entry[f"effective_{rate}"] for rate in RATES[1:]})
        settings = {RATE: entry["effective_rate"], **others, MODE: entry["effective_mode"]}
    else:
        settings = _set({setting: entry[setting] for setting in (*RATES, MODE)})
        settings = settings or ({} if entry["byte_rates"] else {RATE: entry["effective_rate"]})
    nothing = "no limit" if user is not None else words.unset(entry["user"])
    exempt = " (exempt)" if entry.get("is_exempt") else ""
    place = -1
    for place, (setting, one) in enumerate(settings.items()):
        is_overridden = setting == MODE and one["value"] != entry["effective_mode"]["value"]
        yield (
            name if place == 0 else "",
            setting,
            words.value(setting, one["value"], window_ms, nothing)
            + (exempt if setting in RATES else " (overridden)" if is_overridden else ""),
            words.source({**one, "of": "user"} if entry["user"] is None else one),
            words.set_by(one),
            words.tokens(entry, setting),
            printable(entry["owner"]) if place == 0 else "",
            printable(one["note"] or (entry["note"] if place == 0 else "")),
        )
    for part in entry.get("client_ids", ()):
        rate = words.value(RATE, part["producer_ids_rate"], window_ms)
        of_client = f"{rate} of client {escaped(part['client_id'])}"
        yield "" if place >= 0 else name, RATE, of_client, "file", "", words.tokens(part), "", ""
        place += 1
    yield from _byte_rows(entry, "" if place >= 0 else name)


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a value from the file or from run time."""
    return {
        setting: one
        for setting, one in settings.items()
        if one["source"] != "nothing" or one["in_file"] is not None
    }


def _byte_rows(entry: Mapping[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    """Yield the byte rates of a user. docs/how-to/byte-quotas.md says which rate applies to a client."""
    for rates in entry["byte_rates"]:
        client_id = rates["client_id"]
        of_client = "" if client_id is None else f" of client {escaped(client_id) or '(default)'}"
        for setting in ("producer_byte_rate", "consumer_byte_rate"):
            if rates[setting] is not None:
                value = words.bytes_per_s(rates[setting]) + of_client
                origin = entry[setting] if client_id is None else None
                come = (
                    ("file", "")
                    if origin is None
                    else (words.source({**origin, "of": "user"}), words.set_by(origin))
                )
                yield (
                    name,
                    setting,
                    value,
                    *come,
                    "",
                    "",
                    "" if origin is None else printable(origin["note"]),
                )
                name = ""


# ---- diff ----------------------------------------------------------------------------------------------


def differences(answer: JsonObject) -> list[JsonObject]:
    """Return each change made at run time with the value in force and the file's."""
    entries = answer["entries"]
    origins = {(rate, entry["user"]): entry[rate] for entry in entries for rate in RATES}
    origins |= {
        (rate, entry["user"]): entry[rate] for entry in entries for rate in BYTE_RATES if rate in entry
    }
    for entry in entries:
        if entry["user"] is not None:
            in_force = entry["effective_mode"]["value"]
            origins[MODE, entry["user"]] = {"value": in_force, "in_file": entry["mode"]["in_file"]}
    origins[MODE, None] = answer["mode"]
    found = []
    for change in answer["changes"]:
        target = (change["setting"], change["user"])
        now = {"value": change["value"], "in_file": None} if target[0] == GRACE else origins.get(target)
        if now is not None:
            found.append({**change, "in_force": now["value"], "in_file": now["in_file"]})
    return sorted(found, key=lambda row: (row["user"] is not None, row["user"] or "", row["setting"]))


def _show_diff(answer: JsonObject) -> None:
    console = plain_console(WIDTH_WITHOUT_TERMINAL)
    console.print(f"{answer['gateway']} at {answer['address']}", soft_wrap=True)
    if not answer["differences"]:
        console.print("Nothing was changed at run time: the file applies.")
        return
    print_table(
        console,
        ("user", "setting", "set at run time", "in force", "file (after reset)", "set by", "until", "note"),
        [_diff_row(row, answer["window_ms"]) for row in answer["differences"]],
    )
    console.print("pidgate quotas reset, and pidgate mode file --all, let the file hold again.")


def _diff_row(row: JsonObject, window_ms: int) -> tuple[str, ...]:
    setting, nothing = row["setting"], words.unset(row["user"])
    changed = "removed" if row["action"] == "remove" else words.value(setting, row["value"], window_ms)
    return (
        words.entity(row["user"], setting),
        setting,
        changed,
        words.value(setting, row["in_force"], window_ms, nothing),
        words.value(setting, row["in_file"], window_ms, nothing),
        words.set_by(row),
        "" if row["until_wall_ms"] is None else moment(row["until_wall_ms"]),
        printable(row["note"]),
    )
