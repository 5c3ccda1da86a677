"""What the load of Metadata computes and reads."""

from collections.abc import Mapping

import pytest

from tests.support.frames import codec
from tools.bench.loads.metadata import metadata_requests, topic_name
from tools.bench.scenarios import lateness
from tools.bench.scenarios.lateness import Moment
from tools.sandbox.gateway import Metrics

MetadataRequest = codec("metadata", "MetadataRequest")
NAME = "pidgate_event_loop_lateness_seconds"


def scrape(buckets: Mapping[str, int], busy_s: float, no_core_s: float, waited_ns: int) -> Moment:
    lines = [f"# TYPE {NAME} histogram"]
    for cause, total_s in (("busy", busy_s), ("no_core", no_core_s)):
        label = f'cause="{cause}"'
        lines += [f'{NAME}_bucket{{{label},le="{bound}"}} {count}' for bound, count in buckets.items()]
        lines += [f"{NAME}_count{{{label}}} {buckets['+Inf']}", f"{NAME}_sum{{{label}}} {total_s}"]
    return Moment(Metrics.parse("\n".join([*lines, ""])), waited_ns)


def test_lateness_is_what_was_counted_between_two_scrapes() -> None:
    before = scrape({"0.005": 100, "+Inf": 104}, 0.5, 0.0, 7_000_000)
    after = scrape({"0.005": 190, "+Inf": 204}, 0.8, 0.2, 9_500_000)
    assert lateness.since(before, after) == pytest.approx(
        {
            "ticks": 100,
            "late_5ms": 10,
            "late_ms": 3.0,
            "late_without_core_ms": 2.0,
            "waited_for_core_ms": 2.5,
        }
    )


def test_all_topics_are_asked_for_and_then_all_but_a_different_one() -> None:
    requests = [MetadataRequest.decode(frame[4:], version=12, header=True) for frame in metadata_requests(5)]
    asked = [None if one.topics is None else [topic.name for topic in one.topics] for one in requests]
    assert asked[0] is None
    names = [topic_name(number) for number in range(5)]
    assert asked[1:] == [[name for name in names if name != left_out] for left_out in names]
