"""`pidgate quotas`, `mode` and `explain` as they are typed, against a real admin site."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from pidgate.cli.app import app
from pidgate.cli.quota_change import set_by
from pidgate.gateway import logs
from tests.support.questions import is_refused, question
from tests.support.quota_site import FILE, Gateway, served

Typed = Callable[..., Result]


@pytest.fixture(autouse=True)
def log_elsewhere() -> Iterator[None]:
    """Not among what the command prints."""
    logs.configure("info", io.StringIO(), "json")
    yield
    structlog.reset_defaults()


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def flat(text: str) -> str:
    return " ".join(text.split())


def run(use: Callable[[Typed, Gateway], None], text: str = FILE, *options: str) -> None:
    """`use` is given a `typed` that names the gateway."""

    def with_address(address: str, gateway: Gateway) -> None:
        use(lambda *words: typed(*words, "--admin", address, *options), gateway)

    served(with_address, text)


def rate(gateway: Gateway, user: str = "alice") -> float | None:
    quota = gateway.book.in_force.quotas.users.get(user)
    milli = None if quota is None else quota.producer_ids_rate_milli
    return None if milli is None else milli / 1000


# ---- describe and diff ---------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("describe",), ("--describe",)])
def test_describe_is_a_table_of_what_is_said(words: tuple[str, ...]) -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        gateway.ask(1)
        result = typed("quotas", *words)
        assert result.exit_code == 0, result.output
        lines = [flat(line) for line in result.stdout.splitlines()]
        assert lines[0].startswith("gw-0 at 127.0.0.1:")
        assert lines[1] == "mode of all users: enforce (file)"
        assert "(default) producer_ids_rate 10 per 1h file" in lines
        assert "alice producer_ids_rate 2 per 1h file 1 of 2 team-a" in lines
        assert "bob mode observe file" in lines

    run(use)


def test_a_user_named_like_an_entity_is_another_row_and_commands_take_the_name_that_is_shown() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        typed("quotas", "block", "\\(default)")
        typed("quotas", "block", "CN=joe\\, jr")
        assert rate(gateway, "(default)") == rate(gateway, "CN=joe\\, jr") == 0
        lines = [flat(line) for line in typed("quotas").stdout.splitlines()]
        starts = [line for line in lines if "(default)" in line]
        assert [line.split(" ")[0] for line in starts] == ["(default)", "\\(default)"]
        assert any(line.startswith("CN=joe\\\\, jr producer_ids_rate 0") for line in lines)
        typed("quotas", "reset", "--user", "CN=joe\\\\, jr")
        assert rate(gateway, "CN=joe\\, jr") is None

    run(use)


def test_what_was_set_at_run_time_is_shown_with_who_when_and_why() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        typed("quotas", "raise", "alice", "500", "--for", "2h", "--note", "roll-out")
        typed("mode", "observe", "--all")
        shown = flat(typed("quotas").stdout)
        assert f"mode of all users: observe (run time, by {set_by()} at " in shown
        assert "; the file says enforce)" in shown
        assert "alice producer_ids_rate 500 per 1h run time, until 2" in shown
        assert "bob mode observe file" in shown, "what waits below the mode of all"
        assert f"{set_by()} at 2" in shown
        assert "roll-out" in shown
        difference = flat(typed("quotas", "diff").stdout)
        assert "(all users) mode observe observe enforce" in difference
        assert "alice producer_ids_rate 500 per 1h 500 per 1h 2 per 1h" in difference
        typed("quotas", "block", "carol")
        assert "carol producer_ids_rate 0 (blocked) 0 (blocked) not set" in flat(
            typed("quotas", "diff").stdout
        )
        typed("quotas", "reset", "--user", "carol")
        rows = json.loads(typed("quotas", "diff", "--json").stdout)[0]["differences"]
        assert [(row["user"], row["in_force"], row["in_file"]) for row in rows] == [
            (None, "observe", "enforce"),
            ("alice", 500, 2),
        ]

    run(use)


def test_a_rate_of_transactional_ids_is_set_shown_explained_and_removed() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        assert "transactional_ids_rate" not in typed("quotas").stdout
        one, of_all = "transactional_ids_rate=3", "transactional_ids_rate=50"
        typed("quotas", "alter", "--user", "alice", "--add-config", f"{one},producer_ids_rate=7")
        typed("quotas", "alter", "--entity-default", "--add-config", of_all)
        assert gateway.book.in_force.quotas.users["alice"].transactional_ids_rate_milli == 3_000
        assert [is_refused(gateway.ask_name(name)) for name in range(5)] == [False] * 4 + [True]
        shown = flat(typed("quotas").stdout)
        assert "transactional_ids_rate 3 per 1h run time" in shown
        assert "-1 of 3" in shown
        assert "transactional_ids_rate 50 per 1h run time" in shown
        of_bob = flat(typed("quotas", "--user", "bob").stdout)
        assert "transactional_ids_rate 50 per 1h run time, of the default user" in of_bob
        explained = flat(typed("explain", "--user", "alice").stdout)
        assert "alice: new transactional ids 3 per 1h (run time, by " in explained
        assert "Tokens of transactional ids: -1 of 3." in explained
        difference = flat(typed("quotas", "diff", "--entity-default").stdout)
        assert "transactional_ids_rate 50 per 1h 50 per 1h no limit" in difference
        typed("quotas", "alter", "--user", "alice", "--delete-config", "transactional_ids_rate")
        assert gateway.book.in_force.quotas.users["alice"].transactional_ids_rate_milli is None
        assert rate(gateway) == 7
        typed("quotas", "reset", "--entity-default")
        assert gateway.book.in_force.quotas.default.transactional_ids_rate_milli is None
        assert "transactional ids" not in typed("explain", "--user", "alice").stdout

    run(use)


def test_a_rate_of_producer_states_is_set_shown_explained_and_removed() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        typed("quotas", "alter", "--user", "alice", "--add-config", "producer_states_rate=2000")
        assert gateway.book.in_force.quotas.users["alice"].producer_states_rate_milli == 2_000_000
        assert "producer_states_rate 2,000 per 1h run time" in flat(typed("quotas").stdout)
        assert "producer_states_rate 2,000 per 1h" in flat(typed("quotas", "diff").stdout)
        explained = flat(typed("explain", "--user", "alice").stdout)
        assert "alice: new producer states 2,000 per 1h (run time, by " in explained
        assert "Tokens of producer states: 2,000 of 2,000" in explained
        assert "costs about" not in explained
        gateway.ask(1)
        client, _ = question("alice", 1)
        for partition in range(40):
            gateway.quota.note_pair(client, 1, b"t", partition, (), gateway.now_ms)
        explained = flat(typed("explain", "--user", "alice").stdout)
        assert "Tokens of producer states: 1,960 of 2,000" in explained
        assert re.search("costs about [34][0-9] producer states", explained)
        typed("quotas", "reset", "--user", "alice")
        assert "new producer states" not in typed("explain", "--user", "alice").stdout

    run(use)


def assert_in(result: Result, text: str, exit_code: int = 0) -> None:
    assert result.exit_code == exit_code, result.output
    assert text in flat(result.output)


def test_names_of_others_cannot_move_the_cursor() -> None:
    name = "x\x1b[2J[red]y"

    def use(typed: Typed, gateway: Gateway) -> None:
        result = typed("quotas", "alter", "--user", name, "--add-config", "producer_ids_rate=1")
        assert result.exit_code == 0
        assert rate(gateway, name) == 1
        shown = typed("quotas").stdout + typed("explain", "--user", name).stdout + result.stdout
        assert "\x1b[2J" not in shown
        assert "x\\x1b[2J[red]y" in shown

    run(use)


# ---- changes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", [("--alter",), ("alter",)])
def test_alter_as_kafka_configs_spells_it(spelling: tuple[str, ...]) -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        whom = ("--entity-name", "alice")
        result = typed("quotas", *spelling, *whom, "--add-config", "producer_ids_rate=0.5,mode=observe")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[:2] == [
            "alice: producer_ids_rate 0.5 per 1h",
            "alice: mode observe",
        ]
        assert "kept in its memory, until it ends: only this gateway has it" in result.stdout
        assert "repeat it with --admin HOST:PORT for each" in result.stdout
        assert rate(gateway) == 0.5
        typed("quotas", *spelling, *whom, "--delete-config", "producer_ids_rate,mode")
        assert rate(gateway) is None
        assert gateway.book.in_force.quotas.users["alice"].mode is None
        assert "run time (removed)" in typed("quotas").stdout

    run(use)


def test_a_raise_that_raises_nothing_is_a_mistake() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        assert_in(typed("quotas", "raise", "alice", "2"), "alice has 2 per 1h at gw-0 already", 2)
        typed("quotas", "alter", "--entity-default", "--delete-config", "producer_ids_rate")
        assert_in(typed("quotas", "raise", "carol", "5"), "carol has no limit at gw-0", 2)
        assert rate(gateway) == 2

    run(use)


def test_the_mode_of_one_of_all_and_of_the_file() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        def modes() -> tuple[str, str]:
            told = json.loads(typed("quotas", "--user", "alice", "--json").stdout)[0]
            return str(told["mode"]["value"]), str(told["entries"][0]["effective_mode"]["value"])

        assert_in(typed("mode", "observe", "--user", "alice"), "alice: mode observe gw-0: in force")
        assert modes() == ("enforce", "observe")
        assert_in(typed("mode", "enforce", "--all", "--for", "1h"), "(all users): mode enforce until 2")
        assert modes() == ("enforce", "enforce")
        assert_in(typed("mode", "observe", "--all"), "the temporary enforce (until 2")
        assert modes() == ("observe", "observe")
        assert_in(typed("mode", "file", "--all"), "(all users): mode is again as in the file")
        assert modes() == ("enforce", "observe")
        typed("mode", "file", "--user", "alice")
        assert modes() == ("enforce", "enforce")
        assert_in(typed("mode", "file", "--all"), "nothing was set at run time")

    run(use)


def test_refill_and_release() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        for number in range(4):
            gateway.ask(number)
        assert_in(
            typed("quotas", "release", "--user", "alice", "--producer-id", "3"),
            "alice: producer id 3 is admitted, uncharged gw-0: done; done by this gateway only",
        )
        assert not is_refused(gateway.ask(3, came_back=True))
        assert is_refused(gateway.ask(5))
        assert_in(typed("quotas", "refill", "alice"), "alice: its bucket is full")
        assert not is_refused(gateway.ask(5))

    run(use)


# ---- explain -------------------------------------------------------------------------------------------


def test_explain_says_why_until_when_and_what_to_do() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        for number in range(4):
            gateway.ask(number)
        gateway.now_ms += 11_000
        gateway.ask(3, came_back=True)
        gateway.now_ms += 1_000
        shown = typed("explain", "--user", "alice", "--producer-id", "3").stdout
        for line in (
            "alice: quota 2 per 1h (file)",
            "alice: mode enforce (file, of all users)",
            "owner: team-a",
            "Tokens: -1 of 2: the next new id in ",
            "In line: 1 id, the one that waits longest for 1 s.",
            "Remembered: 3 ids, which cost nothing.",
            "Last refused: producer id 3 1 s ago, because the quota of its user is used up (2 per 1h, "
            "place 1 in line); it may retry in 9 s, at ",
            "Producer id 3 is not remembered",
            "Producer id 3 waits since 1 s, is next, was refused 2 times (address 10.0.0.7, client id 'app').",
            "This id only: pidgate quotas release --user alice --producer-id 3",
        ):
            assert line in shown
        assert "Producer id 0 is remembered: it costs nothing" in flat(
            typed("explain", "--user", "alice", "--producer-id", "0").stdout
        )
        typed("quotas", "release", "--user", "alice", "--producer-id", "3")
        assert (
            "Producer id 3 was released" in typed("explain", "--user", "alice", "--producer-id", "3").stdout
        )
        gateway.quota.decide(*question("alice"), gateway.now_ms)
        shown = typed("explain", "--user", "alice").stdout
        assert "Last refused: a new producer id (InitProducerId) 0 ms ago, because the quota" in shown
        typed("quotas", "block", "alice")
        gateway.ask(11)
        assert (
            "because new ids of its user are blocked (rate 0)" in typed("explain", "--user", "alice").stdout
        )
        typed("mode", "observe", "--all")
        assert (
            "Not in force: alice is observed (run time, of all users)."
            in typed("explain", "--user", "alice").stdout
        )

    run(use)


# ---- which gateway, and what goes wrong ----------------------------------------------------------------


def test_each_gateway_is_told_by_itself_and_one_that_is_gone_keeps_nobody_waiting() -> None:
    def use(first: str, gateway: Gateway) -> None:
        def inner(second: str, other: Gateway) -> None:
            named = ("--admin", first, "--admin", "127.0.0.1:1", "--admin", second)
            result = typed("quotas", "block", "alice", *named)
            assert result.exit_code == 1
            assert (
                "127.0.0.1:1 does not answer (Connection refused); is it the admin address" in result.stderr
            )
            assert result.stdout.count("gw-0: in force") == 2
            assert (rate(gateway), rate(other)) == (0, 0)
            told = json.loads(typed("quotas", "--json", *named).stdout)
            assert [("error" in one) for one in told] == [False, True, False]

        served(inner)

    served(use)


def test_the_file_names_the_gateway_and_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    text = FILE.replace("writable: true", f"writable: true, token_file: {token}")

    def use(address: str, gateway: Gateway) -> None:
        file = tmp_path / "pidgate.yaml"
        file.write_text(text.replace("127.0.0.1:9290", address))
        assert typed("quotas", "block", "alice", "--config", str(file)).exit_code == 0
        assert rate(gateway) == 0
        refused = typed("quotas", "--admin", address)
        assert refused.exit_code == 1
        assert "needs the token of admin.token_file" in refused.stderr
        assert "name its file with --token-file" in refused.stderr
        assert typed("quotas", "--admin", address, "--token-file", str(token)).exit_code == 0
        assert_in(typed("quotas", "--token-file", str(tmp_path / "none")), "cannot be read", 2)

    served(use, text)


def test_a_gateway_that_may_not_be_written_says_what_to_set() -> None:
    run(
        lambda typed, _gateway: assert_in(
            typed("quotas", "block", "alice"), "set admin.writable: true in the gateway's file", 1
        ),
        FILE.replace(", writable: true", ""),
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("quotas", "alter", "--add-config", "producer_ids_rate=1"), "no user; write --user alice"),
        (("quotas", "alter", "--user", ""), "an empty user name"),
        (("quotas", "alter", "--user", "a"), "no change; write --add-config"),
        (("quotas", "alter", "--user", "a", "--add-config", "producer_ids_rate"), "sets nothing"),
        (("quotas", "alter", "--user", "a", "--add-config", "producer_ids_rate=nan"), "'nan' is not a rate"),
        (("quotas", "alter", "--user", "a", "--add-config", "producer_byte_rate=much"), "is no byte rate"),
        (("quotas", "alter", "--user", "a", "--add-config", "producer_byte_rate=0"), "greater than 0"),
        (("quotas", "alter", "--user", "a", "--add-config", "color=red"), "'color' cannot be set"),
        (
            ("quotas", "alter", "--entity-default", "--add-config", "mode=observe"),
            "pidgate mode observe --all",
        ),
        (("quotas", "alter", "--user", "a", "--add-config", "mode=off"), "'off' is no mode"),
        (("quotas", "block", "a", "--for", "2"), "--for: '2' is not a duration"),
        (("quotas", "descibe"), "Did you mean 'describe'?"),
        (("mode", "observe"), "no user; write --user alice, or --all"),
        (("mode", "file", "--all", "--for", "2h"), "works with observe and enforce"),
        (("quotas", "release", "--user", "a"), "Missing option"),
    ],
)
def test_what_cannot_be_meant_is_said_and_nothing_is_changed(words: tuple[str, ...], complaint: str) -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        assert_in(typed(*words), complaint, 2)
        assert gateway.book.in_force.version == 1

    run(use)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("quotas", "--admin", "nowhere"), "has no port"),
        (("quotas", "--config", "/nowhere.yaml"), "cannot be read"),
        (("explain", "--user", "a", "--admin", "http://x:1"), "is a URL"),
    ],
)
def test_a_gateway_that_cannot_be_meant(words: tuple[str, ...], complaint: str) -> None:
    assert_in(typed(*words), complaint, 2)
