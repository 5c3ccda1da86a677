"""`pidgate load`: synthetic producers against a gateway or a broker.

Exit code 0: sent and told; 1: nothing could be sent; 2: an option is wrong, or the topic is not there.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pidgate import units
from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError
from pidgate.gateway.config.source import Problem
from pidgate.load.plan import MOST_BATCH_BYTES, RECORD_OVERHEAD_BYTES, Address, Kind, Login, Plan
from pidgate.load.running import Result, run

SENT: Final = 0
NOTHING_SENT: Final = 1
USAGE_ERROR: Final = 2

_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_ANYWHERE: Final = frozenset(("0.0.0.0", "::", ""))
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
WIDTH_WITHOUT_TERMINAL: Final = 120


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line, durations and sizes as people write them."""

    topic: str
    counts: Mapping[Kind, int] = field(default_factory=dict)
    config: Path | None = None
    bootstrap_servers: str | None = None
    rate: float | None = None
    rate_each: float | None = None
    rate_of: tuple[str, ...] = ()
    duration: str = "10s"
    record_size: str = "1000"
    records_per_batch: int = 1
    acks: str = "all"
    seed: int = 1
    client_id: str = "pidgate-load"
    user: str | None = None
    password_file: Path | None = None
    mechanism: str | None = None
    create_topic: bool = False
    partitions: int | None = None
    delivery_timeout: str = "120s"
    drain: str = "5s"
    as_json: bool = False


def load(asked: Asked) -> int:
    """Send, tell, return the exit code."""
    try:
        plan = plan_of(asked)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    from pidgate.load.cluster import TopicMissing
    from pidgate.load.login import LoginRefused
    from pidgate.load.pacing import new_event_loop
    from pidgate.protocol.errors import KafkaProtocolError

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
    _tell(result, as_json=asked.as_json)
    return SENT if any(tally.requests for tally in result.tallies.values()) else NOTHING_SENT


async def _until_stopped(plan: Plan) -> Result:
    from pidgate.load.progress import progress

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with progress(plan) as show:
        return await run(plan, show, stop)


def _tell(result: Result, *, as_json: bool) -> None:
    from rich.console import Console

    from pidgate.load import report

    if as_json:
        print(json.dumps(report.report(result), indent=2))
        return
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    report.show(console, result)


def plan_of(asked: Asked) -> Plan:
    """The command line as a plan. Raises ConfigError naming the option."""
    counts = {kind: asked.counts.get(kind, 0) for kind in Kind}
    if not any(counts.values()):
        counts[Kind.WELL_BEHAVED] = 1
    if _TOPIC.fullmatch(asked.topic) is None:
        raise _wrong("--topic", f"{asked.topic!r} is not a topic's name")
    if asked.partitions is not None and not asked.create_topic:
        raise _wrong("--partitions", "is for a topic that is made; add --create-topic, or leave it out")
    if asked.acks not in _ACKS:
        raise _wrong("--acks", f"{asked.acks!r}; write all or 1 (with 0 there is no answer to measure)")
    plan = Plan(
        bootstrap=_bootstrap(asked),
        topic=asked.topic,
        counts=counts,
        rates_per_s=_rates(asked, counts),
        duration_s=_seconds("--duration", asked.duration),
        record_bytes=_size("--record-size", asked.record_size),
        records_per_batch=asked.records_per_batch,
        acks=_ACKS[asked.acks],
        seed=asked.seed,
        client_id=asked.client_id,
        login=_login(asked),
        create_topic=asked.create_topic,
        partitions=asked.partitions or 1,
        delivery_timeout_s=_seconds("--delivery-timeout", asked.delivery_timeout),
        drain_s=_seconds("--drain", asked.drain, least_s=0.0),
    )
    if (plan.record_bytes + RECORD_OVERHEAD_BYTES) * plan.records_per_batch > MOST_BATCH_BYTES:
        raise _wrong("--record-size", f"a batch is above {units.show_size(MOST_BATCH_BYTES)}")
    return plan


def _bootstrap(asked: Asked) -> tuple[Address, ...]:
    if asked.config is not None and asked.bootstrap_servers is not None:
        raise _wrong("--bootstrap-servers", "does not go with --config; leave one of them out")
    if asked.config is not None:
        listener = loading.load(asked.config).listeners[0]
        host = "127.0.0.1" if listener.bind_host in _ANYWHERE else listener.bind_host
        return ((host, listener.bind_port),)
    if asked.bootstrap_servers is None:
        text = "is missing; name a gateway or broker, or the gateway's file with --config FILE"
        raise _wrong("--bootstrap-servers", text)
    found = []
    for server in asked.bootstrap_servers.split(","):
        try:
            host, port = units.address(server.strip())
        except ValueError as error:
            raise _wrong("--bootstrap-servers", str(error)) from error
        found.append((host, port))
    return tuple(found)


def _rates(asked: Asked, counts: Mapping[Kind, int]) -> dict[Kind, float]:
    if asked.rate is not None and asked.rate_each is not None:
        raise _wrong("--rate-each", "does not go with --rate; leave one of them out")
    for option, rate in (("--rate", asked.rate), ("--rate-each", asked.rate_each)):
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise _wrong(option, f"{rate:g} is not a rate above 0")
    of_kind = _rates_of_kinds(asked.rate_of, counts)
    others = sum(count for kind, count in counts.items() if kind not in of_kind)
    each = asked.rate_each or (10.0 if asked.rate is None else asked.rate / max(others, 1))
    return {kind: of_kind.get(kind, each * count) for kind, count in counts.items() if count}


def _rates_of_kinds(given: tuple[str, ...], counts: Mapping[Kind, int]) -> dict[Kind, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in frozenset(Kind):
            raise _wrong("--rate-of", f"{text!r}; write for example crash-loops=5, of {', '.join(Kind)}")
        try:
            rate = float(number)
        except ValueError:
            rate = 0.0
        if not (math.isfinite(rate) and rate > 0):
            raise _wrong("--rate-of", f"{text!r}: {number or 'nothing'} is not a rate above 0")
        kind = Kind(name)
        if not counts[kind]:
            raise _wrong("--rate-of", f"{text!r}, but there are none; add --{kind} N")
        found[kind] = rate
    return found


def _login(asked: Asked) -> Login | None:
    if asked.user is None:
        for option, given in (("--password-file", asked.password_file), ("--mechanism", asked.mechanism)):
            if given is not None:
                raise _wrong(option, "is for a login; add --user")
        return None
    if asked.password_file is None:
        raise _wrong("--password-file", "is missing; a password on the command line could be read by others")
    try:
        # A newline at the end belongs to the editor, not to the password.
        password = asked.password_file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong("--password-file", str(error)) from error
    match asked.mechanism or "PLAIN":
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" as mechanism:
            return Login(asked.user, password, mechanism)
    raise _wrong("--mechanism", f"{asked.mechanism!r}; write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")


def _seconds(option: str, text: str, *, least_s: float = 0.001) -> float:
    try:
        seconds = units.duration_ms(text) / 1_000
    except ValueError as error:
        raise _wrong(option, str(error)) from error
    if seconds < least_s:
        raise _wrong(option, f"{text!r} is too short")
    return seconds


def _size(option: str, text: str) -> int:
    try:
        return units.size_bytes(int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise _wrong(option, str(error)) from error


def _wrong(option: str, text: str) -> ConfigError:
    return ConfigError([Problem(option, "", text)])
