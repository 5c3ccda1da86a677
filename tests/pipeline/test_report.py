"""The report from result tables to the browser: read by queries, opened in a real Chromium."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from pidgate.events.definitions import DecisionEvent
from pidgate.pipeline import report
from pidgate.pipeline.cli import app
from pidgate.pipeline.commands.report import publish, write_report
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import BadOption, HistoryEmpty, TableUnreadable
from pidgate.pipeline.report.findings import findings, summary
from pidgate.pipeline.report.page import page as page_of
from pidgate.pipeline.report.reading import found as read
from pidgate.pipeline.report.reading import whole
from pidgate.pipeline.report.rows import Found
from pidgate.pipeline.report.words import count, share
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.tables import Tables
from tests.pipeline.studied import (
    CRASHING,
    HOSTILE,
    QUIET,
    REFUSED,
    REFUSED_CLIENT,
    ROGUE,
    USERS,
    burnt_ids,
    new_ids,
)
from tests.support.browsing import chromium
from tests.support.who_events import HOUR_MS

if TYPE_CHECKING:
    from pidgate.events.definitions import Event


PAGES = 5


@dataclass(frozen=True)
class Built:
    """One report of everything, for all tests here."""

    tables: Tables
    events: list[Event]
    found: Found
    path: Path


@pytest.fixture(scope="module")
def built(studied: tuple[Tables, list[Event]], tmp_path_factory: pytest.TempPathFactory) -> Built:
    tables, events = studied
    found = read(tables, pages=PAGES, made_ms=0)
    path = tmp_path_factory.mktemp("report") / "report.html"
    return Built(tables, events, found, Path(publish(tables, page_of(found), path)))


@pytest.fixture
def known(built: Built, tables: Tables) -> Tables:
    """Tables of which only `offenders` was run."""
    place = Path("results", "offenders")
    shutil.copytree(Path(built.tables.root, place), Path(tables.root, place))
    return tables


# Reading


def test_the_worst_users_come_first_and_only_so_many_get_a_page(built: Built) -> None:
    assert [user.user for user in built.found.users][:3] == [ROGUE, CRASHING, HOSTILE]
    assert {user.user for user in built.found.users} == set(USERS)
    assert built.found.pages == PAGES
    with_clients = [user.user for user in built.found.users if user.clients]
    assert with_clients == [user.user for user in built.found.users[:PAGES]]


def test_sums_are_those_of_the_history(built: Built) -> None:
    totals, times, brought = built.found.totals, built.found.times, new_ids(built.events)
    assert totals is not None
    assert times is not None

    assert (totals["users"], totals["new_ids"]) == (len(USERS), brought.total())
    assert (totals["refused_ids"], totals["refusals"]) == (REFUSED, REFUSED)
    assert {user.user: user.rates["new_ids"] for user in built.found.users if user.rates} == brought
    assert times.span.step_ms == HOUR_MS
    assert sum(sum(line.values) for line in times.by_user) == totals["new_ids"]
    rogue = next(user.rates for user in built.found.users if user.user == ROGUE)
    assert rogue is not None
    assert max(times.within_window[ROGUE].values) == rogue["peak_new_ids_per_hour"]
    assert times.by_user[-1].name is None, "the rest are one line"


def test_ids_of_a_pattern_are_those_that_its_clients_brought(built: Built) -> None:
    """Of all that a user opened they are a part; the part is taken once."""
    burnt, brought = burnt_ids(built.events), new_ids(built.events)
    assert {user.user: user.burnt_ids for user in built.found.users if user.harmful} == burnt
    of_all = share(burnt[ROGUE] / brought[ROGUE])
    assert of_all != "100 %"
    said = f"{count(burnt[ROGUE])} new ids, {of_all} of all it opened"
    assert findings(built.found)[0].headline.endswith(f": {said}")
    assert f"<p>{said}.</p>" in built.path.read_text()
    assert f"{share(sum(burnt.values()) / brought.total())} of all new ids" in summary(built.found)


def test_harmful_ids_are_counted_as_the_replay_counts_them(built: Built) -> None:
    for user in built.found.users:
        advice = user.recommendation
        assert advice is not None
        came = burnt_ids(built.events).get(user.user, 0)
        if user.user == ROGUE:  # of the client id that was refused, too
            came += REFUSED + sum(
                isinstance(event, DecisionEvent)
                and event.client_id == REFUSED_CLIENT
                and event.decision == "admit"
                for event in built.events
            )
        assert advice["rogue_ids"] <= came
        assert 0 <= advice["mended"]["refused_ids"] <= advice["ids"]


def test_days_limit_charts_and_sums(built: Built) -> None:
    day = "2026-11-23"
    found = read(built.tables, pages=1, made_ms=0, days=Days(day, day))
    admitted = [
        event for event in built.events if isinstance(event, DecisionEvent) and event.decision == "admit"
        and f"{datetime.fromtimestamp(event.wall_time_ms / 1000, UTC):%Y-%m-%d}" == day
    ]  # fmt: skip
    assert found.totals is not None
    assert found.totals["new_ids"] == len(admitted)
    assert found.times is not None
    assert sum(sum(line.values) for line in found.times.by_user) == len(admitted)
    assert found.days == f"from {day} to {day}"


def test_what_never_came_and_what_could_not_be_read_is_counted(built: Built) -> None:
    assert built.found.lost == {"gw-1": 20}
    assert built.found.dead_letters == {"late": 2, "malformed": 1}


def test_a_wrong_and_an_unknown_clock_are_told(built: Built) -> None:
    told = [one.why for one in findings(built.found) if "clock" in one.headline]
    assert len(told) == 2
    assert "gw-1 up to 2,400 s behind in 1 hour between" in told[0]
    assert "Events of gw-2 have no append time by a broker's clock" in told[1]
    assert "gw-1 up to 2,400 s behind" in built.path.read_text()


def test_brokers_die_when_the_model_says(built: Built) -> None:
    kafka = built.found.kafka
    assert kafka is not None
    quotas = list(dict.fromkeys(one.study["quota"] for one in kafka))
    assert quotas[0] == "none", "what is now comes first"
    assert "recommended" in quotas
    # The table marks a broker that the scenario lost, too: its heap did not kill it.
    assert all(set(one.died) == set(one.study["brokers_dead"]) for one in kafka)
    assert all(min(one.died.values()) == one.study["first_death_ms"] for one in kafka if one.died)
    assert any(one.died for one in kafka)
    assert not all(one.died for one in kafka)


def test_a_user_known_to_one_job_alone_is_shown(known: Tables) -> None:
    found = read(known, pages=5, made_ms=0)

    assert [user.user for user in found.users][:3] == [ROGUE, CRASHING, HOSTILE]
    assert (found.totals, found.times, found.advice, found.blocks) == (None, None, None, None)
    assert "carol (nightly) crashes and is started again" in page_of(found)


def test_without_results_it_says_what_to_run(tables: Tables) -> None:
    with pytest.raises(HistoryEmpty, match="pidgate pipeline rates"):
        read(tables, pages=5, made_ms=0)


def test_a_table_of_another_version_is_named(tables: Tables) -> None:
    with replacing(tables) as run:
        run.write("detector_accuracy", pa.table({"pattern": ["steady"]}))

    with pytest.raises(TableUnreadable, match="another version: run the jobs with this --tables again"):
        write_report(tables)


def test_a_table_that_is_half_written_is_told(tables: Tables) -> None:
    (Path(tables.root) / "results" / "detector_accuracy" / "_temporary").mkdir(parents=True)

    with pytest.raises(TableUnreadable, match="incomplete, or was replaced"):
        write_report(tables)


def test_a_table_that_is_replaced_meanwhile_is_told(known: Tables) -> None:
    for file in Path(known.path("results", "offenders")).glob("*.parquet"):
        file.unlink()

    with pytest.raises(TableUnreadable, match="incomplete, or was replaced"), whole(known):
        known.known("offenders")


# The command


def test_the_command_writes_the_report_and_tells_a_program(known: Tables, tmp_path: Path) -> None:
    output = tmp_path / "there" / "r.html"

    done = CliRunner().invoke(app, ["report", "--tables", known.root, "--output", str(output), "--json"])

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["report"] == str(output)
    assert said["findings"][0]["user"] == ROGUE
    assert said["not_run"] == ["failover", "ids", "rates", "recommend"]
    assert ROGUE in output.read_text()


def test_a_report_that_cannot_be_finished_leaves_the_old_one(built: Built, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    output.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        publish(built.tables, "new, with half a character \ud800", output)

    assert output.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_told(built: Built, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BadOption, match="--output"):
        publish(built.tables, "x", tmp_path / "file" / "report.html")


def test_style_script_and_templates_are_part_of_the_package() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["pidgate.pipeline.report"]

    folder = Path(report.__file__).parent
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.suffix[1:3] != "py"}
    assert {"page.css", "page.js", "templates/page.html"} <= names
    for name in names:
        assert any(fnmatch(name, pattern) for pattern in patterns), name


# In the browser


@dataclass
class Visit:
    """An open page, and what it did meanwhile."""

    page: Page
    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def charts(self) -> list[int]:
        """Return how many names each visible chart draws."""
        return [
            place.locator("svg path").count()
            for place in self.page.locator(".chart").all()
            if place.is_visible()
        ]

    def goes_to(self, name: str) -> None:
        self.page.evaluate("name => { location.hash = name }", name)
        self.page.wait_for_function("name => location.hash === '#' + name", arg=name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def visited(browser: Browser, path: Path, *, scripts: bool = True, width: int = 1280) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts)
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.said.append(message.text))
    visit.page.on("pageerror", lambda error: visit.said.append(str(error)))
    visit.page.on("request", lambda request: visit.requested.append(request.url))
    visit.page.goto(path.as_uri())
    try:
        yield visit
    finally:
        context.close()


def recommended_to(built: Built, name: str) -> str:
    advice = next(user.recommendation for user in built.found.users if user.user == name)
    assert advice is not None
    return count(advice["recommended_rate"])


def test_the_report_names_the_rogue_draws_its_charts_and_loads_nothing(
    built: Built, browser: Browser
) -> None:
    with visited(browser, built.path) as visit:
        first = visit.page.locator("#findings li").first
        assert (
            first.locator("h3")
            .inner_text()
            .startswith("Act mallory (etl-loader-*) opens a new producer for each")
        )
        assert f"Cap for now: {recommended_to(built, ROGUE)}; " in first.inner_text()
        # New ids, refusals, ids held, blocks, and heaps under each quota.
        marks = visit.charts()
        assert len(marks) == 4 + len(built.found.kafka or ())
        assert all(count > 0 for count in marks)

        assert visit.requested == [built.path.as_uri()]
        assert visit.said == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(built: Built, browser: Browser, width: int) -> None:
    with visited(browser, built.path, width=width) as visit:
        for name in ("findings", "user-0"):
            visit.goes_to(name)
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


def test_labels_of_an_axis_do_not_overlap(built: Built, browser: Browser) -> None:
    for width in (390, 1280):
        with visited(browser, built.path, width=width) as visit:
            for axis in visit.page.locator(".across").all():
                boxes = [box for tick in axis.locator("span").all() if (box := tick.bounding_box())]
                assert all(one["x"] + one["width"] <= other["x"] for one, other in pairwise(boxes))


def test_it_prints_with_its_charts(built: Built, browser: Browser, tmp_path: Path) -> None:
    """Without a script, in the colours of day, and with nothing cut off."""
    with visited(browser, built.path, scripts=False) as visit:
        visit.page.emulate_media(media="print", color_scheme="dark")
        ground = visit.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card')")
        assert ground.strip() == "#ffffff"
        assert visit.page.locator("#overview .chart svg path").first.is_visible()
        assert visit.page.locator("#all-users").evaluate(
            "one => getComputedStyle(one.parentElement).overflow"
        ) == ("visible")
        assert len(visit.page.pdf()) > 20_000


def test_values_are_shown_below_the_pointer(built: Built, browser: Browser) -> None:
    with visited(browser, built.path) as visit:
        visit.page.locator("#overview .plot").first.hover()
        assert re.match(r"2026-11-\d\d \d\d:00 UTC", visit.page.locator(".tip").inner_text())


def test_each_table_is_saved_as_csv(built: Built, browser: Browser) -> None:
    with visited(browser, built.path) as visit:
        with visit.page.expect_download() as saved:
            visit.page.locator(".csv:has(+ .table #all-users)").click()
        assert saved.value.suggested_filename == "all-users.csv"
        rows = list(csv.reader(Path(saved.value.path()).read_text().splitlines()))
        assert rows[0][:3] == ["User", "Patterns", "New ids"]
        assert {row[0]: row[2] for row in rows[1:]} == {
            user.user: str(user.rates["new_ids"]) for user in built.found.users if user.rates
        }
        assert visit.page.locator(".table").count() == visit.page.locator(".csv").count()


def test_a_users_page_opens_by_click_and_leads_back(built: Built, browser: Browser) -> None:
    with visited(browser, built.path) as visit:
        visit.page.get_by_role("link", name="All about mallory").click()

        mine = visit.page.locator("section.user:visible")
        assert mine.locator("h2").inner_text() == ROGUE
        assert "one request" in mine.inner_text()
        assert mine.get_by_text("the least rate that refuses none of its ids as they came").is_visible()
        assert mine.get_by_text("docs/how-to/mending.md#producer_per_batch").is_visible()
        assert mine.locator("table").first.locator("tbody tr").count() >= 3, "the price of each rate"
        assert len(visit.charts()) == 1
        line = mine.locator(".limit span").first
        assert line.text_content() == f"recommended: {recommended_to(built, ROGUE)}"
        assert not visit.page.locator("#findings").is_visible()

        visit.page.get_by_role("link", name="all findings").click()
        visit.page.locator("#findings").wait_for(state="visible", timeout=5_000)
        assert visit.page.locator("section.user:visible").count() == 0

        visit.page.get_by_label("User", exact=True).select_option(label="carol")
        assert mine.locator("h2").inner_text() == "carol"
        assert visit.said == []


def test_the_table_of_users_is_searched(built: Built, browser: Browser) -> None:
    with visited(browser, built.path) as visit:
        rows = visit.page.locator("#all-users tbody tr:visible")
        assert rows.count() == len(USERS)

        visit.page.get_by_label("Find a user").fill("TEAM-0")

        assert rows.count() == sum(user.startswith("team-0") for user in QUIET)
        assert visit.page.locator("#hits").inner_text() == f"{rows.count()} of {len(USERS)} users"


def test_without_scripts_the_words_are_there(built: Built, browser: Browser) -> None:
    with visited(browser, built.path, scripts=False) as visit:
        assert visit.page.locator("#findings").get_by_text("All about mallory").is_visible()
        assert visit.page.locator("#user-0").get_by_text("one request", exact=True).is_visible()


# Hostile names


def test_a_name_that_is_a_script_is_shown_and_not_run(built: Built, browser: Browser) -> None:
    with visited(browser, built.path) as visit:
        assert HOSTILE in visit.page.locator("#findings").inner_text()
        assert visit.page.locator(".legend li", has_text="<script>window.stolen=1</sc").count() > 0
        visit.goes_to("user-2")
        assert visit.page.locator("section.user:visible h2").inner_text() == HOSTILE

        assert visit.page.evaluate("window.stolen") is None
        assert visit.page.locator("img").count() == 0
        assert visit.page.locator("script").count() == 1
        assert visit.said == []


def test_even_what_was_not_escaped_could_not_run(built: Built, browser: Browser, tmp_path: Path) -> None:
    """The page's policy is a second wall; without it this very name would have run."""
    page = built.path.read_text()
    broken = page.replace("<body>", f"<body>{HOSTILE}", 1)
    without = broken.replace('http-equiv="Content-Security-Policy"', 'http-equiv="x"', 1)
    (tmp_path / "broken.html").write_text(broken)
    (tmp_path / "without.html").write_text(without)

    with visited(browser, tmp_path / "broken.html") as visit:
        assert visit.page.evaluate("window.stolen") is None
        assert visit.page.locator("section.user:visible").count() == 0, "its own script runs"
    with visited(browser, tmp_path / "without.html") as visit:
        assert visit.page.evaluate("window.stolen") is not None
