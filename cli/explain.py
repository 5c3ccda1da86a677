"""`pidgate explain`: why a user, or one of its producer ids, is refused or is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from pidgate.cli import quota_words as words
from pidgate.cli.admin_client import Told, Where, for_each
from pidgate.cli.quota_words import MODE, RATE
from pidgate.units import about_duration, clock, counted, moment, number, printable

_SOON_MS: Final = 1_000


@dataclass(frozen=True)
class Asked:
    user: str
    producer_id: int | None = None
    zone: tzinfo | None = None


def explain(where: Where, asked: Asked) -> int:
    """Show what each gateway knows; returns the exit code."""

    def show(told: Told) -> None:
        print(f"{told['gateway']} at {told['address']}, {moment(told['wall_ms'], asked.zone)}")
        for line in sentences(told, asked.zone):
            print(f"  {line}")

    return for_each(
        where,
        "explain",
        lambda gateway: gateway.get("/v1/explain", user=asked.user, producer_id=asked.producer_id),
        show,
    )


def sentences(told: Told, zone: tzinfo | None) -> Iterator[str]:
    """From what is said of the user to what happens next."""
    yield from _said(told, zone)
    if not told["is_restored"]:
        yield "What is remembered is still being read: nothing is refused until then."
        return
    yield from _balance(told)
    yield from _known(told)
    if told["last_refusal"] is not None:
        yield f"Last refused: {_refusal(told['last_refusal'], told, zone)}"
    else:
        yield "Nothing of this user was refused lately by this gateway."
    if told["producer_id"] is not None:
        yield from _of_id(told["producer_id"], told, zone)
    yield from _what_to_do(told)


def _said(told: Told, zone: tzinfo | None) -> Iterator[str]:
    for setting, title in ((RATE, "quota"), (MODE, "mode")):
        said = told[setting]
        by = words.who_and_when(said, zone)
        source = words.where_from(said, zone) + (f", by {by}" if by else "")
        yield f"{printable(told['user'])}: {title} {words.value(setting, said['value'], told['window_ms'])} ({source})"
        if said["note"]:
            yield f"  note: {printable(said['note'])}"
    if told["owner"]:
        yield f"owner: {printable(told['owner'])}"
    if told["is_exempt"]:
        yield "Exempt in the file: counted, never charged or refused."


def _balance(told: Told) -> Iterator[str]:
    if told["tokens"] is not None:
        wait_ms = told["next_token_in_ms"]
        soon = (
            "a new id is admitted at once" if not wait_ms else f"the next new id in {about_duration(wait_ms)}"
        )
        yield f"Tokens: {words.tokens(told)}: {soon}."
    if told["cluster_tokens"] is not None:
        yield f"All users together: {number(told['cluster_tokens'])} tokens left."
    if told["waiting"]:
        oldest = about_duration(told["oldest_waiting_ms"])
        yield f"In line: {counted(told['waiting'], 'id')}, the one that waits longest for {oldest}."
    if told["grace_left_ms"]:
        yield (
            f"Cold start: for another {about_duration(told['grace_left_ms'])} unseen ids are let in uncharged "
            f"({told['grace_admitted']:,} so far)."
        )


def _known(told: Told) -> Iterator[str]:
    if not told["is_known"]:
        yield "This gateway remembers nothing of this user."
    else:
        yield f"Remembered: {counted(told['live_ids'], 'id')}, which cost nothing."
    if told["sticky_entries"]:
        waits = counted(told["sticky_entries"], "partition")
        yield f"Refused batches that have to come first, whatever the quota says by now: of {waits}."


def _of_id(told_id: Told, told: Told, zone: tzinfo | None) -> Iterator[str]:
    name = f"Producer id {told_id['producer_id']}"
    if told_id["is_remembered"]:
        yield f"{name} is remembered: it costs nothing, and is not refused."
    elif told_id["is_released"]:
        yield f"{name} was released: it is let in when it comes back, and costs nothing."
    else:
        yield f"{name} is not remembered: it is new, or was not used for long."
    waiting = told_id["waiting"]
    if waiting is not None:
        since = about_duration(max(0, told["wall_ms"] - waiting["first_refused_wall_ms"]))
        place = waiting["queue_position"]
        ahead = "is next" if place == 0 else f"has {counted(place, 'id')} before it"
        yield (
            f"{name} waits since {since}, {ahead}, was refused {counted(waiting['attempts'], 'time')} "
            f"(address {printable(waiting['address'])}, client id {printable(waiting['client_id'])!r})."
        )
    refusal = told_id["last_refusal"]
    if refusal is not None and refusal != told["last_refusal"]:
        yield f"Its last refusal: {_refusal(refusal, told, zone)}"
    elif refusal is None and not told_id["is_remembered"]:
        yield f"{name} was not refused lately by this gateway."


def _refusal(refusal: Told, told: Told, zone: tzinfo | None) -> str:
    until_ms, now_ms = refusal["until_wall_ms"], told["wall_ms"]
    ago = about_duration(max(0, now_ms - refusal["refused_wall_ms"]))
    if until_ms > now_ms:
        until = f"it may come back in {about_duration(until_ms - now_ms)}, at {_time(until_ms, zone)}"
    else:
        until = f"its throttle of {about_duration(refusal['throttle_time_ms'])} is over"
    producer_id = refusal["producer_id"]
    what = "a new producer id (InitProducerId)" if producer_id < 0 else f"producer id {producer_id}"
    return f"{what} {ago} ago, because {_why(refusal, told)}; {until}."


def _time(wall_ms: int, zone: tzinfo | None) -> str:
    seconds = wall_ms // 1_000 % 60
    return f"{clock(wall_ms, zone)}:{seconds:02}"


def _why(refusal: Told, told: Told) -> str:
    reason, whose = refusal["reason"], "all users together" if refusal["bound"] == "cluster" else "its user"
    if reason == "blocked":
        return f"new ids of {whose} are blocked (rate 0)"
    if reason == "deadline":
        return "it came back before its throttle was over"
    if reason == "established":
        return (
            "it is not known here and came above sequence 0, so it was asked to begin with its lowest batch"
        )
    rate = words.value(RATE, refusal["producer_ids_rate"], told["window_ms"])
    place = refusal["queue_position"]
    in_line = "" if place is None else f", place {place + 1} in line"
    return f"the quota of {whose} is used up ({rate}{in_line})"


def _what_to_do(told: Told) -> Iterator[str]:
    if told[MODE]["value"] != "enforce":
        yield "Observed only: no new id is refused."
        return
    is_blocked = told[RATE]["value"] == 0
    if told["is_exempt"] or not (is_blocked or (told["next_token_in_ms"] or 0) >= _SOON_MS):
        return
    yield f"Who brings them: pidgate who --user {_typed(told['user'])}"
    raised = "alter --add-config producer_ids_rate=N --user" if is_blocked else "raise"
    tail = "" if is_blocked else " N"
    yield f"More for a while: pidgate quotas {raised} {_typed(told['user'])}{tail} --for 2h"
    asked = told["producer_id"]
    if asked is not None and not asked["is_remembered"]:
        yield (
            f"This id only: pidgate quotas release --user {_typed(told['user'])} --producer-id {asked['producer_id']}"
        )


def _typed(name: str) -> Any:
    """As a shell takes it."""
    import shlex

    return shlex.quote(name)
