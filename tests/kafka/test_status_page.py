"""The status page in real Chromium, before a gateway with clients that wait.

PIDGATE_PICTURES=FOLDER makes pictures of it. Those of docs/how-to/index.md are in docs/images.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from pidgate.gateway.config.local_token import token_of
from tests.support.browsing import chromium
from tests.support.raw import request
from tests.support.waiting_clients import QUOTAS, WaitingClients
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
PICTURES = os.environ.get("PIDGATE_PICTURES", "")
"""Folder for pictures; empty: none are made."""
HOSTILE = "carol" if PICTURES else "<img src=x onerror=alert(1)>'\"&\u202e"
"""A user of the file, and a client id. The documentation's pictures show none that looks like an attack."""
SOON_MS = 30_000
"""On a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=SOON_MS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def scene(sasl_cluster: Cluster) -> Iterator[WaitingClients]:
    servers = sasl_cluster.bootstrap_servers("SASL_PLAINTEXT")
    quotas = {
        **QUOTAS,
        "producer_ids": {**QUOTAS["producer_ids"], "max_throttle": "10m"},
        "users": {**QUOTAS["users"], HOSTILE: {"producer_ids_rate": 7}},
    }
    settings = {"limits": {"connections_rate_per_user": 1}}
    with ExitStack() as stack:
        gateway = GatewayProcess(servers, quotas=quotas, settings=settings, ready_within_s=180)
        gateway.config["admin"]["writable"] = True
        gateway.config["cluster"]["name"] = "payments-eu1"
        found = WaitingClients(sasl_cluster, stack.enter_context(gateway), stack, "page")
        found.software = "apache-kafka-java", "3.9.1"
        found.out_of_order()
        found.software = "librdkafka", "2.6.0"
        found.refused("bob", "blocked")
        found.in_debt()
        found.behind_the_debt()
        found.client("alice", HOSTILE).send(request(3, 1, {"topics": []}, client_id=HOSTILE))
        yield found


class Visit:
    """An open page, and what its console and its network said."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.requested.append(request.url))

    def picture(self, name: str) -> None:
        if PICTURES:
            self.page.screenshot(path=Path(PICTURES, f"{name}.png"))


@contextmanager
def visited(
    browser: Browser, scene: WaitingClients, hash_: str = "", *, narrow: bool = False, dark: bool = False
) -> Iterator[Visit]:
    context = browser.new_context(
        viewport=NARROW if narrow else WIDE,
        color_scheme="dark" if dark else "light",
        timezone_id="UTC",
    )
    context.set_default_timeout(SOON_MS)
    try:
        visit = Visit(context.new_page())
        visit.page.goto(f"{scene.gateway.admin_url}/{hash_}")
        yield visit
    finally:
        context.close()


def sign_in(page: Page, scene: WaitingClients) -> None:
    token = token_of(scene.gateway.admin_port)
    assert token is not None
    page.get_by_role("button", name="Sign in to act").click()
    page.get_by_label("Token").fill(token)
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


@pytest.mark.parametrize(
    ("narrow", "dark"),
    [(False, False), (True, True), (False, True), (True, False)],
    ids=["1280 light", "390 dark", "1280 dark", "390 light"],
)
def test_each_view_fits(scene: WaitingClients, browser: Browser, *, narrow: bool, dark: bool) -> None:
    with visited(browser, scene, narrow=narrow, dark=dark) as visit:
        for view, hash_, place in (
            ("first", "#", "#waits"),
            ("user", "#user=alice", "#lines"),
            ("around", "#around=1", "#limits"),
        ):
            visit.page.evaluate("hash => { location.hash = hash }", hash_)
            expect(visit.page.locator(place)).to_be_visible()
            width = visit.page.evaluate("document.documentElement.scrollWidth")
            assert width <= (NARROW if narrow else WIDE)["width"]
            visit.picture(f"page-{view}{'-narrow' if narrow else ''}{'-dark' if dark else ''}")
        assert visit.said == []


def test_it_says_who_waits_and_why_and_loads_nothing_from_elsewhere(
    scene: WaitingClients, browser: Browser
) -> None:
    with visited(browser, scene) as visit:
        waits = visit.page.locator("#waits")
        expect(waits).to_contain_text("and the quota of alice is used up (3 per 10h)")
        expect(waits).to_contain_text("new producer ids of bob are blocked (rate 0)")
        expect(visit.page.locator("#facts")).to_contain_text("ENFORCE")
        first = visit.page.locator("#users tbody tr").first
        expect(first).to_contain_text(re.compile("alice|bob"))
        clock = visit.page.locator("#link").inner_text()
        expect(visit.page.locator("#link")).not_to_have_text(clock)
        own = scene.gateway.admin_url
        assert {url for url in visit.requested if not url.startswith(f"{own}/")} == set()
        assert visit.said == []


def test_a_new_wait_appears_and_a_filter_narrows(scene: WaitingClients, browser: Browser) -> None:
    with visited(browser, scene) as visit:
        page = visit.page
        expect(page.locator("#waits")).to_contain_text("alice")
        expect(page.locator("#waits")).not_to_contain_text("asks for a new producer id")
        scene.asks_for_an_id("starts", None)
        expect(page.locator("#waits")).to_contain_text("asks for a new producer id")
        page.keyboard.press("/")
        page.keyboard.type("bo")
        expect(page.locator("#users tbody tr")).to_have_count(1)
        expect(page.locator("#users")).to_contain_text("bob")
        assert "find=bo" in page.url
        page.keyboard.press("Escape")
        page.locator("#users tbody tr").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("h2").first).to_contain_text("bob")
        assert page.url.endswith("#user=bob")
        page.keyboard.press("Escape")
        expect(page.locator("#users")).to_be_visible()
        assert visit.said == []


@pytest.mark.skipif(bool(PICTURES), reason="pictures are made without a hostile name")
def test_a_hostile_name_is_text(scene: WaitingClients, browser: Browser) -> None:
    with visited(browser, scene) as visit:
        link = visit.page.locator("#users a", has_text="onerror")
        expect(link).to_contain_text("<img src=x onerror=alert(1)>'\"&\\u202e")
        link.click()
        expect(visit.page.locator("h2").first).to_contain_text("<img src=x")
        visit.page.goto(f"{scene.gateway.admin_url}/#around=1&find=onerror")
        expect(visit.page.locator("#connections")).to_contain_text("<img src=x onerror=alert(1)>")
        assert visit.page.locator("main img").count() == 0
        assert visit.said == []


def test_an_action_shows_its_command_first_and_is_undone_by_one_click(
    scene: WaitingClients, browser: Browser
) -> None:
    with visited(browser, scene, "#user=alice") as visit:
        page = visit.page
        expect(page.locator("#lines")).to_contain_text("quota 4 per 10h (file)")
        page.keyboard.press("r")
        expect(page.get_by_role("alert")).to_contain_text("needs the gateway's own token")
        page.get_by_role("button", name="Close").click()
        sign_in(page, scene)
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert token_of(scene.gateway.admin_port) not in (cookie["value"], page.url)
        page.keyboard.press("r")
        rate = page.get_by_role("dialog").get_by_label("New ids per window")
        rate.fill("nonsense")
        expect(page.get_by_role("alert")).to_contain_text("set needs a value")
        expect(page.locator("#do")).to_be_disabled()
        rate.fill("4000")
        expect(page.locator("#command")).to_have_text("pidgate quotas raise alice 4000 --for 2h")
        expect(page.locator("#says")).to_contain_text("Acts on 1 gateway.")
        visit.picture("page-action")
        page.locator("#do").click()
        expect(page.locator("#toast")).to_contain_text("Done: pidgate quotas raise alice 4000 --for 2h")
        expect(page.locator("#lines")).to_contain_text("by page:127.0.0.1")
        expect(page.locator("#lines")).to_contain_text("quota 4,000 per 10h (run time")
        page.locator("#undo").click()
        expect(page.locator("#toast")).to_contain_text("Undone")
        expect(page.locator("#lines")).to_contain_text("quota 4 per 10h (file)")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("button", name="Sign in to act")).to_be_visible()


def test_the_recorded_day_is_replayed_at_other_rates(scene: WaitingClients, browser: Browser) -> None:
    with visited(browser, scene, "#user=alice") as visit:
        page = visit.page
        expect(page.locator("#lines")).to_contain_text("quota 4 per 10h (file)")
        page.get_by_label("New ids per window").fill("0, 5000")
        # Its process gets 10 s, which may be little on a machine that is busy.
        give_up_s = time.monotonic() + 55
        while page.locator("#what-if-rows tbody tr").count() == 0:
            assert time.monotonic() < give_up_s, page.locator("#what-if").inner_text()
            page.get_by_role("button", name="Replay the last day").click()
            expect(page.get_by_role("button", name="Replay the last day")).to_be_enabled(timeout=20_000)
        blocked, enough = page.locator("#what-if-rows tbody tr").all()
        ids = blocked.locator("td").nth(1).inner_text()
        assert int(ids) >= 4, "the ids that alice brought before she was refused"
        assert [cell.inner_text() for cell in blocked.locator("td").all()][:3] == ["0", ids, ids]
        assert [cell.inner_text() for cell in enough.locator("td").all()][:3] == ["5,000", "0", "0"]
        expect(page.locator("#what-if-result")).to_contain_text("Not enough record: it holds")
        visit.picture("page-what-if")
        assert [line for line in visit.said if "503" not in line] == []


def test_a_gateway_that_stops_is_said(scene: WaitingClients, browser: Browser) -> None:
    with visited(browser, scene) as visit:
        expect(visit.page.locator("#waits")).to_be_visible()
        visit.page.route("**/v1/**", lambda route: route.abort())
        visit.page.reload()
        expect(visit.page.locator("#link")).to_contain_text("Not live")
