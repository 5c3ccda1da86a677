"""`pidgate check`: explain a configuration file, and the maximum that its quotas allow."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Final

from pidgate import client_faults, units
from pidgate.cli import tls_words
from pidgate.cli.options import USAGE_ERROR, CheckOptions, complain
from pidgate.doctor.brokers import login_warnings_of
from pidgate.gateway.cluster.nodes import NodePorts
from pidgate.gateway.config import conflicts
from pidgate.gateway.config.loading import ConfigError, Problem, Settings, checked
from pidgate.gateway.config.settings import ListenerSettings
from pidgate.gateway.config.source import Source, read_yaml
from pidgate.names import escaped
from pidgate.quota.entities import EffectiveQuota, User, client_accounts, resolve, shown
from pidgate.quota.settings import (
    DEFAULT,
    ByteEntity,
    ByteQuotas,
    ByteRates,
    Mode,
    ProducerIdSettings,
    Quotas,
)

VALID: Final = 0
# A name without a user: resolves to the quota of users that are not named.
_ANYBODY: Final = ""
_LISTED_NODES: Final = 20
_ONE_OF: Final = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}


def check(options: CheckOptions) -> int:
    """Print the explanation, or the problems to stderr; return the exit code."""
    if options.config is None:
        complain("check", "which file? Name it with --config FILE")
    try:
        source = read_yaml(options.config)
        settings = checked(source)
        tls_words.refuse_unusable(settings, source)
    except ConfigError as error:
        if options.as_json:
            print(
                json.dumps({"valid": False, "problems": list(map(_problem_json, error.problems))}, indent=2)
            )
        print(error, file=sys.stderr)
        return USAGE_ERROR
    warned = [*file_warnings(settings, source), *asyncio.run(login_warnings_of(settings))]
    if options.as_json:
        print(json.dumps({"valid": True, "warnings": warned}, indent=2))
        return VALID
    for line in explanation(settings):
        print(line)
    _print_users(settings.to_quotas())
    for warning in warned:
        print(f"warning: {warning}")
    print(f"{options.config} is valid.")
    return VALID


def _problem_json(problem: Problem) -> dict[str, str]:
    return {"where": problem.where, "key": problem.key, "text": problem.text}


def file_warnings(settings: Settings, source: Source) -> Iterator[str]:
    """Yield the warnings of `check`, which `doctor` shows, too."""
    for path, text in conflicts.warnings(settings):
        yield f"{source.where(path)}: {source.key(path)}: {text}"
    yield from tls_words.warned(settings, source)


def explanation(settings: Settings) -> Iterator[str]:
    """Yield the explanation line by line, without the table of users."""
    servers = ", ".join(str(server) for server in settings.cluster.bootstrap_servers)
    name = f" {settings.cluster.name}" if settings.cluster.name else ""
    yield f"Cluster{name}: brokers are first looked for at {servers}."
    yield from tls_words.of_cluster(settings)
    yield from tls_words.of_identity(settings)
    for listener in settings.listeners:
        yield from _listener(listener)
        yield from tls_words.of_listener(listener)
        yield from _proxies(listener)
    scheme = "http" if settings.admin.tls is None else "https"
    yield f"Health and metrics: {scheme}://{settings.admin.bind}/livez, /readyz, /metrics."
    if settings.cluster.proxy_protocol:
        yield "Each connection to a broker begins with a PROXY header (version 2), which names the client's address:"
        yield "  Kafka reads none, so a proxy before the brokers has to."
    yield "Brokers see all clients at this gateway's address. If they limit connections by address"
    yield "  (max.connections.per.ip, connection_creation_rate), raise that limit, and limit users here (limits)."
    yield from _quotas(settings.to_quotas())
    if settings.quotas.runtime_changes == "runtime_wins":
        yield "Changes made while gateways run go above this file: pidgate quotas diff shows them."
    yield from _harmed_clients(settings.to_quotas())
    yield from _memory(settings)


def _harmed_clients(quotas: Quotas) -> Iterator[str]:
    """Yield the client libraries to upgrade before anything is refused."""
    anybody = (_ANYBODY, *quotas.users)
    if any(resolve(quotas, user).enforces for user in anybody):
        yield "Client libraries that a refusal harms (docs/reference/clients.md):"
        yield from (f"  {line}." for line in client_faults.in_words())


def _memory(settings: Settings) -> Iterator[str]:
    """Yield the state that survives a restart, and the effect of a start without it."""
    events = settings.events
    if events.enabled:
        kept = units.show_duration(events.retention_ms)
        sasl = settings.own_client
        as_whom = "" if sasl is None else f", written as {sasl.username} ({sasl.mechanism})"
        yield f"Every decision is an event on the topic {events.topic}, kept for {kept}{as_whom}."
        yield "  All gateways of the cluster that use this topic hold each user to one quota together."
    if settings.state_dir is not None:
        yield f"The state is also kept in the directory {settings.state_dir}."
    if not events.enabled and settings.state_dir is None:
        yield "Nothing is remembered over a restart: each start is a cold one."
    ids = settings.quotas.producer_ids
    if ids.grace_ms:
        grace = units.show_duration(ids.grace_ms)
        yield f"After a cold start quotas are in force from {grace} on: until then new ids pass uncharged (grace),"
        yield "  10 times a user's rate at most. A rate of 0 is in force from the first moment."
        yield "  To enforce at once: pidgate quotas grace --all --end"
    else:
        yield "Quotas are in force from the start: after a cold start every running producer is charged as a new"
        yield "  one (grace: 0s)."


def _proxies(listener: ListenerSettings) -> Iterator[str]:
    if listener.proxy_protocol_from:
        proxies = ", ".join(map(str, listener.proxy_protocol_from))
        yield f"  From {proxies} each connection has to begin with a PROXY header (version 2). Its address counts."


def _listener(listener: ListenerSettings) -> Iterator[str]:
    ports = NodePorts(listener)
    name = f"Listener {listener.name}"
    if listener.only_node is not None:
        shown = units.Address(*ports.advertised_address(listener.only_node))
        other = units.Address(*ports.advertised_address(listener.only_node + 1))
        yield f"{name}: represents broker {listener.only_node} alone, at {listener.bind}, advertised as {shown}."
        yield f"  Other brokers are advertised, but not listened for: broker {listener.only_node + 1} as {other}."
        return
    yield f"{name}: clients bootstrap at {listener.bind}."
    if listener.sni is not None:
        shown = units.Address(*ports.advertised_address(0))
        yield f"  All brokers are at this port, distinguished by name (SNI): broker 0 is advertised as {shown}."
        return
    if not listener.node_ids:
        shown = units.Address(*ports.advertised_address(0))
        yield f"  Broker n has port {listener.first_node_port} + n: broker 0 is shown to clients as {shown}."
    for node_id in listener.node_ids[:_LISTED_NODES]:
        shown = units.Address(*ports.advertised_address(node_id))
        yield f"  Broker {node_id} has port {ports.port_of(node_id)}, shown to clients as {shown}."
    if len(listener.node_ids) > _LISTED_NODES:
        yield f"  ... and {len(listener.node_ids) - _LISTED_NODES} brokers more, in this order."


def _quotas(quotas: Quotas) -> Iterator[str]:
    ids = quotas.producer_ids
    remember, throttle = units.show_duration(ids.remember_ms), units.show_duration(ids.max_throttle_ms)
    if quotas.mode is Mode.ENFORCE:
        yield "Mode enforce: a user above the quota is refused until it has tokens again."
        exempt = [shown(user) for user in quotas.users if resolve(quotas, user).exempt]
        if exempt:
            yield f"  But not {', '.join(exempt)} (exempt), in any mode."
    else:
        yield "Mode observe: everything is counted and shown, nothing refused (unless a user says enforce)."
    yield f"A used id is free of charge for {remember}; one refusal holds a client {throttle} at most."
    if ids.transactional is Mode.OBSERVE:
        yield "Transactional producers are counted, never refused (producer_ids.transactional: observe)."
    if quotas.cluster_rate_milli is not None:
        ceiling = rate_in_words(quotas.cluster_rate_milli, ids)
        yield f"All users together: {ceiling}."
    default = resolve(quotas, _ANYBODY)
    yield f"Any user not named: {quota_in_words(default, ids)}."
    yield from byte_rates_in_words(quotas.bytes)


def quota_in_words(quota: EffectiveQuota, ids: ProducerIdSettings) -> str:
    """Describe a quota, for example "100 new producer ids per 1h, at most 201 in any hour"."""
    if quota.exempt:
        return "exempt: counted, never charged or refused"
    rate = "no limit" if quota.rate_milli is None else rate_in_words(quota.rate_milli, ids)
    if not quota.states_rate_milli:
        return rate
    states, window = units.show_milli(quota.states_rate_milli), units.show_duration(ids.window_ms)
    return f"{rate}, {states} new producer states per {window}"


def rate_in_words(rate_milli: int, ids: ProducerIdSettings) -> str:
    """Describe a rate in thousandths of an id per window, as quota_in_words does."""
    if rate_milli == 0:
        return "blocked: every new producer id is refused"
    # (1 + burst) x rate + 1: the bucket starts full, and its balance may end just below 0.
    at_most = int((1 + ids.burst) * rate_milli / 1_000) + 1
    window = units.show_duration(ids.window_ms)
    first = _ONE_OF.get(ids.window_ms, window)
    noun = "id" if rate_milli == 1_000 else "ids"
    rate = units.show_milli(rate_milli)
    return f"{rate} new producer {noun} per {window}, at most {at_most:,} in any {first}"


def _print_users(quotas: Quotas) -> None:
    if not quotas.users:
        return
    # rich takes a tenth of a second to import.
    from pidgate.console import plain_console, print_table

    accounts: dict[User, str] = {}
    for user in quotas.users:
        parts = client_accounts(quotas, user).values()
        accounts |= {part: shown(part) for part in parts}
        accounts[user] = f"{shown(user)} (other client ids)" if parts else shown(user)
    rows = [
        (name, quota_in_words(quota, quotas.producer_ids), str(quota.mode))
        for account, name in accounts.items()
        for quota in (resolve(quotas, account),)
    ]
    print_table(plain_console(), ("user", "quota", "mode"), rows, title="Users")


def byte_rates_in_words(quotas: ByteQuotas) -> Iterator[str]:
    """Yield the byte rates in Kafka's order of precedence (KIP-13's eight levels)."""
    if not quotas.rates:
        return
    window_s = (quotas.samples - 1) * quotas.sample_ms / 1000
    yield f"Bytes a second, over all brokers behind this gateway; {window_s:g} s worth may pass at once:"
    for entity in sorted(quotas.rates, key=_byte_level):
        yield f"  {_byte_entity(entity)}: {_byte_rates(quotas.rates[entity])}"


def _byte_level(entity: ByteEntity) -> tuple[int, bool, str, str]:
    """Sort key: named users, the default user, client ids alone; within each the more exact first."""
    user, client_id = entity
    rank = 2 if user is None else 1 if user == DEFAULT else 0
    return rank, client_id is None, user or "", client_id or "\U0010ffff"


def _byte_entity(entity: ByteEntity) -> str:
    user, client_id = entity
    of_client = "each other client id" if client_id == DEFAULT else f"client id {escaped(client_id or '')}"
    if user is None:
        return f"{of_client}, all users together"
    of_user = "each user not named" if user == DEFAULT else f"user {shown(user)}"
    return f"{of_user}, all client ids together" if client_id is None else f"{of_user}, {of_client}"


def _byte_rates(rates: ByteRates) -> str:
    found = (("produces", rates.producer_byte_rate), ("fetches", rates.consumer_byte_rate))
    return ", ".join(f"{what} {units.show_size(rate)}/s" for what, rate in found if rate is not None)
