"""`pidgate explain`: which clients wait now, or why a user or one of its producer ids is refused or admitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pidgate.cli.admin_client import JsonObject, for_each
from pidgate.cli.options import ExplainOptions, complain
from pidgate.gateway.present.user_words import sentences
from pidgate.units import about_duration, counted, moment, printable

_LATELY_MS: Final = 3_600_000


def explain(options: ExplainOptions) -> int:
    """Show who waits at each gateway, or its state of a user; return the exit code."""
    if options.user is None:
        if options.producer_id is not None:
            complain("explain", "a producer id of no user; write --user alice")
        if options.fleet:
            return for_each(options, "explain", lambda gateway: gateway.get("/v1/fleet"), _show_fleet)
        return for_each(options, "explain", lambda gateway: gateway.get("/v1/explain"), _show_waits)
    if options.fleet:
        complain("explain", "--fleet shows who waits; leave --user out, or name the gateways with --admin")

    def show(answer: JsonObject) -> None:
        print(f"{answer['gateway']} at {answer['address']}, {moment(answer['wall_ms'])}")
        for line in sentences(answer):
            print(f"  {line}")

    return for_each(
        options,
        "explain",
        lambda gateway: gateway.get("/v1/explain", user=options.user, producer_id=options.producer_id),
        show,
    )


def _show_fleet(answer: JsonObject) -> None:
    print(f"{counted(len(answer['gateways']), 'gateway')}, {moment(answer['wall_ms'])}")
    for line in fleet_in_words(answer):
        print(line)
    for line in waits_in_words(answer):
        print(line)


def fleet_in_words(answer: JsonObject) -> Iterator[str]:
    """Yield a line for each gateway; one that did not answer is named first."""
    for row in sorted(answer["gateways"], key=lambda row: bool(row["answered"])):
        name = printable(row["gateway"])
        if not row["answered"]:
            yield f"  {name}: DOES NOT ANSWER, last heard {about_duration(row['heard_ms'])} ago"
            continue
        state = "ready" if row["is_ready"] else f"not ready: {printable(row['not_ready'])}"
        quotas = "" if row["same_quotas"] else f"; ITS QUOTAS ARE NOT THOSE OF {printable(answer['gateway'])}"
        yield (
            f"  {name}: {state}, {row['mode']}, {counted(row['connections'], 'connection')}, "
            f"{counted(row['waiting'], 'client')} waiting, {counted(row['changes'], 'quota')} set at run time{quotas}"
        )
    if not answer["has_topic"]:
        yield "  It knows no other gateway: events.enabled is false."


def _show_waits(answer: JsonObject) -> None:
    print(f"{answer['gateway']} at {answer['address']}, {moment(answer['wall_ms'])}")
    for line in waits_in_words(answer):
        print(line)


def waits_in_words(answer: JsonObject) -> Iterator[str]:
    """Yield two lines or three for each client that waits, then the limits that were hit lately."""
    waits, now_ms = answer["waits"], answer["wall_ms"]
    if not waits["rows"]:
        yield "  Nobody waits."
    for row in waits["rows"]:
        client = f"client {printable(row['client_id'])!r} at {printable(row['address'])}"
        library = f" ({printable(row['library'])})" if row["library"] else ""
        at = f"at {printable(row['gateway'])} " if "gateway" in row else ""
        yield f"  {row['name']}: {client}{library} waits {at}since {_ago(row, now_ms)}{_until(row, now_ms)}"
        yield f"    because {row['says']}{_line_of(row)}"
        if row["lifts"]:
            yield f"    to end it: {row['lifts'][0]}"
    if waits["total"] > len(waits["rows"]):
        yield f"  ({waits['total'] - len(waits['rows']):,} more)"
    for row in answer["limits"]:
        hit_ms = row["last_hit_wall_ms"]
        if hit_ms is not None and now_ms - hit_ms < _LATELY_MS:
            ago = about_duration(now_ms - hit_ms)
            yield f"  Limit {row['name']} was hit {ago} ago, {counted(row['hits'], 'time')} in all: {row['beyond']}"


def _ago(row: JsonObject, now_ms: int) -> str:
    return about_duration(max(0, now_ms - row["since_wall_ms"]))


def _until(row: JsonObject, now_ms: int) -> str:
    until_ms, gives_up_ms = row["until_wall_ms"], row["gives_up_wall_ms"]
    text = "" if until_ms is None or until_ms <= now_ms else f", {about_duration(until_ms - now_ms)} more"
    if gives_up_ms is not None:
        text += f"; gives up in {about_duration(max(0, gives_up_ms - now_ms))}"
    return text


def _line_of(row: JsonObject) -> str:
    place = row["place"]
    if place is None:
        return ""
    return "; it is next" if place == 0 else f"; {counted(place, 'other')} before it in line"
