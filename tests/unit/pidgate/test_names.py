"""What is kept of a name that a client chose is bounded, and two names stay two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.redaction import pseudonym
from pidgate.names import LONGEST_NAME, bounded, escaped, unescaped


@given(st.text(max_size=300))
def test_what_is_short_stays_and_what_is_long_is_cut_once(name: str) -> None:
    kept = bounded(name)
    assert len(kept) <= LONGEST_NAME
    assert (kept == name) is (len(name) <= LONGEST_NAME)
    assert bounded(kept) == kept
    assert pseudonym("user", name) == pseudonym("user", kept)


def test_long_names_that_begin_alike_stay_two() -> None:
    assert bounded("a" * 32_000) != bounded("a" * 32_001)
    assert bounded("a" * 300 + "\ud800") != bounded("a" * 300), "half a surrogate pair, as a token may hold"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alice", "alice"),
        ("CN=joe\\, jr,O=acme", "CN=joe\\\\, jr,O=acme"),
        ("(default)", "\\(default)"),
        ("\\(default)", "\\\\(default)"),
        ("a (b)", "a (b)"),
        ("a\n\x1b[2J", "a\\n\\x1b[2J"),
        ("a\\n", "a\\\\n"),
        ("\u202eevil\U000e0001", "\\u202eevil\\U000e0001"),
        ("\u00fcber", "\u00fcber"),
        ("\udc80", "\\udc80"),
    ],
)
def test_a_name_is_shown_in_one_way_that_is_no_others_and_commands_understand(name: str, shown: str) -> None:
    assert escaped(name) == shown
    assert unescaped(shown) == name


@given(st.text(alphabet="\\(n)x41u\n\x00\u202ea"))
def test_each_name_comes_back_from_what_is_shown(name: str) -> None:
    assert unescaped(escaped(name)) == name


def test_a_backslash_that_escapes_nothing_is_of_the_name() -> None:
    assert unescaped("CN=joe\\, jr\\") == "CN=joe\\, jr\\"
