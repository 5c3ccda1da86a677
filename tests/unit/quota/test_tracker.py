"""The library: KIP-936's track, and its page."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.tracker import DAY_MS, HOUR_MS, ProducerIdTracker
from tests.support.import_graph import ROOT


def test_the_example_of_the_page_prints_what_the_page_shows() -> None:
    blocks = re.findall(
        r"```(?:python)?\n(.*?)```",
        (ROOT / "docs" / "reference" / "library.md").read_text("utf-8"),
        re.DOTALL,
    )
    code, shown = blocks
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown


def test_a_known_id_is_free_until_it_is_forgotten() -> None:
    tracker = ProducerIdTracker(lambda: 1, rate=1)
    assert [tracker.track("alice", number, 0) for number in (1, 2)] == [0, 0]
    assert tracker.track("alice", 3, 0) > 0
    assert tracker.track("alice", 1, HOUR_MS // 2) == 0
    assert tracker.is_known("alice", 1, HOUR_MS)
    assert not tracker.is_known("alice", 3, HOUR_MS)
    assert not tracker.is_known("alice", 2, 3 * DAY_MS)


def test_users_have_buckets_of_their_own() -> None:
    tracker = ProducerIdTracker(lambda: 1, rate=100, rates={"mallory": 0})
    assert tracker.track("mallory", 1, 0) > 0
    assert tracker.track("alice", 1, 0) == 0
    tracker.forget_idle_users(1)
    assert tracker.is_known("alice", 1, 1)


def test_an_id_below_0_is_an_error() -> None:
    with pytest.raises(ValueError, match="not below 0"):
        ProducerIdTracker(lambda: 1, rate=1).track("alice", -1, 0)


@given(st.lists(st.integers(0, 60_000), max_size=80), st.integers(1, 5))
def test_no_more_than_the_rate_and_the_burst_pass(pauses_ms: list[int], rate: int) -> None:
    tracker, now_ms, passed = ProducerIdTracker(lambda: 1, rate, window_ms=60_000), 0, 0
    for producer_id, pause_ms in enumerate(pauses_ms):
        now_ms += pause_ms
        passed += tracker.track("alice", producer_id, now_ms) == 0
    assert passed <= rate + rate * now_ms / 60_000 + 1
