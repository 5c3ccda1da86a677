"""A page for each of the worst users: rates, patterns with their evidence, the recommended quota, clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report import charts
from pidgate.pipeline.report.findings import advice_sentence, name_of
from pidgate.pipeline.report.markup import Html, tag
from pidgate.pipeline.report.overview import patterns_of
from pidgate.pipeline.report.parts import Charts, Column, badge, not_run, table, tiles
from pidgate.pipeline.report.rows import (
    ClientRates,
    Found,
    PatternFound,
    Recommendation,
    Times,
    UserRates,
    UserRow,
)
from pidgate.pipeline.report.series import HOUR_MS, MINUTE_MS
from pidgate.pipeline.report.words import (
    count,
    duration,
    evidence,
    moment,
    rate,
    sentence,
    share,
)
from pidgate.units import counted

_CLIENT_COLUMNS: Sequence[Column[ClientRates]] = (
    Column("Client id", lambda one: one.client_id or "(none)"),
    Column("Ids", lambda one: count(one.ids), True),
    Column("New ids", lambda one: count(one.new_ids), True),
    Column("Peak an hour", lambda one: count(one.peak_new_ids_per_hour), True),
    Column("Requests", lambda one: count(one.requests), True),
    Column("Refusals", lambda one: count(one.refusals), True),
)


def user_pages(found: Found, drawn: Charts) -> Iterator[Html]:
    for n, user in enumerate(found.users[: found.pages]):
        yield _page(found, user, n, drawn)


def _page(found: Found, user: UserRow, number: int, drawn: Charts) -> Html:
    title = f"user-{number}-title"
    return tag(
        "section",
        tag("p", tag("a", "← all findings", href="#findings"), class_="back"),
        tag("h2", name_of(user.user), id=title),
        tag("p", patterns_of(user), _seen(user.rates)),
        tiles(*_tiles(user.rates)) if user.rates else not_run("rates"),
        _new_ids(found, user, drawn),
        tag("h3", "Why it opens ids"),
        [_pattern(one) for one in _worst_first(user)] if user.patterns else _no_pattern(found),
        tag("h3", "What its quota should be"),
        _recommendation(found, user, drawn),
        tag("h3", "Its clients"),
        table(_CLIENT_COLUMNS, user.clients, f"Clients of {name_of(user.user)}")
        if user.clients
        else not_run("rates"),
        id=f"user-{number}",
        class_="user",
        aria_labelledby=title,
    )


def _seen(rates: UserRates | None) -> str:
    return f" seen from {moment(rates.first_ms)} to {moment(rates.last_ms)}" if rates else ""


def _tiles(rates: UserRates) -> Iterator[tuple[str, str, str]]:
    yield "New ids", count(rates.new_ids), f"{count(rates.ids)} ids in use"
    yield (
        "Peak an hour",
        count(rates.peak_new_ids_per_hour),
        f"{count(rates.peak_new_ids_per_minute)} in a minute",
    )
    yield "Usual hour", count(rates.new_ids_per_hour_p50), f"p95 {count(rates.new_ids_per_hour_p95)}"
    yield "Life of an id", duration(rates.life_ms_p50), f"p95 {duration(rates.life_ms_p95)}"
    yield "Requests an id", count(rates.requests_per_id), _partitions(rates.partitions_per_id)
    yield "Ids held at most", count(rates.ids_held), f"{count(rates.states_held)} states"
    yield "Refusals", count(rates.refusals), f"{count(rates.gave_up)} ids gave up"
    yield "Waited", duration(rates.waited_ms_p50), f"p95 {duration(rates.waited_ms_p95)}"


def _partitions(each: float | None) -> str:
    return "" if each is None else counted(each, "partition")


def _new_ids(found: Found, user: UserRow, drawn: Charts) -> Html | None:
    times = found.times
    line = times.within_window.get(user.user) if times else None
    if times is None or line is None:
        return None
    advice = user.recommendation
    limit = advice.recommended_rate if advice and _compares(times, found.window_ms) else None
    unit, caption = _counted_over(times, found.window_ms)
    if limit is not None:
        caption += (
            " The dashed line is the recommended rate; a user that was quiet may bring a burst of one more window's "
            "worth at once."
        )
    return drawn.figure(charts.line_with_limit(times.span, line, unit, limit), unit.capitalize(), caption)


def _compares(times: Times, window_ms: int) -> bool:
    """Return whether the chart counts over a whole window, as the rate does."""
    return times.is_running or (window_ms == HOUR_MS and times.span.step_ms > HOUR_MS)


def _counted_over(times: Times, window_ms: int) -> tuple[str, str]:
    span = times.span
    if times.is_running and window_ms == span.step_ms:
        return f"new ids per {span.unit}", f"One value for each {span.step_words}, UTC."
    if times.is_running:
        return (
            f"new ids within {duration(window_ms)}",
            f"At each {span.step_words}: all of the {duration(window_ms)} before.",
        )
    if span.step_ms > HOUR_MS:
        return "new ids in an hour", f"The busiest hour of each {span.step_words}, UTC."
    return (
        f"new ids per {span.unit}",
        f"One value for each {'minute' if span.step_ms == MINUTE_MS else 'hour'}, UTC.",
    )


def _worst_first(user: UserRow) -> list[PatternFound]:
    return sorted(user.patterns, key=lambda one: (not one.harmful, -one.new_ids))


def _no_pattern(found: Found) -> Html:
    return (
        tag("p", "No pattern was found.", class_="empty")
        if "offenders" in found.has
        else not_run("offenders")
    )


def _pattern(found: PatternFound) -> Html:
    words = pattern_words(found.pattern)
    features = [evidence(name, value) for name, value in sorted((found.evidence or {}).items()) if value]
    shown = [(tag("dt", name), tag("dd", value)) for name, value in features]
    facts = [("client id", found.client_id), ("address", found.address)]
    origin = [(tag("dt", name), tag("dd", value)) for name, value in facts if value]
    look = "bad" if found.harmful else "plain"
    return tag(
        "div",
        tag("h4", badge("harmful" if found.harmful else "harmless", look), " ", words.name),
        tag("p", sentence(found.sentence)),
        tag("p", f"{counted(found.new_ids, 'new id')}, {share(found.share)} of all it opened."),
        tag("dl", origin, shown, class_="evidence") if origin or shown else None,
        tag("p", tag("strong", "What to do: "), words.remedy) if found.harmful and words.remedy else None,
        class_=f"pattern {look}",
    )


def _recommendation(found: Found, user: UserRow, drawn: Charts) -> Html:
    advice = user.recommendation
    if advice is None:
        return (
            not_run("recommend") if "recommendations" not in found.has else tag("p", "None.", class_="empty")
        )
    reasons = [tag("li", sentence(reason)) for reason in advice.reasons or ()]
    return tag(
        "div",
        tiles(*_rates(advice)),
        tag("p", advice_sentence(advice)),
        tag("ul", *reasons) if reasons else None,
        tag("p", "Its history is censored: a quota was enforced meanwhile.", class_="note")
        if advice.censored
        else None,
        drawn.figure(
            charts.candidates(user.candidates, advice.recommended_rate),
            "What other rates would have done",
            "Replayed through the gateway's own quota code, over the time kept back for judging.",
        )
        if len(user.candidates) > 1
        else None,
    )


def _rates(advice: Recommendation) -> Iterator[tuple[str, str, str]]:
    yield (
        "Rate today",
        rate(advice.current_rate),
        "new ids per window",
    )
    yield "Recommended", rate(advice.recommended_rate), _headroom(advice)
    if advice.rogue_ids_test is not None:
        let_in = count(advice.rogue_ids_admitted_test)
        yield "Harmful ids let in", let_in, f"of {count(advice.rogue_ids_test)} in the time kept back"
    if advice.healthy_refused_test is not None:
        yield "Healthy ids refused", count(advice.healthy_refused_test), "in the time kept back"
    if advice.naive_rate is not None:
        let_in = count(advice.naive_rogue_ids_admitted_test)
        yield "Maximum of history", count(advice.naive_rate), f"would let in {let_in} harmful ids"
    if advice.owner:
        yield "Owner", advice.owner, ""


def _headroom(advice: Recommendation) -> str:
    if advice.headroom is None or advice.recommended_rate is None:
        return "new ids per window"
    return f"{count(advice.headroom)} times the least safe rate"


def picker(found: Found) -> Html | None:
    """Return the control that goes to a user's page."""
    if not found.pages:
        return None
    options = [
        tag("option", name_of(user.user), value=f"user-{n}")
        for n, user in enumerate(found.users[: found.pages])
    ]
    return tag(
        "span",
        tag("label", "User", for_="picker"),
        " ",
        tag("select", tag("option", "choose …", value=""), *options, id="picker"),
        class_="picker",
    )
