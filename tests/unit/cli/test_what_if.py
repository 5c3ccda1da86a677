"""The recorded day at other rates, and the process that replays it for a gateway."""

from __future__ import annotations

import pytest

from pidgate.cli.what_if import answer
from pidgate.events.writing import to_json
from pidgate.gateway.config.loading import parse
from pidgate.gateway.present import what_if
from pidgate.gateway.present.question import Question
from pidgate.gateway.present.what_if import CannotTell
from pidgate.quota.settings import ProducerIdSettings
from tests.support.who_events import HOUR_MS, START_MS, Client, Stream

IDS = 120
EVERY_MS = 1_000
DAY_MS = 24 * HOUR_MS


def question(*rates: float, user: str = "mallory", record_ms: int = DAY_MS) -> Question:
    """A storm of new ids in the last of so many hours of record, 50 requests each; and another user's."""
    stream = Stream()
    for number in range(IDS):
        stream.producer(Client(user="mallory"), START_MS + number * EVERY_MS, life_ms=500, requests=50)
        stream.producer(Client(user="alice"), START_MS + number * EVERY_MS, life_ms=500)
    now_ms = START_MS + HOUR_MS
    return Question(
        settings=parse("cluster: {bootstrap_servers: [127.0.0.1:1]}"),
        producer_ids=ProducerIdSettings(window_ms=HOUR_MS),
        user=user,
        rates=rates,
        wall_ms=now_ms,
        from_wall_ms=now_ms - DAY_MS,
        brokers=6,
        events=[(event.wall_time_ms, to_json(event)) for event in stream.events()],
        whole_from_wall_ms=now_ms - record_ms,
    )


def test_each_rate_says_what_it_refuses() -> None:
    told = answer(question(1_000, 60, 0))
    assert (told["new_ids"], told["not_enough"]) == (IDS, "")
    all_pass, some, none = told["rows"]
    assert [all_pass[key] for key in ("refused_ids", "lost_ids", "lost_requests", "longest_wait_ms")] == [
        0
    ] * 4
    assert all_pass["states_per_broker"] == IDS * 3 / 6
    assert [none[key] for key in ("refused_ids", "lost_ids", "lost_requests", "lost_records")] == [
        IDS, IDS, 50 * IDS, 50 * IDS
    ]  # fmt: skip
    assert none["states_per_broker"] == 0
    # A bucket of 60, and one token more a minute: those that come later than that wait for 120 s at most.
    assert 50 <= some["refused_ids"] <= 60
    assert 0 < some["lost_ids"] < some["refused_ids"]
    assert some["lost_requests"] == 50 * some["lost_ids"]
    assert 0 < some["longest_wait_ms"] <= 120_000


def test_too_little_record_is_said() -> None:
    told = answer(question(60, record_ms=HOUR_MS // 2))
    assert told["not_enough"] == "Not enough record: it holds 30 min, and needs 1 h"
    assert len(told["rows"]) == 1
    assert answer(question(60, user="nobody"))["not_enough"].endswith("no new id of this user")


def test_it_runs_in_a_process_of_its_own_that_is_stopped_after_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = question(60)
    monkeypatch.setattr(what_if, "LONGEST_S", 50)  # of a machine that is busy
    assert what_if._run(asked) == answer(asked)
    monkeypatch.setattr(what_if, "LONGEST_S", 0.01)
    with pytest.raises(CannotTell, match="was stopped after"):
        what_if._run(asked)
