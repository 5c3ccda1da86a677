"""The loads on the quota alone, in small."""

from tools.bench.loads.quota_memory import two_windows


def test_ids_of_two_windows_are_all_remembered_and_hardly_any_other() -> None:
    measured = two_windows({"users": 4, "live_ids": 500})
    assert measured["live_ids"] == 2_000
    assert measured["found_known"] == 1
    assert measured["found_unknown"] < 0.005
    assert 2 * 2_000 * 2 < measured["filter_bytes"] < 2 * 2_000 * 8, "each id stands in both layers"
    assert measured["check_known_us"] > 0
