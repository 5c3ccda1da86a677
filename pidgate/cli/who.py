"""`pidgate who`: users that create new producer ids, from the events topic. Exit code 2: it could not be
read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pidgate import units
from pidgate.cli import kafka_login
from pidgate.cli.admin_client import BadUsage, Failed, gateways
from pidgate.cli.options import USAGE_ERROR, WhoOptions
from pidgate.console import plain_console
from pidgate.events.redaction import UserNames
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError, Settings
from pidgate.gateway.config.source import option_value
from pidgate.gateway.topics.follower import EventRecord
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.entities import shown
from pidgate.quota.settings import Quotas
from pidgate.who.findings import Finding, findings
from pidgate.who.intake import Intake
from pidgate.who.painting import picture_of
from pidgate.who.picture import Picture, UserPicture
from pidgate.who.reading import CannotRead, read
from pidgate.who.report import report
from pidgate.who.span import Span
from pidgate.who.table import show
from pidgate.who.tally import Tally

SHOWN: Final = 0
_PROGRESS_EVERY: Final = 50_000


def who(options: WhoOptions) -> int:
    """Read the topic, print, return the exit code."""
    try:
        settings = _settings(options)
        since_ms = option_value("--since", units.duration_ms, options.since)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    try:
        picture = (
            _in_memory(options, since_ms) if settings is None else _on_topic(settings, options, since_ms)
        )
    except (ConfigError, BadUsage, Failed) as error:
        print(f"pidgate who: {error}", file=sys.stderr)
        return USAGE_ERROR
    users = picture.users[: options.top]
    found = {user.user: findings(user, picture.window) for user in users}
    if options.as_json:
        print(json.dumps(report(picture, users, found), indent=2))
    else:
        _print(picture, users, found, options)
    return SHOWN


def _settings(options: WhoOptions) -> Settings | None:
    """Return the settings of the topic; None: a gateway is asked."""
    if options.admin:
        return None
    if options.config is not None and options.bootstrap_servers is not None:
        raise ConfigError.at("--bootstrap-servers", "does not go with --config; leave one of them out")
    if options.config is not None:
        return loading.load(options.config)
    if options.bootstrap_servers is None:
        text = (
            "is missing; name the gateway's file, the brokers with --bootstrap-servers host:port, or a running "
            "gateway with --admin host:port"
        )
        raise ConfigError.at("--config", text)
    return loading.from_options(options.bootstrap_servers)


def _in_memory(options: WhoOptions, since_ms: int) -> Picture:
    """Return what the gateways of --admin remember. Raises BadUsage, Failed."""
    answers = [gateway.get("/v1/events", since_ms=since_ms) for gateway in gateways(options)]
    now_ms = max(answer["wall_ms"] for answer in answers)
    from_ms = max(now_ms - since_ms, min(answer["whole_from_wall_ms"] for answer in answers))
    whole_from_ms = max(from_ms, *(answer["whole_from_wall_ms"] for answer in answers))
    span = Span(from_ms, now_ms, whole_from_ms, sum(len(answer["events"]) for answer in answers))
    intake = Intake(Tally(options.user), span)
    for number, answer in enumerate(answers):
        intake.take(
            EventRecord(number, offset, at_ms, json.dumps(event, separators=(",", ":")).encode())
            for offset, (at_ms, event) in enumerate(answer["events"])
        )
    where = "memory of " + ", ".join(answer["gateway"] for answer in answers)
    return picture_of(intake.tally, where, span, now_ms - since_ms, intake.unreadable, None)


def _on_topic(settings: Settings, options: WhoOptions, since_ms: int) -> Picture:
    """Return what the topic holds. Raises ConfigError, Failed."""
    kafka = kafka_login.own_client(settings, options.kafka_config)
    try:
        return asyncio.run(_picture(kafka, settings, options, since_ms))
    except CannotRead as error:
        raise Failed(kafka_login.explained(error, kafka, settings)) from error


async def _picture(kafka: OwnClient, settings: Settings, options: WhoOptions, since_ms: int) -> Picture:
    redact = settings.events.redact
    only_user = None if options.user is None else UserNames(redact).in_events(options.user)
    now_ms = wall_ms()
    topic = options.topic or settings.events.topic
    tally = Tally(only_user)
    spans: list[Span] = []
    intakes: list[Intake] = []

    def on_span(span: Span) -> None:
        spans.append(span)
        intakes.append(Intake(tally, span))

    def on_records(records: list[EventRecord]) -> None:
        intakes[0].take(records)
        progress.show()

    progress = _Progress(tally, spans)
    await read(kafka, topic, now_ms - since_ms, now_ms, on_span, on_records)
    progress.over()
    quotas = None if options.config is None else _as_in_events(settings.to_quotas(), UserNames(redact))
    return picture_of(tally, topic, spans[0], now_ms - since_ms, intakes[0].unreadable, quotas)


def _as_in_events(quotas: Quotas, names: UserNames) -> Quotas:
    """Return the quotas with users named as in events: hashed where user names are redacted."""
    return replace(quotas, users={names.in_events(user): quota for user, quota in quotas.users.items()})


class _Progress:
    """Progress of reading, on a terminal."""

    def __init__(self, tally: Tally, spans: list[Span]) -> None:
        self._tally = tally
        self._spans = spans
        self._said = 0

    def show(self) -> None:
        events = self._tally.events
        if events - self._said >= _PROGRESS_EVERY and sys.stderr.isatty():
            self._said = events
            print(f"\r{events:,} of about {self._spans[0].records:,} events", end="", file=sys.stderr)

    def over(self) -> None:
        if self._said:
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)


def _print(
    picture: Picture,
    users: tuple[UserPicture, ...],
    found: Mapping[str, list[Finding]],
    options: WhoOptions,
) -> None:
    console = plain_console()
    show(console, picture, users, found)
    if not users:
        whose = "" if options.user is None else f" of user {shown(options.user)}"
        where = picture.topic if options.admin else f"topic {picture.topic}"
        span = units.show_duration(picture.window.to_ms - picture.window.given_from_ms)
        console.print(f"No producer ids{whose} in the last {span} in {where}.")
