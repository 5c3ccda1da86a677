"""The status page over real HTTP: what it loads, who may read it and act, its streams, undo."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from pidgate.gateway.admin.present_api import MOST_STREAMS, PAGE
from pidgate.gateway.admin.sessions import SESSION_MS, cookie_in, is_session, make_session
from pidgate.gateway.config.local_token import token_of
from tests.support.loopback import ScriptedBroker, gateway_before, run
from tests.support.rules import rule
from tools.sandbox.ports import free_block, give_back

JSON = {"Content-Type": "application/json"}
QUOTAS = {"mode": "enforce", "users": {"alice": {"producer_ids_rate": 2}}}
RATE = {"setting": "producer_ids_rate", "user": "alice", "action": "set", "value": 500}


class Site:
    """An admin address, asked as browsers ask."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, JSON or text, and headers."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            content = None if body is None else json.dumps(body).encode()
            connection.request(
                method, path, content, {**(JSON if body is not None else {}), **(headers or {})}
            )
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text, answer.headers

    def status(self, method: str, path: str, body: object = None, **headers: str) -> int:
        return self.ask(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})[
            0
        ]

    def signed_in(self, token: str) -> dict[str, str]:
        """Exchange a token; return the cookie."""
        status, told, headers = self.ask("POST", "/v1/session", {"token": token})
        assert status == 200, told
        cookie = headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert token not in cookie
        return {"Cookie": cookie.partition(";")[0]}


def served(use: Callable[[Site], object], host: str = "127.0.0.1", **admin: Any) -> None:
    """Serve a whole gateway; `use` asks it from another thread."""
    port = free_block(1)

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            settings = {"bind": f"{host}:{port}", **admin}
            async with gateway_before(broker.address, quotas=QUOTAS, admin=settings):
                await asyncio.to_thread(use, Site(port))

    try:
        run(scenario())
    finally:
        give_back(port, 1)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A token, and beside it the one that opens /metrics alone."""
    file = tmp_path / "token"
    file.write_text("the-token")
    (tmp_path / "token.scrape").write_text("the-scrape-token")
    return file


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# ---- files ---------------------------------------------------------------------------------------------


def test_the_page_runs_its_own_scripts_only_and_every_file_of_it_is_served() -> None:
    def use(site: Site) -> None:
        for path in ("/", *(f"/page/{file.name}" for file in PAGE.iterdir())):
            status, _, headers = site.ask("GET", path)
            assert status == 200, path
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
        assert site.status("GET", "/page/..%2Fsite.py") == 404

    served(use)


def test_no_file_of_the_page_names_another_site_or_writes_markup() -> None:
    for file in PAGE.iterdir():
        text = file.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), file
        assert not re.search(r"<script>|<style>| style=| on[a-z]+=\"", text), file


# ---- who may read and act ------------------------------------------------------------------------------

READ = ("/v1/present", "/v1/live", "/v1/explain")


@rule(
    "The status page answers to the admin address's own names, and acts with its token only.", "connections"
)
def test_on_loopback_it_is_read_without_a_token_and_acts_with_one() -> None:
    def use(site: Site) -> None:
        assert site.ask("GET", "/v1/session")[1]["may_read"]
        assert site.status("GET", "/v1/present") == 200
        assert site.status("POST", "/v1/quotas/changes", {"changes": [RATE]}) == 401
        token = token_of(site.port)
        assert token is not None
        cookie = site.signed_in(token)
        assert site.ask("GET", "/v1/session", headers=cookie)[1]["may_act"]
        assert site.status("POST", "/v1/quotas/changes", {"changes": [RATE]}, **cookie) == 200

    served(use, writable=True)


def test_without_writable_nobody_acts() -> None:
    def use(site: Site) -> None:
        told = site.ask("GET", "/v1/session")[1]
        assert (told["may_read"], told["may_act"]) == (True, False)
        assert "admin.writable" in told["why_not"]
        assert site.status("POST", "/v1/session", {"token": "x"}) == 403
        assert site.status("POST", "/v1/quotas/changes", {"changes": [RATE]}) == 403

    served(use)


@pytest.mark.parametrize("path", [*READ, "/", "/page/page.js", "/v1/session"])
def test_pages_of_other_sites_read_nothing(path: str) -> None:
    def use(site: Site) -> None:
        assert site.status("GET", path, Host="evil.example") == 403
        if path in READ:
            assert site.status("GET", path, Origin="http://evil.example") == 403

    served(use)


def test_pages_of_other_sites_neither_sign_in_nor_act(token_file: Path) -> None:
    def use(site: Site) -> None:
        cookie = site.signed_in("the-token")
        evil = {**cookie, "Origin": "http://evil.example"}
        assert site.status("POST", "/v1/session", {"token": "the-token"}, Origin="http://evil.example") == 403
        assert site.status("POST", "/v1/quotas/changes", {"changes": [RATE]}, **evil) == 403
        assert site.status("POST", "/v1/commands", {"deed": "refill", "user": "alice"}, **evil) == 403
        form = {**cookie, "Content-Type": "text/plain"}
        assert site.status("POST", "/v1/quotas/changes", {"changes": [RATE]}, **form) == 415

    served(use, writable=True, token_file=str(token_file))


def test_beyond_loopback_nothing_is_read_without_the_token_and_the_scrape_token_opens_metrics_alone(
    token_file: Path,
) -> None:
    def use(site: Site) -> None:
        scrape = bearer("the-scrape-token")
        for path in READ:
            assert site.status("GET", path) == 401
            assert site.status("GET", path, **scrape) == 401
        assert site.status("GET", "/metrics", **scrape) == 200
        assert site.status("GET", "/metrics/overview") == 401
        assert site.status("GET", "/metrics/overview", **scrape) == 200
        assert site.status("POST", "/v1/session", {"token": "the-scrape-token"}) == 401
        assert site.status("GET", "/") == 200, "the page holds no data, and asks for the token"
        cookie = site.signed_in("the-token")
        assert site.status("GET", "/v1/present", **cookie) == 200
        token_file.write_text("another-token")
        assert site.status("GET", "/v1/present", **cookie) == 401, "a new token ends all sessions"

    served(use, host="0.0.0.0", token_file=str(token_file))


def test_a_cookie_is_signed_and_ends() -> None:
    session = make_session(b"token", SESSION_MS)
    assert is_session(b"token", session, 1)
    assert not is_session(b"token", session, SESSION_MS)
    assert not is_session(b"other", session, 1)
    until, _, signature = session.partition(".")
    assert not is_session(b"token", f"{int(until) + 1}.{signature}", 1)
    for forged in ("", ".", f"{until}.", f"{until}.\u00e9", f"-1.{signature}", "9" * 200):
        assert not is_session(b"token", forged, 1)
    far = make_session(b"token", 2 * SESSION_MS)
    assert not is_session(b"token", far, 1), "no session lasts longer than one"
    assert cookie_in({"Cookie": "a=1; pidgate_9290=x.y; b"}, "pidgate_9290") == "x.y"


# ---- actions -------------------------------------------------------------------------------------------


def test_an_action_is_checked_first_has_an_author_and_can_be_undone() -> None:
    def use(site: Site) -> None:
        cookie = site.signed_in(token_of(site.port) or "")

        def act(*changes: Mapping[str, Any], **more: object) -> Any:
            status, told, _ = site.ask("POST", "/v1/quotas/changes", {"changes": changes, **more}, cookie)
            assert status == 200, told
            return told

        def in_force() -> Any:
            return site.ask("GET", "/v1/quotas?user=alice")[1]["entries"][0]["effective_rate"]

        told = act({**RATE, "for": "2h"}, only_check=True)
        assert told["command"] == "pidgate quotas raise alice 500 --for 2h"
        assert told["gateways"] == 1
        assert in_force()["value"] == 2
        first = act({**RATE, "value": 300, "note": "a roll-out"}, set_by="somebody else")
        assert (in_force()["value"], in_force()["set_by"]) == (300, "page:127.0.0.1")
        second = act({**RATE, "value": 0})
        assert second["command"] == "pidgate quotas block alice"
        assert "every new producer id of alice is refused" in " ".join(second["says"])
        assert second["undo"]["changes"][0]["note"] == "a roll-out"
        act(*second["undo"]["changes"])
        assert in_force()["value"] == 300
        act(*first["undo"]["changes"])
        assert (in_force()["value"], in_force()["source"]) == (2, "file")

    served(use, writable=True)


# ---- streams -------------------------------------------------------------------------------------------


def begun(site: Site) -> int:
    """Begin a stream and leave; return its status."""
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)) as connection:
        connection.request("GET", "/v1/live")
        return connection.getresponse().status


def test_a_stream_goes_on_and_so_many_are_open_at_most() -> None:
    def use(site: Site) -> None:
        with ExitStack() as stack:
            for _ in range(MOST_STREAMS):
                connection = stack.enter_context(
                    closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=10))
                )
                connection.request("GET", "/v1/live?view=around")
                answer = connection.getresponse()
                assert answer.status == 200
            first = answer.readline()
            assert json.loads(first.removeprefix(b"data: "))["head"]["is_ready"] in (True, False)
            assert answer.readline() == b"\n"
            assert answer.readline().startswith(b"data: {"), "and the next draw"
            assert site.status("GET", "/v1/live") == 503
            assert site.status("GET", "/v1/present") == 200
        assert site.status("GET", "/v1/live?view=nothing") == 400
        give_up_s = time.monotonic() + 10
        while begun(site) == 503:
            assert time.monotonic() < give_up_s, "a stream whose client has gone ends"
            time.sleep(0.1)

    served(use)
