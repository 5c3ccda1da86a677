"""`pidgate promote alice`: replay alice's quota on the recorded time, and enforce it on confirmation.

Exit code 0: shown, and switched if confirmed; 1: the switch failed; 2: wrong usage, or the events cannot be
read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from fractions import Fraction
from pathlib import Path
from typing import Final

from pidgate import units
from pidgate.cli import kafka_login, quota_change
from pidgate.cli.arrivals import Balance, History, NewId, outcomes
from pidgate.cli.options import USAGE_ERROR, ModeOptions, PromoteOptions
from pidgate.events.definitions import ConfigEvent
from pidgate.events.redaction import UserNames
from pidgate.gateway.clock import wall_ms
from pidgate.gateway.config import loading
from pidgate.gateway.config.loading import ConfigError, Settings
from pidgate.gateway.config.source import option_value
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.quota.entities import EffectiveQuota, resolve, shown
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.token_bucket import GIVES_UP_AFTER_MS, Outcome
from pidgate.units import about_duration, moment, printable
from pidgate.who.reading import CannotRead, read

SHOWN: Final = 0
MOST_PLACES: Final = 10
HOUR_MS: Final = 3_600_000


def promote(options: PromoteOptions) -> int:
    """Show the replay, ask, switch; return the exit code."""
    try:
        settings = _settings(options.config)
        since_ms = option_value("--since", units.duration_ms, options.since)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    if not settings.events.enabled:
        print(
            "pidgate promote: events.enabled is false, so no arrivals are recorded. See "
            "pidgate_producer_ids_would_refuse_total in /metrics, then: "
            f"pidgate mode enforce --user {shown(options.user)}",
            file=sys.stderr,
        )
        return USAGE_ERROR
    now_ms = wall_ms()
    try:
        history = asyncio.run(_history(settings, options.user, now_ms - since_ms, now_ms))
    except CannotRead as error:
        kafka = OwnClient.from_settings(settings)
        print(f"pidgate promote: {kafka_login.explained(error, kafka, settings)}", file=sys.stderr)
        return USAGE_ERROR
    for line in in_words(options.user, settings, history, since_ms):
        print(line)
    if not options.yes and not _is_confirmed(options.user):
        print("Nothing was changed.")
        return SHOWN
    return _enforce(options)


def _settings(file: Path | None) -> Settings:
    if file is None:
        raise ConfigError.at("--config", "is missing; name the gateway's file")
    return loading.load(file)


async def _history(settings: Settings, user: str, from_ms: int, now_ms: int) -> History:
    history = History(UserNames(settings.events.redact).in_events(user), from_ms)
    kafka = OwnClient.from_settings(settings)
    await read(kafka, settings.events.topic, from_ms, now_ms, lambda _span: None, history.add_records)
    return history


# ---- the replay ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Replayed:
    """Outcomes of a user's new ids: in total, by hour, and by client id and address."""

    all: Outcome = field(default_factory=Outcome)
    by_hour: dict[int, Outcome] = field(default_factory=dict)
    by_place: dict[tuple[str, str], Outcome] = field(default_factory=dict)


def replay(
    ids: Sequence[NewId], rate_milli: int | None, settings: ProducerIdSettings, balance: Balance | None
) -> Replayed:
    """Replay ids in order of time (arrivals.outcomes), and sum the outcomes."""
    found = Replayed()
    for new, outcome in zip(ids, outcomes(ids, rate_milli, settings, balance), strict=True):
        found.all.add(outcome)
        found.by_hour.setdefault(new.at_ms // HOUR_MS * HOUR_MS, Outcome()).add(outcome)
        found.by_place.setdefault((new.client_id, new.address), Outcome()).add(outcome)
    return found


# ---- in words ------------------------------------------------------------------------------------------


def in_words(
    user: str, settings: Settings, history: History, since_ms: int, zone: tzinfo | None = None
) -> Iterator[str]:
    """Yield the quota, the total, and the refusals by hour and by place. `zone` None is the machine's."""
    in_events = UserNames(settings.events.redact).in_events(user)
    quotas, where = quotas_now(settings, history.config, user, in_events)
    quota, ids = resolve(quotas, user), quotas.producer_ids
    span = units.show_duration(since_ms)
    yield f"User {shown(user)}, quota {_quota(quota, ids)} ({where})."
    if quota.enforces:
        yield f"{shown(user)} is enforced already."
    if history.refused:
        yield f"It was enforced in the last {span}, too, with {history.refused:,} recorded refusals."
    outcome = replay(history.new_ids(ids.remember_ms), quota.rate_milli, ids, history.first)
    yield f"In the last {span}: {_sum(outcome.all, len(history.gateways))}"
    if outcome.all.refused:
        yield _waits(outcome.all)
    yield from _by_hour(outcome, zone)
    yield from _by_place(outcome)
    if history.unreadable:
        yield f"{history.unreadable:,} events could not be read: another version wrote them."


def quotas_now(
    settings: Settings, newest: ConfigEvent | None, user: str, in_events: str
) -> tuple[Quotas, str]:
    """Return the quotas in force for the user, and their source: the newest config event, else the file."""
    if newest is None:
        return settings.to_quotas(), "as the file says"
    found = next((quota for quota in newest.quotas if quota.user == in_events), None)
    own = UserQuota()
    if found is not None:
        own = UserQuota(found.rate_milli, None if found.mode is None else Mode(found.mode), found.exempt)
    ids = ProducerIdSettings(
        window_ms=newest.window_ms,
        burst=Fraction(str(newest.burst)),
        remember_ms=newest.remember_ms,
        layers=newest.layers,
        transactional=Mode(newest.transactional),
    )
    quotas = Quotas(
        mode=Mode(newest.mode),
        producer_ids=ids,
        default=UserQuota(newest.default_rate_milli),
        users={user: own},
    )
    return quotas, f"as {printable(newest.gateway_id)} told last"


def _quota(quota: EffectiveQuota, ids: ProducerIdSettings) -> str:
    if quota.exempt:
        return "exempt: nothing of it is refused in any mode"
    if quota.rate_milli is None:
        return "no limit: enforcing refuses nothing"
    if quota.rate_milli == 0:
        return "blocked: enforcing refuses every new producer id"
    return f"{units.show_milli(quota.rate_milli)} new producer ids per {units.show_duration(ids.window_ms)}"


def _sum(outcome: Outcome, gateways: int) -> str:
    if not outcome.new_ids:
        return "no new producer ids, so this quota would have refused none."
    through = f" through {gateways} gateways" if gateways > 1 else ""
    share = 100 * outcome.refused / outcome.new_ids
    return (
        f"{outcome.new_ids:,} new producer ids{through}; this quota would have refused {outcome.refused:,} of them "
        f"at first ({share:.0f} %)."
    )


def _waits(outcome: Outcome) -> str:
    most = about_duration(GIVES_UP_AFTER_MS)
    if not outcome.gave_up:
        return (
            f"All of these would have been admitted after {about_duration(outcome.longest_wait_ms)} at most."
        )
    return f"{outcome.gave_up:,} would have waited for {most} or more, after which Java producers give up."


def _by_hour(outcome: Replayed, zone: tzinfo | None) -> Iterator[str]:
    refused = {hour: of for hour, of in sorted(outcome.by_hour.items()) if of.refused}
    if not refused:
        return
    yield f"  {'hour':<18}{_head()}"
    for hour_ms, of in refused.items():
        yield f"  {moment(hour_ms, zone):<18}{_cells(of)}"


def _by_place(outcome: Replayed) -> Iterator[str]:
    refused = [(place, of) for place, of in outcome.by_place.items() if of.refused]
    refused.sort(key=lambda item: -item[1].refused)
    if not refused:
        return
    names = {
        place: f"{printable(place[0]) or '(no client id)'}, {printable(place[1])}"
        for place, _ in refused[:MOST_PLACES]
    }
    title = "client id, address"
    width = max(map(len, (title, *names.values())))
    yield f"  {title:<{width}}{_head()}"
    for place, of in refused[:MOST_PLACES]:
        yield f"  {names[place]:<{width}}{_cells(of)}"
    if len(refused) > MOST_PLACES:
        yield f"  and {len(refused) - MOST_PLACES} places more"


def _head() -> str:
    return f"{'new ids':>10}{'refused':>10}{'gave up':>10}{'longest wait':>14}"


def _cells(of: Outcome) -> str:
    wait = about_duration(of.longest_wait_ms)
    return f"{of.new_ids:>10,}{of.refused:>10,}{of.gave_up:>10,}{wait:>14}"


# ---- switching -----------------------------------------------------------------------------------------


def _is_confirmed(user: str) -> bool:
    try:
        return input(f"Type {user} to enforce its quota from now on: ").strip() == user
    except EOFError:
        print()
        return False


def _enforce(options: PromoteOptions) -> int:
    done = quota_change.mode(
        ModeOptions(
            to="enforce",
            user=options.user,
            config=options.config,
            admin=options.admin,
            token_file=options.token_file,
            ca_file=options.ca_file,
        )
    )
    if done != SHOWN:
        print(
            f"{shown(options.user)} is not enforced. In the gateway's file: "
            f"quotas.users.{shown(options.user)}.mode: enforce",
            file=sys.stderr,
        )
    return done
