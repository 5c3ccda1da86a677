"""States by hour and broker against a count by hand, the bound against quota's own bucket, the job end to end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pidgate.pipeline.commands.common import pass_over
from pidgate.pipeline.commands.failover import answer_from
from pidgate.pipeline.days import EVER, Days
from pidgate.pipeline.engines import results_of
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.failover import words
from pidgate.pipeline.failover.cascade import Heap, Load
from pidgate.pipeline.failover.study import HOUR_MS, NO_QUOTA, Options, Past, Plan, ends, loads_of
from pidgate.pipeline.in_force import (
    CHECK_INTERVAL_MS,
    enforced,
    expiration_ms,
    newest_event,
    settings,
    shares,
    windows,
)
from pidgate.pipeline.passes import FAILOVER, Pass
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.tables import Tables
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket
from tests.pipeline.made_events import DAY, Row, event, tables_of, write_events

EXPIRY_MS = 2 * HOUR_MS
START_MS = 480_000 * HOUR_MS
REPLICAS = {"clicks": [[1, 2], [2, 3], [1, 2], [1, 2]], "views": [[3], [3]]}
RATE = 10


@dataclass(frozen=True)
class Life:
    """One id of the made-up past; it writes to every partition of its topic."""

    user: str
    topic: str
    producer_id: int
    first_ms: int
    last_ms: int
    admitted: bool = True


def made_up_lives() -> list[Life]:
    """A rogue with 30 ids an hour, some refused; some of several hours; 8 hours in all."""
    dice = random.Random(7)
    told = []
    for number in range(240):
        first_ms = START_MS + number * HOUR_MS // 30
        told.append(Life("rogue", "clicks", number, first_ms, first_ms, admitted=dice.random() < 0.7))
    for number in range(1_000, 1_020):
        first_ms = START_MS + dice.randrange(4 * HOUR_MS)
        life_ms = dice.randrange(3 * HOUR_MS)
        told.append(Life("steady", dice.choice(["clicks", "views"]), number, first_ms, first_ms + life_ms))
    return told


LIVES = made_up_lives()


def rows() -> dict[str, list[Row]]:
    return {
        "decision": [
            event(
                "decision",
                wall_time_ms=one.first_ms,
                user=one.user,
                producer_id=one.producer_id,
                topic=one.topic,
                decision="admit" if one.admitted else "refuse",
                reason="first_seen",
            )
            for one in LIVES
        ],
        "id_usage": [
            event(
                "id_usage",
                wall_time_ms=one.last_ms,
                user=one.user,
                producer_id=one.producer_id,
                partitions=len(REPLICAS[one.topic]),
                first_ms=one.first_ms,
                last_ms=one.last_ms,
            )
            for one in LIVES
            if one.admitted
        ],
        "topology": topology(),
        "config": [config(), config(wall_time_ms=0, default_rate_milli=1, quotas=[])],
    }


def topology() -> list[Row]:
    """The newest event counts: an older one has everything on broker 9, and another expiry."""
    newest = [{"topic": name, "leaders": [], "replicas": places} for name, places in REPLICAS.items()]
    old = [{"topic": "clicks", "leaders": [], "replicas": [[9]]}]
    times = {"wall_time_ms": START_MS, "producer_id_expiration_ms": EXPIRY_MS}
    before = {"wall_time_ms": START_MS - 1, "producer_id_expiration_ms": 1}
    return [
        event("topology", brokers=[], topics=newest, **times),
        event("topology", brokers=[], topics=old, **before),
    ]


def config(**changes: Any) -> Row:
    quotas = [
        {"user": "steady", "rate_milli": 5_000, "exempt": True},
        {"user": "rogue", "rate_milli": RATE * 1_000, "exempt": False},
    ]
    told = {
        "wall_time_ms": START_MS, "mode": "enforce", "window_ms": HOUR_MS, "burst": 1.0, "remember_ms": DAY,
        "layers": 4, "false_positive_rate": 0.001, "transactional": "observe", "max_throttle_ms": 10_000,
        "max_live_ids": 10_000, "queue": 10, "sticky_entries": 10, "default_rate_milli": 7_000,
        "quotas": quotas, **changes,
    }  # fmt: skip
    return event("config", **told)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    """Of two parts, a user in each, as an engine keeps it."""
    tables = Tables(None, str(tmp_path))
    write_events(tables.root, "topology", topology())
    parts = []
    for user in ("rogue", "steady"):
        todo = Pass((FAILOVER,), DAY, EXPIRY_MS)
        mine = {name: [row for row in of_type if row.get("user") == user] for name, of_type in rows().items()}
        parts.append(todo.of_part(todo.of_bucket(tables_of(mine, todo.by_id)))["failover_past"])

    def ask(do: Callable[[pa.Table], pa.Table]) -> pa.Table:
        return pa.concat_tables([do(part) for part in parts])

    return Past(ask, shares(tables), ProducerIdSettings(), EXPIRY_MS, {"rogue"}, 2.0, *ends(ask))


@pytest.fixture
def loads(past: Past) -> dict[str, Load]:
    return loads_of(past, {NO_QUOTA: Plan(), "10": Plan(RATE), "0": Plan(0.0)})


def hour(at_ms: int) -> int:
    return at_ms // HOUR_MS * HOUR_MS


def counted_by_hand(past: Sequence[Life]) -> Counter[tuple[int, int]]:
    """(broker, hour) to states: one for each id, partition, replica and hour."""
    states: Counter[tuple[int, int]] = Counter()
    for one in past:
        gone_ms = one.last_ms + EXPIRY_MS + CHECK_INTERVAL_MS
        for at_ms in range(hour(one.first_ms), gone_ms + 1, HOUR_MS):
            for replicas in REPLICAS[one.topic]:
                states.update((broker, at_ms) for broker in replicas)
    return states


def test_states_without_quotas_are_those_counted_by_hand(loads: dict[str, Load]) -> None:
    load, by_hand = loads[NO_QUOTA], counted_by_hand(LIVES)
    assert load.brokers == [1, 2, 3]
    assert load.hours_ms[0] == START_MS
    assert load.hours_ms[-1] == hour(max(one.last_ms for one in LIVES))
    for index, at_ms in enumerate(load.hours_ms):
        assert load.states[index] == pytest.approx([by_hand[broker, at_ms] for broker in load.brokers])


def test_ids_of_a_broker_are_those_that_write_to_it(loads: dict[str, Load]) -> None:
    """Every id of clicks writes to all partitions: brokers 1 and 2 have them all, 3 those of views, too."""
    load = loads[NO_QUOTA]
    in_first_hour = [one for one in LIVES if hour(one.first_ms) == START_MS]
    of_clicks = sum(one.topic == "clicks" for one in in_first_hour)
    assert load.ids[0] == pytest.approx([of_clicks, of_clicks, len(in_first_hour)])


def test_a_storm_is_every_id_in_use_again(loads: dict[str, Load]) -> None:
    """The rogue reopens two for each: 30 ids an hour of 4 partitions, 60 new ones."""
    storm = loads[NO_QUOTA].storm_states
    assert storm[2] == pytest.approx([60 * 3, 60 * 4, 60 * 1])
    assert loads["0"].storm_states[2] == pytest.approx([0, 0, 0])


def test_under_a_quota_there_is_never_more_than_quotas_own_bucket_lets_in(loads: dict[str, Load]) -> None:
    bucket = TokenBucket(RATE * 1_000, HOUR_MS, Fraction(1), START_MS)
    let_in = []
    for one in LIVES:
        if one.user == "steady":
            let_in.append(one)
        elif bucket.wait_ms(0, one.first_ms) == 0:
            bucket.charge(one.first_ms)
            let_in.append(one)
    admitted = counted_by_hand(let_in)
    wanted = counted_by_hand(LIVES)
    load = loads["10"]
    for index, at_ms in enumerate(load.hours_ms):
        for column, broker in enumerate(load.brokers):
            assert admitted[broker, at_ms] <= load.states[index, column] <= wanted[broker, at_ms]
    # Not by doing nothing: where the rogue's ids pile up, less than two thirds of them are left.
    assert load.states[-1, 0] < wanted[1, load.hours_ms[-1]] * 2 / 3


@given(
    st.integers(1, 20),
    st.lists(st.integers(0, 30 * 60_000), min_size=1, max_size=200),
    st.integers(1, 4 * HOUR_MS),
    st.sampled_from([0.1, 1.0, 2.5]),
)
def test_a_bucket_lets_in_no_more_than_the_bound(
    rate: int, pauses_ms: list[int], during_ms: int, burst: float
) -> None:
    bucket = TokenBucket(rate * 1_000, HOUR_MS, Fraction(burst).limit_denominator(), 0)
    at_ms, admitted = 0, []
    for pause_ms in pauses_ms:
        # Most come at once.
        at_ms += pause_ms if pause_ms % 3 == 0 else 0
        if bucket.wait_ms(0, at_ms) == 0:
            bucket.charge(at_ms)
            admitted.append(at_ms)
    settings = ProducerIdSettings(burst=Fraction(burst).limit_denominator())
    bound = rate * windows(settings, during_ms) + 1
    assert all(sum(0 <= later - first <= during_ms for later in admitted) <= bound for first in admitted)


def test_what_brokers_and_gateways_say(tmp_path: Path) -> None:
    tables = Tables(None, str(tmp_path))
    assert (expiration_ms(tables), shares(tables)) == (24 * HOUR_MS, {})
    assert settings(newest_event(tables, "config")) == ProducerIdSettings()
    for event_type, made in rows().items():
        write_events(tables.root, event_type, made)
    assert expiration_ms(tables) == EXPIRY_MS
    in_force = newest_event(tables, "config")
    assert in_force is not None
    assert in_force["default_rate_milli"] == 7_000
    assert settings(in_force).false_positive_rate == 0.001
    found = shares(tables)
    assert (found["clicks"][1], found["clicks"][2], found[""][3]) == (0.75, 1.0, 0.5)
    assert sum(found["clicks"].values()) == 2


def held_to(**changes: object) -> tuple[float | None, dict[str, float | None]]:
    """What `enforced` says of a config event: the rate of users that are not named, and rates by user."""
    quotas = [
        {"user": "exempt", "rate_milli": 5_000, "exempt": True, "mode": "enforce"},
        {"user": "observed", "rate_milli": 6_000, "exempt": False, "mode": "observe"},
        {"user": "held", "rate_milli": 8_000, "exempt": False, "mode": "enforce"},
        {"user": "as all", "rate_milli": 9_000, "exempt": False, "mode": None},
        {"user": "by default", "rate_milli": None, "exempt": False, "mode": "enforce"},
    ]
    default, of_users = enforced(config(**{"quotas": quotas, **changes}))
    return default, dict(of_users)


def test_who_is_held_to_which_rate() -> None:
    rates = {"exempt": None, "observed": None, "held": 8.0, "as all": 9.0, "by default": 7.0}
    assert held_to() == (7.0, rates)
    assert held_to(mode="observe") == (None, {**rates, "as all": None})
    assert held_to(default_rate_milli=None) == (None, {**rates, "by default": None})
    assert held_to(quotas=[]) == (7.0, {})
    assert enforced(None) == held_to(mode="observe", quotas=[]) == (None, {})


def answer_of(tables: Tables, heap: Heap, rates: Sequence[float], days: Days = EVER) -> Any:
    with replacing(tables) as run:
        found = results_of(pass_over(tables, days, FAILOVER), run, days)
        return answer_from(run, found, Options(heap), rates)


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_job_finds_who_dies_and_the_quota_that_keeps_the_heap(engine: str, tables: Tables) -> None:
    tables = tables if engine == "spark" else Tables(None, tables.root)
    for name, made in rows().items():
        write_events(tables.root, name, made)
    offenders = [{"user": "rogue", "harmful": True}, {"user": "steady", "harmful": False}]
    rates = pa.schema(
        [("user", pa.string()), ("recommended_rate", pa.float64()), ("current_rate", pa.float64())]
    )
    with replacing(tables) as run:
        run.write("offenders", pa.Table.from_pylist(offenders))
        run.write(
            "recommendations", pa.Table.from_pylist([{"user": "rogue", "recommended_rate": 5.0}], rates)
        )
    heap = Heap(heap_bytes=1_000 + 400 * 10, base_bytes=1_000, bytes_per_state=10, usable_share=1.0)
    answer = answer_of(tables, heap, [18.0])
    assert not any(said.holds for said in answer.of(NO_QUOTA))
    with pytest.raises(HistoryEmpty, match="from 2024-10-05"):
        answer_of(tables, heap, [], Days("2024-10-05"))
    assert answer.rate == 17
    assert all(said.holds for said in answer.of("solved: 17 each"))
    assert not all(said.holds for said in answer.of("18 each"))
    assert all(said.holds for said in answer.of("in force") + answer.of("recommended"))

    def count(name: str, where: str) -> int:
        return len(tables.query(f"failover_{name}", f"from found where {where}"))

    assert count("kafka", "quota = 'solved: 17 each'") > 0
    assert count("kafka", "quota = 'solved: 17 each' and heap_bytes > 5000") == 0
    assert count("kafka", "quota = 'none' and dead") > 0
    assert count("summary", "quota = 'none' and not holds and first_death_ms is not null") == 2
    assert count("kip", "step = 1 and broker = 2 and dead and load = 210") > 0
    assert "A quota of 17 new ids per window" in " ".join(words.sentences(answer, heap))
    shown = StringIO()
    Console(file=shown, width=200).print(words.kafka_table(answer, heap), words.kip_table())
    assert "solved: 17 each" in shown.getvalue()
    assert "1: 100, 2: 210, 3: 236, 4: 299.6, 5: 364.96, 6: 660" in shown.getvalue()
