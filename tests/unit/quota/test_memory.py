"""The bounds of memory, measured as RSS of a process of its own on a small part of the bench's load."""

from __future__ import annotations

from tools.bench.scenarios.memory import run

OWNERS_AND_CACHES_BYTES = 8_000_000
"""What does not grow with users and ids: 80,000 owners, 2,000 connections, the latest admissions."""


def test_live_ids_refreshed_in_every_slice_take_15_bytes_each() -> None:
    """150 MB for 10 million; a two-hundredth of them here, until layers come and go at the same rate."""
    measured = run("steady", {"users": 50, "live_ids": 1_000, "remembers": 1.25, "rate": 150})
    assert measured["refused_requests"] == measured["overfull"] == 0
    assert 49_950 <= measured["live_ids"] <= 50_000
    assert measured["filter_bytes"] <= 50_000 * 13.6
    assert measured["peak_bytes"] <= 50_000 * 15 + OWNERS_AND_CACHES_BYTES


def test_a_rogue_fills_its_bounds_and_no_more() -> None:
    """1,389 new ids a second, as five million in an hour."""
    measured = run("rogue", {"ids": 90_000, "per_s": 5_000_000 / 3_600})
    assert measured["closed"] > 30_000
    assert measured["grown_bytes_5"] <= 50_000_000
    assert measured["grown_bytes_5"] - measured["grown_bytes_3"] <= 5_000_000
