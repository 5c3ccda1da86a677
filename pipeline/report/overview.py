"""The page's first screens: the findings, then everybody over time, then the table of all users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pidgate.events.patterns import pattern_words
from pidgate.pipeline.report import charts
from pidgate.pipeline.report.findings import Finding, Weight, findings, name_of, summary
from pidgate.pipeline.report.markup import Content, Html, joined, tag
from pidgate.pipeline.report.parts import Charts, Column, badge, not_run, section, table, tiles
from pidgate.pipeline.report.rows import Found, Recommendation, UserRates, UserRow
from pidgate.pipeline.report.words import NOTHING, count, moment, rate

_LABELS = {Weight.BAD: "Act", Weight.WARN: "Check", Weight.GOOD: "Good"}


def findings_section(found: Found) -> Html:
    pages = pages_of(found)
    items = [_finding(one, pages.get(one.user) if one.user is not None else None) for one in findings(found)]
    return section(
        "findings",
        "What was found",
        tag("p", summary(found), class_="lead"),
        tag("ol", *items, class_="findings"),
    )


def _finding(found: Finding, page: int | None) -> Html:
    action = tag("p", tag("strong", "What to do: "), found.action) if found.action else None
    link = (
        tag("p", tag("a", f"All about {name_of(found.user or '')}", href=f"#user-{page}"))
        if page is not None
        else None
    )
    return tag(
        "li",
        tag("h3", badge(_LABELS[found.weight], found.weight), " ", found.headline),
        tag("p", found.why),
        action,
        link,
        class_=found.weight,
    )


def overview_section(found: Found, drawn: Charts) -> Html:
    if "rates_users" not in found.has:
        return section("overview", "Overview", not_run("rates"))
    return section("overview", "Overview", tiles(*_tiles(found)), *_figures(found, drawn))


def _tiles(found: Found) -> Iterator[tuple[str, str, str]]:
    totals = found.totals
    if totals:
        yield "Users", count(totals.users), ""
        yield "New producer ids", count(totals.new_ids), f"{count(totals.ids)} ids in use"
        yield "Refusals", count(totals.refusals), f"{count(totals.refused_ids)} ids never let in"
        yield "Gave up", count(totals.gave_up), "ids refused and not seen again"
    if found.held:
        yield (
            "Ids held at most",
            count(found.held.most_ids),
            f"{moment(found.held.most_at_ms)}, by all brokers",
        )
        yield "States held at most", count(found.held.most_states), "one for each id and partition"
    lost, dead = found.lost, found.dead_letters
    yield "Events lost", NOTHING if lost is None else count(sum(lost.values())), _note(lost)
    yield "Dead letters", NOTHING if dead is None else count(sum(dead.values())), _note(dead)


def _note(counts: object) -> str:
    return "not known: pidgate pipeline ingest" if counts is None else ""


def _figures(found: Found, drawn: Charts) -> Iterator[Html]:
    times, held = found.times, found.held
    if times is not None:
        yield drawn.figure(
            charts.stacked(times.span, times.by_user, "new ids"),
            f"New producer ids per {times.span.step_words}",
            "Let in or not limited; refused ids are counted below. The greatest users have a colour of their own.",
        )
        if any(times.refusals.values):
            yield drawn.figure(
                charts.stacked(times.span, [times.refusals], "refusals"),
                f"Refusals per {times.span.step_words}",
                "A producer that waits its turn is refused more than once.",
            )
    if held is not None:
        yield drawn.figure(
            charts.stacked(held.span, held.by_user, "ids held"),
            "Producer ids whose state brokers hold",
            "An id is held for producer.id.expiration.ms (24 h by default) after its last batch, on each partition "
            "it wrote to, also when no more events come. This is what fills a broker's heap.",
        )


def users_section(found: Found) -> Html:
    if not found.users:
        return section("users", "Users", not_run("rates", "offenders", "recommend"))
    search = tag(
        "p",
        tag(
            "label",
            "Find a user, pattern or owner ",
            tag("input", type="search", id="search", autocomplete="off"),
        ),
        " ",
        tag("output", id="hits", for_="search"),
        class_="search",
    )
    shown = table(_columns(pages_of(found)), found.users, "All users", id_="all-users")
    return section("users", "Users", tag("p", _who(found)), search, shown)


def _who(found: Found) -> str:
    text = "The worst first."
    if found.pages < len(found.users):
        text += f" The first {count(found.pages)} have a page of their own; the rest is here alone (--users)."
    if found.users_left_out:
        text += (
            f" {count(found.users_left_out)} users with fewer new ids than all of these are left out; "
            f"results/rates_users has them."
        )
    return text


def pages_of(found: Found) -> dict[str, int]:
    """Return the number of the page of each user that has one."""
    return {user.user: n for n, user in enumerate(found.users[: found.pages])}


def user_link(user: str, pages: Mapping[str, int]) -> Content:
    """Return a user's name, as a link where the user has a page."""
    name = name_of(user)
    return tag("a", name, href=f"#user-{pages[user]}") if user in pages else name


def _columns(pages: Mapping[str, int]) -> Sequence[Column[UserRow]]:
    def of_rates(number: Callable[[UserRates], float | None]) -> Callable[[UserRow], str]:
        return lambda user: count(number(user.rates)) if user.rates else NOTHING

    def of_advice(per_window: Callable[[Recommendation], float | None]) -> Callable[[UserRow], str]:
        return lambda user: rate(per_window(user.recommendation)) if user.recommendation else NOTHING

    by_clock, at_once = (
        "most new ids within an hour of the clock",
        "most ids whose state brokers hold at once",
    )
    per_window = "producer_ids_rate per window"
    return (
        Column("User", lambda user: user_link(user.user, pages)),
        Column("Patterns", patterns_of),
        Column("New ids", of_rates(lambda one: one.new_ids), True),
        Column("Peak an hour", of_rates(lambda one: one.peak_new_ids_per_hour), True, by_clock),
        Column("Ids held", of_rates(lambda one: one.ids_held), True, at_once),
        Column("Refusals", of_rates(lambda one: one.refusals), True),
        Column("Rate today", of_advice(lambda one: one.current_rate), True, per_window),
        Column("Recommended", of_advice(lambda one: one.recommended_rate), True, per_window),
    )


def patterns_of(user: UserRow) -> Html:
    """A badge for each pattern, what harms first."""
    ordered = sorted(user.patterns, key=lambda one: (not one.harmful, -one.new_ids))
    badges = [badge(pattern_words(one.pattern).name, "bad" if one.harmful else "plain") for one in ordered]
    return joined(*(joined(" ", one) for one in badges))
