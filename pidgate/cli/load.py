"""`pidgate load`: synthetic clients against a gateway or a broker.

Exit code 0: sent and reported; 1: nothing could be sent; 2: an option is wrong, or the topic does not exist.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final

from pidgate import units
from pidgate.cli import kafka_login
from pidgate.cli.options import USAGE_ERROR, LoadOptions
from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError
from pidgate.gateway.config.source import option_value
from pidgate.load.plan import (
    MOST_BATCH_BYTES,
    RECORD_OVERHEAD_BYTES,
    Address,
    Clients,
    Kind,
    Plan,
)
from pidgate.load.running import Result, run

SENT: Final = 0
NOTHING_SENT: Final = 1

_KINDS: Final = [kind for kind in Kind if kind is not Kind.FETCH]
_ANYWHERE: Final = frozenset(("0.0.0.0", "::", ""))
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CLIENTS: Final = re.compile(r"([a-z-]+)=(\d{1,6})(?:@(max|\d{1,9}(?:\.\d{1,9})?))?")
_BATCH: Final = re.compile(r"(\d{1,6})x(.+)")
_RATE_EACH_PER_S: Final = 10.0


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
        missing = "" if plan.login is not None else kafka_login.missing_login(plan.bootstrap, plan.tls)
        print(f"pidgate load: {missing or f'nothing could be sent: {error}'}", file=sys.stderr)
        return NOTHING_SENT
    _print_report(result, as_json=options.as_json)
    return SENT if any(tally.connections for tally in result.tallies.values()) else NOTHING_SENT


async def _until_stopped(plan: Plan) -> Result:
    from pidgate.load.progress import progress

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with progress(plan) as show:
        return await run(plan, stop, show=show)


def _print_report(result: Result, *, as_json: bool) -> None:
    from pidgate.console import plain_console
    from pidgate.load import report

    if as_json:
        print(json.dumps(report.report(result), indent=2))
        return
    report.show(plain_console(), result)


def plan_of(options: LoadOptions) -> Plan:
    """Return the plan for these options. Raises ConfigError naming the option."""
    if _TOPIC.fullmatch(options.topic) is None:
        raise ConfigError.at("--topic", f"{options.topic!r} is not a topic's name")
    settings, bootstrap = kafka_login.settings_in(options.kafka_config), _bootstrap(options)
    listener = None if options.config is None else loading.load(options.config).listeners[0].tls
    records, record_bytes = _batch(options.batch)
    return Plan(
        bootstrap=bootstrap,
        topic=options.topic,
        clients=_clients(options.clients or ()),
        duration_s=_seconds("--duration", options.duration),
        record_bytes=record_bytes,
        records_per_batch=records,
        client_id=options.client_id,
        login=kafka_login.login_of(settings),
        tls=kafka_login.tls_of(settings, None if listener is None else listener.cert_file),
        create_partitions=options.create_topic,
        delivery_timeout_s=_seconds("--delivery-timeout", options.delivery_timeout),
        drain_s=_seconds("--drain", options.drain, least_s=0.0),
    )


def _clients(given: Sequence[str]) -> dict[Kind, Clients]:
    found: dict[Kind, Clients] = {}
    for text in given or ("steady=1",):
        match = _CLIENTS.fullmatch(text)
        if match is None or match[1] not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise ConfigError.at("--clients", f"{text!r}; write KIND=N or KIND=N@RATE; kinds: {kinds}")
        kind, count = Kind(match[1]), int(match[2])
        if kind in found or not count:
            why = "a kind is given once" if kind in found else "there are none"
            raise ConfigError.at("--clients", f"{text!r}: {why}")
        rate_per_s = None if match[3] == "max" else float(match[3] or _RATE_EACH_PER_S * count)
        if rate_per_s == 0:
            raise ConfigError.at("--clients", f"{text!r}: the rate is 0")
        found[kind] = Clients(count, rate_per_s)
    return found


def _batch(text: str) -> tuple[int, int]:
    """Return the number of records, and the bytes of each record's value."""
    match = _BATCH.fullmatch(text)
    if match is None or not int(match[1]):
        raise ConfigError.at("--batch", f"{text!r}; write records x bytes of each: 1x1000, 10x1KiB")
    records, record_bytes = int(match[1]), option_value("--batch", units.size_bytes, match[2])
    if (record_bytes + RECORD_OVERHEAD_BYTES) * records > MOST_BATCH_BYTES:
        raise ConfigError.at("--batch", f"{text!r} is above {units.show_size(MOST_BATCH_BYTES)}")
    return records, record_bytes


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


def _seconds(option: str, text: str, *, least_s: float = 0.001) -> float:
    seconds = option_value(option, units.duration_ms, text) / 1_000
    if seconds < least_s:
        raise ConfigError.at(option, f"{text!r} is too short")
    return seconds
