"""What is kept of a name that a client chose is bounded, and two names stay two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.redaction import pseudonym
from pidgate.names import LONGEST_NAME, bounded


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
