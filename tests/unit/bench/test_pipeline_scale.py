"""A committed result of the pipeline's benchmark is what its script writes, as a whole; and what ingest is given."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pidgate.events.reading import from_json
from tests.pipeline.made_events import write_events
from tests.support.who_events import START_MS, Client, Stream
from tools.bench import pipeline_scale as bench
from tools.bench.events_topic import records


def whole() -> dict[str, Any]:
    """What the script would write now."""
    wanted = [
        (bench.INGEST, bench.INGEST_EVENTS),
        *((job, size) for size in bench.SIZES for job in bench._jobs_at(size, bench.SIZES)),
    ]
    runs = [asdict(bench.Run(job, events, events // 4, 12.5, 20.5, 1.75)) for job, events in wanted]
    names = dict.fromkeys(bench.JUDGED)
    machine = {"cpu": "a CPU", "cores": 2, "memory_gib": 24, "python": "3.11.7"}
    return {
        "date": "2026-11-21",
        "machine": machine | {"commit": bench._git("rev-parse", "--short=12", "HEAD")},
        "runs": runs,
        "found": [{"events": 5, "seed": 1, **names, "pattern": "steady", "users": 3}],
    }


def test_a_whole_result_is_kept() -> None:
    assert bench.problem(whole()) is None
    assert "| ingest | 1,000,000 | 250,000 | 12 | 20 | 1.75 |" in bench.page(whole())


def test_a_result_in_the_repository_comes_from_the_script() -> None:
    file, page = (bench.RESULTS.with_suffix(suffix) for suffix in (".json", ".md"))
    assert file.exists() == page.exists()
    if file.exists():
        content = json.loads(file.read_text())
        assert bench.problem(content) is None
        assert page.read_text() == bench.page(content)


def unknown_commit(content: dict[str, Any]) -> None:
    content["machine"]["commit"] = "97b5d95feb03"


def another_part(content: dict[str, Any]) -> None:
    content["remarks"] = "by hand"


@pytest.mark.parametrize(
    "by_hand",
    [unknown_commit, another_part],
)
def test_what_a_hand_has_changed_is_noticed(by_hand: Any) -> None:
    content = deepcopy(whole())
    by_hand(content)
    assert bench.problem(content) is not None


# What ingest is given


def test_the_topic_holds_the_events_as_their_gateways_wrote_them(tmp_path: Path) -> None:
    stream = Stream()
    for number in range(3):
        stream.decide(Client(user="alice"), START_MS + number * 1_000, 7_000 + number, "admit", "first_seen")
    stream.config(START_MS, None)
    made = stream.events()
    for kind in {event.type for event in made}:
        rows = ({"schema_version": 1, **asdict(event)} for event in made if event.type == kind)
        write_events(str(tmp_path), kind, rows)
    found = list(records(tmp_path))
    by_number = sorted(made, key=lambda event: (event.gateway_id, event.incarnation, event.seq))
    assert [from_json(record.value) for record in found] == by_number
    assert [record.timestamp_ms for record in found] == [event.wall_time_ms for event in by_number]
    assert {record.key for record in found} == {b"alice", b""}
