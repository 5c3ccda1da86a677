"""The newest events in memory: bounded, and honest about what was evicted."""

from pidgate.gateway.state.recent_events import MOST_BYTES, RecentEvents


def test_the_oldest_are_evicted_and_the_rest_is_whole() -> None:
    recent = RecentEvents(0)
    value = b"x" * 1_000
    count = 2 * MOST_BYTES // len(value)
    for at_ms in range(1, count + 1):
        recent.add(value, at_ms)
    kept = [at_ms for at_ms, _ in recent.since(0)]
    assert 0.8 * MOST_BYTES < len(kept) * len(value) <= MOST_BYTES
    assert kept == list(range(count - len(kept) + 1, count + 1))
    assert recent.whole_from_wall_ms == kept[0]
    assert [at_ms for at_ms, _ in recent.since(count)] == [count]
