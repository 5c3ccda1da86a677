"""What holds for a user and why, in sentences: the words of `pidgate explain` and of the status page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pidgate.gateway.present import words
from pidgate.gateway.present.words import MODE, RATE, STATES_RATE, TRANSACTIONAL_RATE
from pidgate.names import escaped
from pidgate.units import about_duration, clock, counted, number, printable

_SOON_MS: Final = 1_000
_MANY_STATES: Final = 2
"""Of an id, from which on the forecast is shown: it has an error of 6 %."""
_TITLES: Final = {
    RATE: "quota",
    TRANSACTIONAL_RATE: "new transactional ids",
    STATES_RATE: "new producer states",
    MODE: "mode",
}

JsonObject = dict[str, Any]


def sentences(answer: JsonObject, *, is_own: bool = False) -> Iterator[str]:
    """Yield the explanation line by line: settings, state, last refusal, and remedies.

    `is_own`: for the user itself, without authors, notes and the operator's commands.
    """
    yield from _settings(answer, is_own=is_own)
    if not answer["is_restored"]:
        return
    yield from _balance(answer)
    yield from _known(answer)
    if answer["last_refusal"] is not None:
        yield f"Last refused: {_refusal(answer['last_refusal'], answer)}"
    else:
        yield "Nothing of this user was refused lately by this gateway."
    if answer["producer_id"] is not None:
        yield from _of_id(answer["producer_id"], answer)
    if not is_own:
        yield from _what_to_do(answer)


def _settings(answer: JsonObject, *, is_own: bool) -> Iterator[str]:
    for setting, title in _TITLES.items():
        origin = answer[setting]
        if setting in (TRANSACTIONAL_RATE, STATES_RATE) and origin["value"] is None:
            continue
        by = "" if is_own else words.set_by(origin)
        source = words.source(origin) + (f", by {by}" if by else "")
        value = words.value(setting, origin["value"], answer["window_ms"])
        yield f"{words.entity(answer['user'])}: {title} {value} ({source})"
        if origin["note"] and not is_own:
            yield f"  note: {printable(origin['note'])}"
    for part in answer["client_ids"]:
        rate = words.value(RATE, part["producer_ids_rate"], answer["window_ms"])
        tokens = f", tokens {left}" if (left := words.tokens(part)) else ""
        yield f"  of it for client id {escaped(part['client_id'])}: {rate} (file){tokens}"
    if answer["client_ids"]:
        yield "  the rest is for all other client ids together; tokens and the line below are theirs"
    if answer["owner"]:
        yield f"owner: {printable(answer['owner'])}"
    in_force = words.when_refused(_as_entry(answer))
    yield in_force.partition(" To ")[0] if is_own else in_force  # what follows is a command
    if told := words.unseen(answer):
        yield told


def _as_entry(answer: JsonObject) -> JsonObject:
    return {**answer, "effective_rate": answer[RATE], "effective_mode": answer[MODE]}


def _balance(answer: JsonObject) -> Iterator[str]:
    if answer["tokens"] is not None:
        wait_ms = answer["next_token_in_ms"]
        soon = "a new id is admitted now" if not wait_ms else f"the next new id in {about_duration(wait_ms)}"
        yield f"Tokens: {words.tokens(answer)}: {soon}."
    if answer["transactional_tokens"] is not None:
        yield f"Tokens of transactional ids: {words.tokens(answer, TRANSACTIONAL_RATE)}."
    if answer["states_tokens"] is not None:
        yield f"Tokens of producer states: {words.tokens(answer, STATES_RATE)}; below 0 new ids wait."
    if answer["cluster_tokens"] is not None:
        yield f"All users together: {number(answer['cluster_tokens'])} tokens left."
    if answer["waiting"]:
        oldest = about_duration(answer["oldest_waiting_ms"])
        yield f"In line: {counted(answer['waiting'], 'id')}, the one that waits longest for {oldest}."
        yield from _gives_up("The first client", answer["next_gives_up_in_ms"])
    if answer["grace_admitted"]:
        yield f"Admitted uncharged as grace: {counted(answer['grace_admitted'], 'id')}."


def _known(answer: JsonObject) -> Iterator[str]:
    if not answer["is_known"]:
        yield "This gateway has no state of this user."
    else:
        yield f"Remembered: {counted(answer['live_ids'], 'id')}, which cost nothing."
    if answer["producer_states"] >= _MANY_STATES * max(1, answer["live_ids"]):
        states = counted(answer["producer_states"], "producer state")
        yield f"Its traffic here costs about {states}: a broker keeps one for each id and partition."
    if answer["sticky_entries"]:
        waits = counted(answer["sticky_entries"], "partition")
        yield f"Refused batches that must be retried first, whatever the quota is by now: of {waits}."


def _of_id(known_id: JsonObject, answer: JsonObject) -> Iterator[str]:
    name = f"Producer id {known_id['producer_id']}"
    if known_id["is_remembered"]:
        yield f"{name} is remembered: it costs nothing, and is not refused."
    elif known_id["is_released"]:
        yield f"{name} was released: it is admitted on its next attempt, and costs nothing."
    else:
        yield f"{name} is not remembered: it is new, or was not used for long."
    waiting = known_id["waiting"]
    if waiting is not None:
        since = about_duration(max(0, answer["wall_ms"] - waiting["first_refused_wall_ms"]))
        place = waiting["queue_position"]
        ahead = "is next" if place == 0 else f"has {counted(place, 'id')} before it"
        yield (
            f"{name} waits since {since}, {ahead}, was refused {counted(waiting['attempts'], 'time')} "
            f"(address {printable(waiting['address'])}, client id {printable(waiting['client_id'])!r})."
        )
        yield from _gives_up("Its client", waiting["gives_up_in_ms"])
    refusal = known_id["last_refusal"]
    if refusal is not None and refusal != answer["last_refusal"]:
        yield f"Its last refusal: {_refusal(refusal, answer)}"
    elif refusal is None and not known_id["is_remembered"]:
        yield f"{name} was not refused lately by this gateway."


def _gives_up(who: str, left_ms: int | None) -> Iterator[str]:
    """Yield when a client gives up, if its library is known."""
    if left_ms is not None:
        yield f"{who} gives up in {about_duration(left_ms)} by its library's defaults (docs/reference/clients.md)."


def _refusal(refusal: JsonObject, answer: JsonObject) -> str:
    until_ms, now_ms = refusal["until_wall_ms"], answer["wall_ms"]
    ago = about_duration(max(0, now_ms - refusal["refused_wall_ms"]))
    if until_ms > now_ms:
        until = f"it may retry in {about_duration(until_ms - now_ms)}, at {_time(until_ms)}"
    else:
        until = f"its throttle of {about_duration(refusal['throttle_time_ms'])} is over"
    producer_id = refusal["producer_id"]
    what = "a new producer id (InitProducerId)" if producer_id < 0 else f"producer id {producer_id}"
    return f"{what} {ago} ago, because {_why(refusal, answer)}; {until}."


def _time(wall_ms: int) -> str:
    seconds = wall_ms // 1_000 % 60
    return f"{clock(wall_ms)}:{seconds:02}"


_WHOSE = {"cluster": "all users together", "states": "its user's producer states"}
"""By the bound of a refusal."""


def _why(refusal: JsonObject, answer: JsonObject) -> str:
    reason, whose = refusal["reason"], _WHOSE.get(refusal["bound"], "its user")
    if reason == "blocked":
        return f"new ids of {whose} are blocked (rate 0)"
    if reason == "deadline":
        return "it was retried before its throttle was over"
    if reason == "established":
        return (
            "it is not known here and came above sequence 0, so it was asked to begin with its lowest batch"
        )
    rate = words.value(RATE, refusal["producer_ids_rate"], answer["window_ms"])
    place = refusal["queue_position"]
    in_line = "" if place is None else f", place {place + 1} in line"
    return f"the quota of {whose} is used up ({rate}{in_line})"


def _what_to_do(answer: JsonObject) -> Iterator[str]:
    if answer["not_refused"]["why"] is not None:
        return
    is_blocked, user = answer[RATE]["value"] == 0, words.quoted(answer["user"])
    if not (is_blocked or (answer["next_token_in_ms"] or 0) >= _SOON_MS):
        return
    yield f"See which clients create them: pidgate who --user {user}"
    raised = "alter --add-config producer_ids_rate=N --user" if is_blocked else "raise"
    tail = "" if is_blocked else " N"
    yield f"More for a while: pidgate quotas {raised} {user}{tail} --for 2h"
    of_id = answer["producer_id"]
    if of_id is not None and not of_id["is_remembered"]:
        yield f"This id only: pidgate quotas release --user {user} --producer-id {of_id['producer_id']}"
