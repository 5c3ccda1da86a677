"""Quotas over HTTP: who may ask and set, what is understood, and what is told."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pidgate.gateway.admin.access import Access, Refusal
from pidgate.gateway.config.conflicts import warnings
from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.local_token import LocalToken, path_of, token_of
from pidgate.gateway.config.settings import AdminSettings
from pidgate.gateway.config.token_file import TokenUnreadable, token_now
from tests.support.questions import is_refused
from tests.support.quota_site import FILE, Gateway, served
from tests.support.rules import rule

JSON = {"Content-Type": "application/json"}
RATE = {"setting": "producer_ids_rate", "user": "alice", "action": "set", "value": 500}


def http_ask(
    address: str, method: str, path: str, content: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and JSON."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        body = None if content is None else content if isinstance(content, bytes) else json.dumps(content)
        if headers is None:
            headers = {**(JSON if body else {}), **own_token(address)}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def own_token(address: str) -> dict[str, str]:
    token = token_of(int(address.rpartition(":")[2]))
    return {"Authorization": f"Bearer {token}"} if token else {}


def changed(address: str, *changes: dict[str, Any], **more: Any) -> tuple[int, Any]:
    return http_ask(address, "POST", "/v1/quotas/changes", {"changes": list(changes), **more})


def entry(address: str, user: str | None) -> Any:
    status, told = http_ask(address, "GET", "/v1/quotas")
    assert status == 200
    return next(one for one in told["entries"] if one["user"] == user)


# ---- what is told --------------------------------------------------------------------------------------


def test_what_the_file_says_and_what_is_there() -> None:
    def use(address: str, gateway: Gateway) -> None:
        gateway.ask(1)
        status, told = http_ask(address, "GET", "/v1/quotas")
        assert status == 200
        assert (told["gateway"], told["is_writable"], told["topic"]) == ("gw-0", True, None)
        assert told["mode"]["value"] == "enforce"
        assert [one["user"] for one in told["entries"]] == [None, "alice", "bob"]
        default, alice, bob = told["entries"]
        assert default["producer_ids_rate"]["value"] == 10
        assert alice["producer_ids_rate"] == {
            "value": 2,
            "source": "file",
            "of": "user",
            "set_by": "",
            "set_wall_ms": None,
            "set_through": "",
            "until_wall_ms": None,
            "note": "",
            "in_file": 2,
        }
        assert (alice["owner"], alice["tokens"], alice["full_tokens"]) == ("team-a", 1, 2)
        assert (alice["live_ids"], alice["waiting"]) == (1, 0)
        assert bob["producer_ids_rate"]["source"] == "nothing"
        assert (bob["effective_rate"]["value"], bob["effective_rate"]["of"]) == (10, "default")
        assert (bob["mode"]["value"], bob["effective_mode"]["of"]) == ("observe", "user")

    served(use)


def test_a_change_is_in_force_and_says_who_made_it_and_what_the_file_says() -> None:
    def use(address: str, gateway: Gateway) -> None:
        status, told = changed(address, {**RATE, "note": "a roll-out"}, set_by="cli:ann")
        assert (status, told["kept"], told["gateway"]) == (200, "memory", "gw-0")
        said = entry(address, "alice")["producer_ids_rate"]
        assert (said["value"], said["source"], said["in_file"]) == (500, "run_time", 2)
        assert (said["set_by"], said["set_through"], said["note"]) == ("cli:ann", "gw-0", "a roll-out")
        assert not any(is_refused(gateway.ask(number)) for number in range(100))
        status, told = changed(address, {"setting": "producer_ids_rate", "user": "alice", "action": "reset"})
        assert status == 200
        assert entry(address, "alice")["producer_ids_rate"]["source"] == "file"

    served(use)


def test_explain_tells_tokens_the_line_and_the_last_refusal() -> None:
    def use(address: str, gateway: Gateway) -> None:
        for number in range(4):
            gateway.ask(number)
        gateway.now_ms += 11_000
        gateway.ask(3, came_back=True)
        gateway.now_ms += 1_000
        _, told = http_ask(address, "GET", "/v1/explain?user=alice&producer_id=3")
        assert told["is_known"]
        assert told["tokens"] < 0
        assert (told["waiting"], told["live_ids"], told["oldest_waiting_ms"]) == (1, 3, 1_000)
        assert told["next_token_in_ms"] > 0
        asked = told["producer_id"]
        assert (asked["is_remembered"], asked["is_released"]) == (False, False)
        assert asked["waiting"]["queue_position"] == 0
        assert (asked["waiting"]["attempts"], asked["waiting"]["address"]) == (2, "10.0.0.7")
        refusal = asked["last_refusal"]
        assert refusal == told["last_refusal"]
        assert (refusal["reason"], refusal["bound"], refusal["producer_ids_rate"]) == ("queue", "user", 2)
        assert told["wall_ms"] - refusal["refused_wall_ms"] == 1_000
        assert refusal["until_wall_ms"] - told["wall_ms"] == 9_000
        _, told = http_ask(address, "GET", "/v1/explain?user=alice&producer_id=0")
        assert told["producer_id"]["is_remembered"]
        assert told["producer_id"]["last_refusal"] is None

    served(use)


def test_commands_are_done() -> None:
    def use(address: str, gateway: Gateway) -> None:
        for number in range(4):
            gateway.ask(number)
        release = {"deed": "release", "user": "alice", "producer_id": 3, "set_by": "cli:ann"}
        assert http_ask(address, "POST", "/v1/commands", release)[1]["kept"] == "memory"
        assert http_ask(address, "GET", "/v1/explain?user=alice&producer_id=3")[1]["producer_id"][
            "is_released"
        ]
        assert not is_refused(gateway.ask(3, came_back=True))
        assert is_refused(gateway.ask(5))
        assert http_ask(address, "POST", "/v1/commands", {"deed": "refill", "user": "alice"})[0] == 200
        assert not is_refused(gateway.ask(5))

    served(use)


# ---- what is not understood, or not allowed ------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({**RATE, "value": -1}, "is negative"),
        ({**RATE, "value": "100"}, "is not a number of ids per window"),
        ({**RATE, "value": True}, "is not a number"),
        ({**RATE, "value": 2e9}, "is too high"),
        ({**RATE, "value": None}, "set needs a value"),
        ({**RATE, "user": ""}, "at least 1 character"),
        ({**RATE, "user": "x" * 1_001}, "at most 1000 characters"),
        ({**RATE, "note": "two\nlines"}, "one line of printable text"),
        ({**RATE, "for": "2"}, "is not a duration"),
        ({**RATE, "for": "0s"}, "must be above 0"),
        ({**RATE, "for": "9999d"}, "at most 366d"),
        ({**RATE, "temporary": True}, "needs for"),
        ({**RATE, "action": "reset"}, "remove and reset have none"),
        ({**RATE, "action": "remove", "value": None, "temporary": True}, "reset, not removed"),
        ({**RATE, "owner": "me"}, "Extra inputs are not permitted"),
        ({**RATE, "setting": "request_percentage"}, "does not match any of the expected tags"),
        ({"setting": "mode", "user": None, "action": "remove"}, "it cannot be removed"),
        ({"setting": "mode", "user": "alice", "action": "set", "value": "off"}, "'observe' or 'enforce'"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_and_says_why(change: dict[str, Any], problem: str) -> None:
    def use(address: str, gateway: Gateway) -> None:
        status, told = changed(address, RATE, change)
        assert (status, told["error"]) == (400, "not understood")
        assert problem in "; ".join(told["problems"])
        assert entry(address, "alice")["producer_ids_rate"]["value"] == 2

    served(use)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"changes": []}',
        b"\xff",
        b'{"changes": [1]}',
        json.dumps({"changes": [RATE] * 2}).encode(),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    def use(address: str, gateway: Gateway) -> None:
        assert http_ask(address, "POST", "/v1/quotas/changes", body, {**JSON, **own_token(address)})[0] == 400

    served(use)


@pytest.mark.parametrize(
    "command",
    [
        {"deed": "refill", "user": "alice", "producer_id": 3},
        {"deed": "release", "user": "alice"},
        {"deed": "release", "user": "alice", "producer_id": -1},
        {"deed": "release", "user": "alice", "producer_id": "3"},
        {"deed": "forget", "user": "alice"},
        {"deed": "refill"},
    ],
)
def test_a_command_that_makes_no_sense_is_refused(command: dict[str, Any]) -> None:
    def use(address: str, gateway: Gateway) -> None:
        assert http_ask(address, "POST", "/v1/commands", command)[0] == 400

    served(use)


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/explain?user=alice&producer_id=x"])
def test_a_question_that_makes_no_sense_is_refused(path: str) -> None:
    served(lambda address, _gateway: assert_status(address, path, 400))


def assert_status(address: str, path: str, status: int) -> None:
    assert http_ask(address, "GET", path)[0] == status


def test_what_the_file_forbids_is_refused_but_not_the_emergency_switch() -> None:
    def use(address: str, gateway: Gateway) -> None:
        status, told = changed(address, RATE)
        assert status == 409
        assert "quotas.runtime_changes is refused" in told["error"]
        status, _ = changed(address, {"setting": "mode", "user": None, "action": "set", "value": "observe"})
        assert status == 200

    served(use, FILE.replace("quotas:\n", "quotas:\n  runtime_changes: refused\n"))


def test_nothing_is_set_where_the_address_is_not_writable() -> None:
    def use(address: str, gateway: Gateway) -> None:
        for path in ("/v1/quotas/changes", "/v1/commands"):
            status, told = http_ask(address, "POST", path, {})
            assert status == 403
            assert "admin.writable: true" in told["error"]
        assert http_ask(address, "GET", "/v1/quotas")[0] == 200

    served(use, FILE.replace(", writable: true", ""))


# ---- who may ask ---------------------------------------------------------------------------------------


@rule("The admin address answers to its own names only, and sets quotas with a token only.", "connections")
def test_a_token_opens_and_a_new_one_in_the_file_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-1\n")

    def use(address: str, gateway: Gateway) -> None:
        def with_token(token: str | None) -> tuple[int, int]:
            headers = {} if token is None else {"Authorization": token}
            posted = http_ask(
                address, "POST", "/v1/commands", {"deed": "refill", "user": "alice"}, {**JSON, **headers}
            )
            return http_ask(address, "GET", "/v1/quotas", headers=headers)[0], posted[0]

        assert with_token(None) == (401, 401)
        assert with_token("Bearer secret-2") == (401, 401)
        assert with_token("secret-1") == (401, 401)
        assert with_token("Bearer sécret") == (401, 401)
        assert with_token("Bearer secret-1") == (200, 200)
        other = tmp_path / "other"
        other.write_text("secret-2")
        os.replace(other, file)
        assert with_token("Bearer secret-1") == (401, 401)
        assert with_token("Bearer secret-2") == (200, 200)
        file.unlink()
        assert with_token("Bearer secret-2") == (503, 503)

    served(use, FILE.replace("writable: true", f"writable: true, token_file: {file}"))


@pytest.mark.parametrize("text", ["", " \n", "two words", "x" * 5_000, "schlüssel"])
def test_a_token_file_without_a_token_opens_to_nobody(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(TokenUnreadable):
        token_now(file)


ELSEWHERE = {"Origin": "https://evil.example"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"Origin": "http://127.0.0.1:9290"}, None),
        ({"Host": "localhost:9290", "Origin": "http://localhost:9290"}, None),
        ({"Host": "[::1]:9290"}, None),
        (ELSEWHERE, 403),
        ({"Origin": "null"}, 403),
        # The other site's name leads here.
        ({"Host": "evil.example:9290", "Origin": "http://evil.example:9290"}, 403),
        ({"Host": "evil.example:9290"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, None),
    ],
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str], status: int | None) -> None:
    access = Access(AdminSettings.model_validate({"bind": "127.0.0.1:9290", "writable": True}))
    assert access.local is not None
    bearer = {"Authorization": f"Bearer {access.local.token.decode()}"}
    refusal = access.check_write({"Host": "127.0.0.1:9290", **JSON, **bearer, **headers})
    assert (None if refusal is None else refusal.status) == status


def nobody_sets_quotas_without_a_token() -> bool:
    """The rule, on a loopback address without `token_file`: reading is free, setting is for the gateway's user."""
    answers = list[int]()

    def use(address: str, gateway: Gateway) -> None:
        port = int(address.rpartition(":")[2])
        path = path_of(port)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert http_ask(address, "GET", "/v1/quotas", headers={})[0] == 200
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {'0' * 64}"}):
            refill = {"deed": "refill", "user": "alice"}
            status, told = http_ask(address, "POST", "/v1/commands", refill, {**JSON, **headers})
            answers.append(status)
            assert status == 200 or str(path) in told["error"]
        assert http_ask(address, "POST", "/v1/commands", {"deed": "refill", "user": "alice"})[0] == 200

    served(use)
    return answers == [401, 401, 401]


@rule("The admin address answers to its own names only, and sets quotas with a token only.", "connections")
def test_who_sets_quotas_on_a_loopback_address_shows_the_gateways_own_token() -> None:
    assert nobody_sets_quotas_without_a_token()


def test_the_gateways_own_token_ends_with_it() -> None:
    ports = list[int]()
    served(lambda address, _gateway: ports.append(int(address.rpartition(":")[2])))
    assert token_of(ports[0]) is None
    assert not path_of(ports[0]).exists()


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path_of(9290).parent.mkdir(mode=0o777)
    path_of(9290).parent.chmod(0o777)
    local = LocalToken()
    local.publish(9290)
    assert "is not a folder of this user alone" in local.failure
    path_of(9290).write_text("planted")
    assert token_of(9290) is None


def test_a_home_in_which_others_make_names_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /tmp is: another user could make the folder first."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(0o1777)
    local = LocalToken()
    local.publish(9290)
    assert "can make names in" in local.failure
    tmp_path.chmod(0o700)
    local.publish(9290)
    assert not local.failure
    assert token_of(9290) == local.token.decode()


def test_off_loopback_everything_but_health_needs_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    (tmp_path / "token.scrape").write_text("word-of-prometheus")
    for admin in ({"bind": "0.0.0.0:9290", "token_file": str(file)}, {"bind": "0.0.0.0:9290"}):
        access = Access(AdminSettings.model_validate(admin))
        token = "secret" if access.local is None else access.local.token.decode()

        def status(refusal: Refusal | None) -> int:
            return 200 if refusal is None else refusal.status

        def shows(word: str) -> dict[str, str]:
            return {"Host": "10.0.0.7:9290", "Authorization": f"Bearer {word}"}

        given = [shows(token), shows("word-of-prometheus"), shows("other"), {"Host": "10.0.0.7:9290"}]
        scrapes = [status(access.check_scrape(headers)) for headers in given]
        assert scrapes == [200, 200 if access.local is None else 401, 401, 401]
        assert [status(access.check_read(headers)) for headers in given] == [200, 401, 401, 401]
        assert [status(access.check_write(headers)) for headers in given] == [403, 401, 401, 401]


def test_a_page_of_another_site_is_refused_whatever_its_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    access = Access(AdminSettings.model_validate({"bind": "0.0.0.0:9290", "token_file": str(file)}))
    with_token = {"Host": "gw.example:9290", "Authorization": "Bearer secret"}
    assert access.check_read(with_token) is None
    refusal = access.check_read({**with_token, **ELSEWHERE})
    assert refusal is not None
    assert refusal.status == 403


# ---- the file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("admin", "is_warned_of"),
    [
        ("{writable: true}", False),
        ("{bind: 'localhost:9290', writable: true}", False),
        ("{bind: '[::1]:9290'}", False),
        ("{bind: 0.0.0.0:9290}", True),
        ("{bind: 'gw.example:9290', writable: true}", True),
    ],
)
def test_an_address_that_others_reach_is_warned_of_without_a_token(admin: str, is_warned_of: bool) -> None:
    settings = parse(f"cluster: {{bootstrap_servers: [b:9092]}}\nadmin: {admin}\n")
    found = [text for path, text in warnings(settings) if path == ("admin", "token_file")]
    assert bool(found) == is_warned_of


def test_a_token_that_is_not_there_or_lies_open_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = parse(
        f"cluster: {{bootstrap_servers: [b:9092]}}\nadmin: {{token_file: {file}}}\nstate_dir: {tmp_path}\n"
    )

    def found() -> list[str]:
        return [text for path, text in warnings(settings) if path == ("admin", "token_file")]

    (missing,) = found()
    assert "holds no token yet" in missing
    file.write_text("secret")
    file.chmod(0o644)
    assert found() == [f"can be read by other users of this machine; chmod 600 {file}"]
    file.chmod(0o600)
    assert found() == []
