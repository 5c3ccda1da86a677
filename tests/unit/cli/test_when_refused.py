"""When a quota bites, and for whom: every command says the same of one moment, and it is what the quota does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from tests.support.questions import is_refused
from tests.support.quota_site import FILE, Gateway
from tests.unit.cli.test_cli_quotas import flat, run

Typed = Callable[..., Result]
HOUR_MS = 3_600_000
LATER = "In force from "
NOW = "In force now: "
NEVER = "Not in force: "


def said(typed: Typed, user: str) -> str:
    """Return the sentence, which `describe` and `explain` have to share."""
    found = set()
    for words in (("quotas", "describe", "--user", user), ("explain", "--user", user)):
        lines = [flat(line) for line in typed(*words).stdout.splitlines()]
        found |= {line for line in lines if line.startswith((LATER, NOW, NEVER))}
    assert len(found) == 1, found
    return found.pop()


def admitted(gateway: Gateway, user: str, first: int, most: int = 200) -> int:
    """Return how many new ids pass before one is refused."""
    for number in range(most):
        if is_refused(gateway.ask(first + number, user=user)):
            return number
    return most


def test_a_promise_of_each_command_is_what_the_quota_does() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        gateway.quota.begin_grace(gateway.now_ms + HOUR_MS)
        shown = flat(typed("mode", "enforce", "--user", "alice").stdout)
        assert LATER in shown
        assert "20 more new producer ids of alice pass uncharged (grace)" in shown
        assert said(typed, "alice").startswith(LATER)
        assert admitted(gateway, "alice", 0) == 20 + 3, (
            "ten times the rate, then the bucket of 2 and one more"
        )

        assert admitted(gateway, "carol", 0, 5) == 5
        shown = flat(typed("quotas", "grace", "--user", "carol", "--end").stdout)
        assert "(grace)" not in shown
        assert NOW in shown
        assert said(typed, "carol").startswith(NOW)
        assert admitted(gateway, "carol", 100) == 11, "the bucket of 10 and one more"

        assert LATER in typed("quotas", "raise", "dave", "50").stdout
        shown = flat(typed("quotas", "grace", "--all", "--end").stdout)
        assert "each new producer id of any other user is refused above the quota" in shown
        assert said(typed, "dave").startswith(NOW)
        assert admitted(gateway, "dave", 0) == 51

    run(use)


def test_a_grace_for_one_user_ends_by_itself_or_by_a_command_and_counts_from_0() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        assert said(typed, "alice").startswith(NOW)
        assert admitted(gateway, "alice", 0) == 3
        shown = flat(typed("quotas", "grace", "--user", "alice", "--for", "1h").stdout)
        assert "alice: grace 10 x the rate until 2" in shown
        assert LATER in shown
        assert said(typed, "alice").startswith(LATER)
        assert said(typed, "carol").startswith(NOW), "of no other"
        assert admitted(gateway, "alice", 100, 15) == 15
        assert "alice grace 10 x the rate 10 x the rate" in flat(typed("quotas", "diff").stdout)
        assert NOW in typed("quotas", "grace", "--user", "alice", "--end").stdout
        assert admitted(gateway, "alice", 200) == 0
        typed("quotas", "grace", "--user", "alice", "--for", "1h")
        assert admitted(gateway, "alice", 300) == 20

        typed("quotas", "grace", "--all", "--for", "1h")
        assert said(typed, "carol").startswith(LATER)
        assert admitted(gateway, "carol", 0) == 100 + 11
        typed("quotas", "grace", "--user", "carol", "--end")
        assert said(typed, "carol").startswith(NOW)
        assert said(typed, "dave").startswith(LATER)

    run(use)


def test_block_is_in_force_under_grace_and_names_what_it_leaves_out() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        gateway.quota.begin_grace(gateway.now_ms + HOUR_MS)
        gateway.ask(1)
        shown = flat(typed("quotas", "block", "alcie").stdout)
        assert (
            f"{NOW}every new producer id of alcie is refused, but those of transactional producers" in shown
        )
        assert "seen no producer id of this name; the nearest known name is alice." in shown
        assert admitted(gateway, "alcie", 0) == 0
        assert "nearest" not in typed("quotas", "block", "alice").stdout

    run(use)


def test_a_site_without_logins_is_told_that_everybody_is_anonymous() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        gateway.ask(1, user="ANONYMOUS")
        assert "all of them are ANONYMOUS" in typed("quotas", "block", "alice").stdout

    run(use)


@pytest.mark.parametrize("command", [("describe",), ("diff",)])
def test_the_mode_of_all_is_above_a_users_own_in_every_table(command: tuple[str, ...]) -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        typed("mode", "enforce", "--user", "bob")
        shown = flat(typed("mode", "observe", "--all").stdout)
        assert f"{NEVER}any other user is observed (run time, of all users)." in shown
        assert NEVER in said(typed, "bob")
        assert said(typed, "bob").endswith("To enforce: pidgate mode file --all")
        shown = flat(typed("quotas", *command).stdout)
        expected = {
            "describe": "bob mode enforce (overridden) run time",
            "diff": "bob mode enforce observe observe",
        }
        assert expected[command[0]] in shown
        assert admitted(gateway, "bob", 0, 30) == 30

    run(use)


def test_exempt_users_and_users_without_a_rate_are_named() -> None:
    text = (
        FILE.replace("default: {producer_ids_rate: 10}", "default: {}")
        + "    root: {exempt: [producer_ids]}\n"
    )

    def use(typed: Typed, gateway: Gateway) -> None:
        assert said(typed, "root") == f"{NEVER}the file exempts root. Nothing is refused in any mode."
        assert said(typed, "carol").startswith(f"{NEVER}carol has no limit.")
        assert "Exempt by the file, so never refused: root." in flat(typed("mode", "enforce", "--all").stdout)

    run(use, text)


@pytest.mark.parametrize(
    "words",
    [
        ("--for", "1h"),
        ("--user", "alice", "--all", "--for", "1h"),
        ("--user", "alice"),
        ("--user", "alice", "--for", "1h", "--end"),
        ("--user", "alice", "--for", "soon"),
    ],
)
def test_a_grace_has_a_user_and_an_end(words: tuple[str, ...]) -> None:
    run(lambda typed, _gateway: _wrong_usage(typed("quotas", "grace", *words)))


def _wrong_usage(result: Result) -> None:
    assert result.exit_code == 2, result.output
