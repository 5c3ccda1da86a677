"""`pidgate who` for people: a table of users, the findings of each, and the reliability of the numbers.

Knows rich. All text from clients has passed units.printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from pidgate import units
from pidgate.console import print_table
from pidgate.findings.patterns import HARMFUL, WASTEFUL
from pidgate.units import counted
from pidgate.who import words
from pidgate.who.bounded import Spread
from pidgate.who.coverage import Coverage
from pidgate.who.findings import Finding
from pidgate.who.libraries import libraries_of
from pidgate.who.picture import Named, Picture, QuotaShown, UserPicture

_SHOWN_NAMES: Final = 2
_SHOWN_SHARED: Final = 5
_LOUD: Final = HARMFUL | WASTEFUL
"""Findings with a remedy below them."""


def show(
    console: Console,
    picture: Picture,
    users: Sequence[UserPicture],
    findings: Mapping[str, Sequence[Finding]],
    zone: tzinfo | None = None,
) -> None:
    """Print all of it. The console must not interpret markup: names come from clients."""
    console.print(headline(picture, zone), soft_wrap=True)
    if users:
        _print_table(console, users)
        hidden = len(picture.users) - len(users)
        if hidden:
            console.print(f"and {counted(hidden, 'user')} more; --top shows more, --user one of them")
        console.print()
        for user in users:
            _print_findings(console, user, findings[user.user])
    for line in footer(picture, zone):
        console.print(line)


def headline(picture: Picture, zone: tzinfo | None) -> str:
    window = picture.window
    day_and_time = units.moment(window.from_ms, zone)
    cluster = f", cluster {units.printable(picture.cluster)}" if picture.cluster else ""
    return (
        f"New producer ids from {day_and_time} to {units.clock(window.to_ms, zone)}"
        f" ({counted(picture.events, 'event')} of {counted(len(picture.gateways), 'gateway')}{cluster})"
    )


def footer(picture: Picture, zone: tzinfo | None) -> Iterator[str]:
    """Yield lines about ids that passed the gateways, and about gaps in this picture."""
    if picture.coverage is not None:
        yield coverage_in_words(picture.coverage, zone)
    if picture.lost_events:
        worst = picture.lost[0].gateway_id
        of = f"most of {units.printable(worst)}" if len(picture.lost) > 1 else f"of {units.printable(worst)}"
        verb = "was" if picture.lost_events == 1 else "were"
        yield f"{counted(picture.lost_events, 'event')} {verb} lost (dropped by a gateway, {of})."
    if picture.unreadable:
        yield f"{counted(picture.unreadable, 'event')} could not be read: written by a newer gateway, or by others."
    if picture.users_beyond:
        yield f"{counted(picture.users_beyond, 'event')} of further users are left out: too many users."
    for shared in picture.shared_ids[:_SHOWN_SHARED]:
        users = units.listed([words.user(user) for user in shared.users])
        yield f"Producer id {shared.producer_id} is used by several users: {users}. One of them took it over."
    if len(picture.shared_ids) > _SHOWN_SHARED:
        yield f"{counted(len(picture.shared_ids) - _SHOWN_SHARED, 'id')} more are used by several users."
    yield from picture.notes


def coverage_in_words(coverage: Coverage, zone: tzinfo | None) -> str:
    """Return the share of ids that passed the gateways, in one or two sentences."""
    since = units.clock(coverage.since_ms, zone)
    if not coverage.missing:
        return f"All of the {counted(coverage.allocated, 'id')} allocated since {since} passed a gateway."
    if not coverage.around:
        return (
            f"{counted(coverage.missing, 'id')} of {coverage.allocated:,} allocated since {since} "
            f"{'was' if coverage.missing == 1 else 'were'} not seen; "
            "lost events or summed-up storms account for that."
        )
    percent = min(99.9, 100 * coverage.share)
    maybe = f" (and {coverage.hidden:,} more may not have)" if coverage.hidden else ""
    return (
        f"About {percent:.3g} % of the ids allocated since {since} passed the gateway; "
        f"{coverage.around:,} did not{maybe}: some producers bypass it."
    )


_COLUMNS: Final = ("user", "new ids", "from", "median (p90) per id", "quota")


def _print_table(console: Console, users: Sequence[UserPicture]) -> None:
    rows = [
        (words.user(user.user), _new_ids(user), _from(user), _per_id(user), _quota(user)) for user in users
    ]
    print_table(console, _COLUMNS, rows, right=("new ids",))


def _new_ids(user: UserPicture) -> str:
    lines = [f"{user.new_ids:,}"]
    if user.refused_ids:
        lines.append(f"{user.admitted_ids:,} in")
        lines.append(f"{user.never_admitted_ids:,} out")
    return "\n".join(lines)


def _from(user: UserPicture) -> str:
    lines = [
        _names("client", "clients", user.client_ids, units.printable),
        _names("", "", user.software, words.software),
        _names("", "addresses", user.addresses, units.printable),
    ]
    return "\n".join(line for line in lines if line)


def _names(one: str, more: str, named: Named, show: Callable[[str], str]) -> str:
    names = [show(name) for name, _ in named.top if name][:_SHOWN_NAMES]
    if not names:
        return ""
    rest = named.names - len(names)
    title = one if named.names == 1 else f"{named.names:,} {more}:" if more and rest else more
    listed = ", ".join(names) + (" ..." if rest > 0 else "")
    return f"{title} {listed}".strip()


def _per_id(user: UserPicture) -> str:
    lines = []
    if user.life_ms is not None:
        median, p90 = units.about_duration(user.life_ms.median), units.about_duration(user.life_ms.p90)
        lines.append(f"life {median} ({p90})")
    lines += [
        f"{name} {_two(spread)}"
        for name, spread in (("requests", user.requests), ("ids/connection", user.ids_per_connection))
        if spread is not None
    ]
    if user.partitions is not None and user.partitions.greatest > 1:
        lines.append(f"partitions {_two(user.partitions)}")
    if user.open_ids:
        lines.append(f"{user.open_ids:,} in use")
    if user.open_connections > user.open_ids:
        lines.append(f"{counted(user.open_connections, 'connection')} open")
    return "\n".join(lines)


def _two(spread: Spread) -> str:
    return f"{spread.median:,} ({spread.p90:,})"


def _quota(user: UserPicture) -> str:
    lines = ["unknown" if user.quota is None else quota_in_words(user.quota)]
    if user.refused_ids:
        lines.append(f"refused {user.refused_ids:,}")
    if user.would_refuse_ids:
        lines.append(f"would refuse {user.would_refuse_ids:,}")
    return "\n".join(lines)


def quota_in_words(quota: QuotaShown) -> str:
    """Return for example "100 per 1h" and below it "enforce"."""
    effective = quota.effective
    if effective.exempt:
        return "exempt"
    if effective.rate_milli is None:
        return "no limit"
    if effective.rate_milli == 0:
        return f"blocked\n{effective.mode}"
    rate, window = units.show_milli(effective.rate_milli), units.show_duration(quota.window_ms)
    return f"{rate} per {window}\n{effective.mode}"


def _print_findings(console: Console, user: UserPicture, findings: Sequence[Finding]) -> None:
    for finding in findings:
        style = "bold" if finding.kind in _LOUD else ""
        text = Text.assemble((words.user(user.user), "cyan"), ": ", (finding.text, style))
        console.print(text)
        if finding.kind in _LOUD:
            console.print(Padding(Text(f"-> {finding.remedy}", style="dim"), (0, 0, 0, 4)))
    for library in libraries_of(user):
        for sentence in library.sentences(is_refused=user.refused_ids > 0):
            console.print(Text.assemble((words.user(user.user), "cyan"), ": ", sentence))
