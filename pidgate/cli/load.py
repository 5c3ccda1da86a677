"""`pidgate load`: synthetic producers against a gateway or a broker.

Exit code 0: sent and reported; 1: nothing could be sent; 2: an option is wrong, or the topic is not there.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from pidgate import units
from pidgate.cli.options import USAGE_ERROR, LoadOptions
from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError
from pidgate.gateway.config.password_file import CredentialsUnreadable, secret_in
from pidgate.gateway.config.source import dotted, option_value
from pidgate.gateway.config.tls_settings import ClusterTlsSettings
from pidgate.gateway.tls.contexts import TlsUnusable, client_context, pinned_context
from pidgate.load.plan import MOST_BATCH_BYTES, RECORD_OVERHEAD_BYTES, Address, Kind, Login, Plan
from pidgate.load.running import Result, run

SENT: Final = 0
NOTHING_SENT: Final = 1

_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_ANYWHERE: Final = frozenset(("0.0.0.0", "::", ""))
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def load(options: LoadOptions) -> int:
    """Send, print the report, return the exit code."""
    try:
        plan = plan_of(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    from pidgate.load.cluster import TopicMissing
    from pidgate.load.pacing import new_event_loop
    from pidgate.protocol.errors import KafkaProtocolError
    from pidgate.protocol.logins import LoginRefused

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            result = runner.run(_until_stopped(plan))
    except TopicMissing as error:
        print(f"pidgate load: {error}", file=sys.stderr)
        return USAGE_ERROR
    except LoginRefused as error:
        print(f"pidgate load: {error}", file=sys.stderr)
        return NOTHING_SENT
    except (OSError, KafkaProtocolError) as error:
        print(f"pidgate load: nothing could be sent: {error}", file=sys.stderr)
        return NOTHING_SENT
    _report(result, as_json=options.as_json)
    return SENT if any(tally.requests for tally in result.tallies.values()) else NOTHING_SENT


async def _until_stopped(plan: Plan) -> Result:
    from pidgate.load.progress import progress

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with progress(plan) as show:
        return await run(plan, show, stop)


def _report(result: Result, *, as_json: bool) -> None:
    from pidgate.cli.terminal import plain_console
    from pidgate.load import report

    if as_json:
        print(json.dumps(report.report(result), indent=2))
        return
    report.show(plain_console(), result)


def plan_of(options: LoadOptions) -> Plan:
    """Return the plan that the options mean. Raises ConfigError naming the option."""
    counts = {
        Kind.WELL_BEHAVED: options.producers,
        Kind.CRASH_LOOPING: options.crash_loops,
        Kind.ID_PER_BATCH: options.id_per_batch,
        Kind.NEW_ON_ERROR: options.new_on_error,
        Kind.TRANSACTIONAL: options.transactional,
    }
    if not any(counts.values()):
        counts[Kind.WELL_BEHAVED] = 1
    if _TOPIC.fullmatch(options.topic) is None:
        raise ConfigError.at("--topic", f"{options.topic!r} is not a topic's name")
    if options.partitions is not None and not options.create_topic:
        raise ConfigError.at(
            "--partitions", "is for a topic that is made; add --create-topic, or leave it out"
        )
    if options.acks not in _ACKS:
        raise ConfigError.at(
            "--acks", f"{options.acks!r}; write all or 1 (with 0 there is no answer to measure)"
        )
    plan = Plan(
        bootstrap=_bootstrap(options),
        topic=options.topic,
        counts=counts,
        rates_per_s=_rates(options, counts),
        duration_s=_seconds("--duration", options.duration),
        record_bytes=option_value("--record-size", units.size_bytes, options.record_size),
        records_per_batch=options.records_per_batch,
        acks=_ACKS[options.acks],
        seed=options.seed,
        client_id=options.client_id,
        login=_login(options),
        tls=_tls(options),
        create_topic=options.create_topic,
        partitions=options.partitions or 1,
        delivery_timeout_s=_seconds("--delivery-timeout", options.delivery_timeout),
        drain_s=_seconds("--drain", options.drain, least_s=0.0),
    )
    if (plan.record_bytes + RECORD_OVERHEAD_BYTES) * plan.records_per_batch > MOST_BATCH_BYTES:
        raise ConfigError.at("--record-size", f"a batch is above {units.show_size(MOST_BATCH_BYTES)}")
    return plan


def _bootstrap(options: LoadOptions) -> tuple[Address, ...]:
    if options.config is not None and options.bootstrap_servers is not None:
        raise ConfigError.at("--bootstrap-servers", "does not go with --config; leave one of them out")
    if options.config is not None:
        listener = loading.load(options.config).listeners[0]
        host = "127.0.0.1" if listener.bind_host in _ANYWHERE else listener.bind_host
        return ((host, listener.bind_port),)
    if options.bootstrap_servers is None:
        text = "is missing; name a gateway or broker, or the gateway's file with --config FILE"
        raise ConfigError.at("--bootstrap-servers", text)
    servers = options.bootstrap_servers.split(",")
    return tuple(option_value("--bootstrap-servers", units.address, server.strip()) for server in servers)


def _tls(options: LoadOptions) -> ssl.SSLContext | None:
    """Return the TLS context of the options, None without. Raises ConfigError naming the option, or the file's key."""
    wanted = options.tls or options.ca_file is not None
    for option, file in (("--cert-file", options.cert_file), ("--key-file", options.key_file)):
        if file is not None and not (wanted or options.config):
            raise ConfigError.at(option, "is for TLS; add --tls, or --ca-file")
    if not options.verify_hostname and not wanted:
        raise ConfigError.at("--no-verify-hostname", "is for TLS; add --tls, or --ca-file")
    if options.key_file is not None and options.cert_file is None:
        raise ConfigError.at("--key-file", "alone can be shown to nobody; add --cert-file")
    listener = None if options.config is None else loading.load(options.config).listeners[0].tls
    if not wanted and listener is None:
        return None
    files = {"ca_file": options.ca_file, "cert_file": options.cert_file, "key_file": options.key_file}
    given = {key: str(file) for key, file in files.items() if file is not None}
    tls = ClusterTlsSettings.model_validate({**given, "verify_hostname": options.verify_hostname})
    try:
        if wanted or listener is None:
            return client_context(tls, ())
        return pinned_context(listener.cert_file, ("listeners", 0, "tls"), tls)
    except TlsUnusable as error:
        is_option = len(error.path) == 1
        where = f"--{error.path[0]}".replace("_", "-") if is_option else dotted(error.path)
        raise ConfigError.at(where, error.text) from error


def _rates(options: LoadOptions, counts: Mapping[Kind, int]) -> dict[Kind, float]:
    if options.rate is not None and options.rate_each is not None:
        raise ConfigError.at("--rate-each", "does not go with --rate; leave one of them out")
    for option, rate in (("--rate", options.rate), ("--rate-each", options.rate_each)):
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise ConfigError.at(option, f"{rate:g} is not a rate above 0")
    of_kind = _rates_of_kinds(options.rate_of or (), counts)
    others = sum(count for kind, count in counts.items() if kind not in of_kind)
    each = options.rate_each or (10.0 if options.rate is None else options.rate / max(others, 1))
    return {kind: of_kind.get(kind, each * count) for kind, count in counts.items() if count}


def _rates_of_kinds(given: Sequence[str], counts: Mapping[Kind, int]) -> dict[Kind, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in frozenset(Kind):
            raise ConfigError.at(
                "--rate-of", f"{text!r}; write for example crash-loops=5, of {', '.join(Kind)}"
            )
        try:
            rate = float(number)
        except ValueError:
            rate = 0.0
        if not (math.isfinite(rate) and rate > 0):
            raise ConfigError.at("--rate-of", f"{text!r}: {number or 'nothing'} is not a rate above 0")
        kind = Kind(name)
        if not counts[kind]:
            raise ConfigError.at("--rate-of", f"{text!r}, but there are none; add --{kind} N")
        found[kind] = rate
    return found


def _login(options: LoadOptions) -> Login | None:
    if options.user is None:
        for option, given in (("--password-file", options.password_file), ("--mechanism", options.mechanism)):
            if given is not None:
                raise ConfigError.at(option, "is for a login; add --user")
        return None
    if options.password_file is None:
        raise ConfigError.at(
            "--password-file", "is missing; a password on the command line could be read by others"
        )
    try:
        password = secret_in(options.password_file)
    except CredentialsUnreadable as error:
        raise ConfigError.at("--password-file", str(error)) from None
    match options.mechanism or "PLAIN":
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" as mechanism:
            return Login(options.user, password, mechanism)
    raise ConfigError.at("--mechanism", f"{options.mechanism!r}; write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")


def _seconds(option: str, text: str, *, least_s: float = 0.001) -> float:
    seconds = option_value(option, units.duration_ms, text) / 1_000
    if seconds < least_s:
        raise ConfigError.at(option, f"{text!r} is too short")
    return seconds
