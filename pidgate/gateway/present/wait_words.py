"""The sentence of each wait, and the commands that end it."""

from __future__ import annotations

from typing import NamedTuple

from pidgate.gateway.present.words import quoted
from pidgate.gateway.proxy.waits import Why
from pidgate.names import escaped
from pidgate.quota.byte_quota import Kind, resolve_rate
from pidgate.quota.entities import User, account_of, resolve, shown
from pidgate.quota.settings import Quotas
from pidgate.units import about_size, show_duration, show_milli


class Named(NamedTuple):
    """What a sentence names. `connections_per_s`: limits.connections_rate_per_user."""

    user: User
    client_id: str
    producer_id: int
    quotas: Quotas
    connections_per_s: int


def says(why: Why, named: Named) -> str:
    """Return why a client waits, in a sentence without its end."""
    user, quotas = named.user, named.quotas
    name, new = shown(user), _new(named.producer_id)
    if why is Why.USER_RATE:
        return (
            f"{new}, and the quota of {name} is used up ({_rate(quotas, resolve(quotas, user).rate_milli)})"
        )
    if why is Why.CLIENT_ID_RATE:
        rate_milli = resolve(quotas, account_of(quotas, user, named.client_id)).rate_milli
        part = f"client id {escaped(named.client_id)} of {name}"
        return f"{new}, and the part of {part} is used up ({_rate(quotas, rate_milli)})"
    if why is Why.STATES_RATE:
        rate = _rate(quotas, resolve(quotas, user).states_rate_milli)
        return f"{new}, and the ids of {name} have written to more new partitions than producer_states_rate ({rate})"
    if why is Why.CLUSTER_RATE:
        return f"{new}, and the rate of all users together is used up ({_rate(quotas, quotas.cluster_rate_milli)})"
    if why is Why.BLOCKED:
        return f"{new}, and new producer ids of {name} are blocked (rate 0)"
    if why is Why.NEW_PRODUCER:
        rate = _rate(quotas, resolve(quotas, user).rate_milli)
        return f"it asks for a new producer id, and the quota of {name} is used up ({rate})"
    if why is Why.TRANSACTIONAL_IDS:
        rate = _rate(quotas, resolve(quotas, user).transactional_ids_rate_milli)
        return f"its transactional id is new, and the rate of {name} is used up ({rate})"
    if why in (Why.PRODUCED_BYTES, Why.FETCHED_BYTES):
        return _bytes(why, named)
    if why is Why.CONNECTION_RATE:
        return f"connections of {name} come faster than {named.connections_per_s:,} a second"
    return _SENTENCES[why]


_SENTENCES = {
    Why.ORDER: "a refused batch of its producer id has to come first",
    Why.UNDECIDED: "the quota's code raised an error, and the ceiling of ten times the rate is reached",
    Why.RESTORING: "the gateway is still reading its state, and more new ids came than pass until then",
    Why.OTHER_GATEWAY: "another gateway may have admitted its id a moment ago",
    Why.LOGIN: "its login is not over: the broker has not answered yet",
    Why.ANSWER: "its next Fetch waits for the size of the answer before it (byte rate)",
    Why.QUOTA_CHANGE: "its change of quotas is being made",
    Why.MEMORY: "there is no memory for its request",
    Why.CONNECTING: "its broker is being connected to",
    Why.BROKER_BUSY: "its broker takes no more data",
    Why.IN_FLIGHT: "its broker has not answered many of its requests",
    Why.NOT_READING: "it does not read its answers",
    Why.TURN: "its user has used its time of the event loop",
}


def lifts(why: Why, named: Named) -> tuple[str, ...]:
    """Return what ends the wait: commands, or the setting to change."""
    user = quoted(named.user)
    more = f"pidgate quotas raise {user} N --for 2h"
    if why is Why.USER_RATE:
        return more, _release(named), f"pidgate who --user {user}"
    if why in (Why.CLIENT_ID_RATE, Why.CLUSTER_RATE):
        setting = (
            "cluster_producer_ids_rate" if why is Why.CLUSTER_RATE else "producer_ids_rate of the client id"
        )
        return _release(named), f"{setting} in the gateway's file"
    if why is Why.STATES_RATE:
        alter = f"pidgate quotas alter --user {user} --add-config producer_states_rate=N --for 2h"
        return alter, f"pidgate quotas refill {user}"
    if why is Why.BLOCKED:
        return f"pidgate quotas reset --user {user}", _release(named)
    if why is Why.NEW_PRODUCER:
        return more, f"pidgate quotas refill {user}"
    if why is Why.TRANSACTIONAL_IDS:
        return (f"pidgate quotas alter --user {user} --add-config transactional_ids_rate=N --for 2h",)
    if why in (Why.PRODUCED_BYTES, Why.FETCHED_BYTES):
        setting = "producer_byte_rate" if why is Why.PRODUCED_BYTES else "consumer_byte_rate"
        return (f"pidgate quotas alter --user {user} --add-config {setting}=N --for 2h",)
    if why is Why.CONNECTION_RATE:
        return ("limits.connections_rate_per_user in the gateway's file",)
    return ("limits.buffered_total in the gateway's file",) if why is Why.MEMORY else ()


def _new(producer_id: int) -> str:
    return "it asks for a new producer id" if producer_id < 0 else f"producer id {producer_id} is new"


def _release(named: Named) -> str:
    if named.producer_id < 0:
        return f"pidgate quotas refill {quoted(named.user)}"
    return f"pidgate quotas release --user {quoted(named.user)} --producer-id {named.producer_id}"


def _rate(quotas: Quotas, rate_milli: int | None) -> str:
    if rate_milli is None:
        return "no limit"
    return f"{show_milli(rate_milli)} per {show_duration(quotas.producer_ids.window_ms)}"


def _bytes(why: Why, named: Named) -> str:
    is_produced = why is Why.PRODUCED_BYTES
    kind = Kind.PRODUCE if is_produced else Kind.FETCH
    bound = resolve_rate(named.quotas.bytes, kind, named.user, named.client_id)
    rate = "no rate any more" if bound is None else f"{about_size(bound.rate_bytes_per_s)} per second"
    setting = "producer_byte_rate" if is_produced else "consumer_byte_rate"
    whose = shown(named.user) if bound is None or bound.bucket[0] is not None else "its client id"
    does = "produces" if is_produced else "fetches"
    return f"{whose} {does} above {setting} ({rate})"
