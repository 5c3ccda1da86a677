"""States by hour and broker against a count by hand, the bound against quota's own bucket, the job end to end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pidgate.pipeline.arrivals import arrivals
from pidgate.pipeline.commands.failover import answer_from
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import HistoryEmpty
from pidgate.pipeline.expiry import CHECK_INTERVAL_MS, expiration_ms
from pidgate.pipeline.failover import words
from pidgate.pipeline.failover.cascade import Heap, Load
from pidgate.pipeline.failover.held import HOUR_MS, held, lives
from pidgate.pipeline.failover.loads import uniform_plans
from pidgate.pipeline.failover.placement import Bucket, bucket_in_force, enforced, shares
from pidgate.pipeline.failover.study import NO_QUOTA, Options, Past, loads_of
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.schemas import table_schema
from pidgate.quota.token_bucket import TokenBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pidgate.pipeline.tables import Tables


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


def frame(spark: SparkSession, event_type: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    schema = table_schema(event_type)
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def origin(number: int) -> dict[str, Any]:
    return {"gateway_id": "g", "incarnation": "i", "seq": number}


def decisions(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        "decision",
        [
            {
                **origin(number),
                "wall_time_ms": one.first_ms,
                "user": one.user,
                "producer_id": one.producer_id,
                "topic": one.topic,
                "decision": "admit" if one.admitted else "refuse",
                "reason": "first_seen",
            }
            for number, one in enumerate(LIVES)
        ],
    )


def usage(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        "id_usage",
        [
            {
                **origin(number),
                "wall_time_ms": one.last_ms,
                "user": one.user,
                "producer_id": one.producer_id,
                "partitions": len(REPLICAS[one.topic]),
                "first_ms": one.first_ms,
                "last_ms": one.last_ms,
            }
            for number, one in enumerate(LIVES)
            if one.admitted
        ],
    )


def topology(spark: SparkSession) -> DataFrame:
    """The newest event counts: an older one has everything on broker 9, and another expiry."""
    newest = [{"topic": name, "leaders": [], "replicas": places} for name, places in REPLICAS.items()]
    old = [{"topic": "clicks", "leaders": [], "replicas": [[9]]}]
    times = {"wall_time_ms": START_MS, "producer_id_expiration_ms": EXPIRY_MS}
    before = {"wall_time_ms": START_MS - 1, "producer_id_expiration_ms": 1}
    return frame(spark, "topology", [{**times, "topics": newest}, {**before, "topics": old}])


def config(spark: SparkSession) -> DataFrame:
    quotas = [
        {"user": "steady", "rate_milli": 5_000, "exempt": True},
        {"user": "rogue", "rate_milli": RATE * 1_000, "exempt": False},
    ]
    newest = {
        **origin(2),
        "wall_time_ms": START_MS,
        "mode": "enforce",
        "window_ms": HOUR_MS,
        "burst": 1.0,
        "false_positive_rate": 0.001,
        "default_rate_milli": 7_000,
        "quotas": quotas,
    }
    return frame(
        spark, "config", [newest, {**newest, "wall_time_ms": 0, "default_rate_milli": 1, "quotas": []}]
    )


@pytest.fixture(scope="module")
def past(spark: SparkSession) -> Iterator[Past]:
    told = topology(spark)
    holding = held(lives(arrivals(decisions(spark)), usage(spark)), EXPIRY_MS).persist()
    reopening = spark.createDataFrame([("rogue", 2.0)], "user string, reopens double")
    yield Past.of(holding, shares(told).persist(), reopening, Bucket(), EXPIRY_MS)
    holding.unpersist()


@pytest.fixture(scope="module")
def loads(past: Past) -> dict[str, Load]:
    return loads_of(past, uniform_plans(past.users, {NO_QUOTA: None, "10": RATE, "0": 0.0}))


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
    bound = Bucket(burst=burst).most_admitted(rate, during_ms)
    assert all(sum(0 <= later - first <= during_ms for later in admitted) <= bound for first in admitted)


def test_what_brokers_and_gateways_say(spark: SparkSession, tables: Tables) -> None:
    assert expiration_ms(tables) == 24 * HOUR_MS
    topology(spark).selectExpr("*", "'2024-10-04' day", "'0' bucket").write.partitionBy(
        "day", "bucket"
    ).parquet(tables.path("events", "topology"))
    assert expiration_ms(tables) == EXPIRY_MS
    assert bucket_in_force(config(spark)) == Bucket(HOUR_MS, 1.0, 0.001, 7.0)
    assert bucket_in_force(config(spark).limit(0)) == Bucket()
    found = {(row.topic, row.broker): row.share for row in shares(topology(spark)).collect()}
    assert found["clicks", 1] == 0.75
    assert found["clicks", 2] == 1.0
    assert found["", 3] == 0.5
    assert sum(share for (topic, _), share in found.items() if topic == "clicks") == 2


def held_to(spark: SparkSession, **changes: object) -> tuple[dict[str, float | None], float | None] | None:
    """What `enforced` says of a config event: rates by user, and that of all others."""
    quotas = [
        {"user": "exempt", "rate_milli": 5_000, "exempt": True, "mode": "enforce"},
        {"user": "observed", "rate_milli": 6_000, "exempt": False, "mode": "observe"},
        {"user": "held", "rate_milli": 8_000, "exempt": False, "mode": "enforce"},
        {"user": "as all", "rate_milli": 9_000, "exempt": False, "mode": None},
        {"user": "by default", "rate_milli": None, "exempt": False, "mode": "enforce"},
    ]
    event = {
        **{**origin(2), "wall_time_ms": START_MS, "mode": "enforce", "default_rate_milli": 7_000},
        **{"quotas": quotas, **changes},
    }
    found = enforced(frame(spark, "config", [event, {**event, "wall_time_ms": 0, "quotas": []}]))
    return None if found is None else ({row.user: row.rate for row in found[0].collect()}, found[1])


def test_who_is_held_to_which_rate(spark: SparkSession) -> None:
    rates = {"exempt": None, "observed": None, "held": 8.0, "as all": 9.0, "by default": 7.0}
    assert held_to(spark) == (rates, 7.0)
    assert held_to(spark, mode="observe") == ({**rates, "as all": None}, None)
    without = {**rates, "by default": None}
    assert held_to(spark, default_rate_milli=None) == (without, None)
    assert held_to(spark, quotas=[]) == ({}, 7.0)
    assert held_to(spark, mode="observe", quotas=[]) is None
    assert enforced(config(spark).limit(0)) is None


def test_the_job_finds_who_dies_and_the_quota_that_keeps_the_heap(tables: Tables) -> None:
    spark = tables.spark
    for name, events in (
        ("decision", decisions(spark)),
        ("id_usage", usage(spark)),
        ("topology", topology(spark)),
        ("config", config(spark)),
    ):
        day = events.selectExpr("*", "'2024-10-04' day", "'0' bucket").coalesce(1)
        day.write.partitionBy("day", "bucket").parquet(tables.path("events", name))
    offenders = spark.createDataFrame([("rogue", True), ("steady", False)], "user string, harmful boolean")
    rates = "user string, recommended_rate double, current_rate double"
    with replacing(tables) as run:
        run.write("offenders", offenders)
        run.write("recommendations", spark.createDataFrame([("rogue", 5.0, None)], rates))
    heap = Heap(heap_bytes=1_000 + 400 * 10, base_bytes=1_000, bytes_per_state=10)
    with replacing(tables) as run:
        answer = answer_from(run, Options(heap), [18.0], 1.0, (1, 1))
    assert not any(said.holds for said in answer.of(NO_QUOTA))
    with pytest.raises(HistoryEmpty, match="from 2024-10-05"), replacing(tables) as run:
        answer_from(run, Options(heap), [], 1.0, (1, 1), Days("2024-10-05"))
    assert answer.rate == 17
    assert all(said.holds for said in answer.of("solved: 17 each"))
    assert not all(said.holds for said in answer.of("18 each"))
    assert all(said.holds for said in answer.of("in force") + answer.of("recommended"))

    kafka, summary, kip = (tables.result(f"failover_{name}") for name in ("kafka", "summary", "kip"))
    assert kafka is not None
    assert summary is not None
    assert kip is not None
    assert kafka.where("quota = 'solved: 17 each' and heap_bytes > 5000").isEmpty()
    assert not kafka.where("quota = 'none' and dead").isEmpty()
    assert summary.where("quota = 'none' and not holds and first_death_ms is not null").count() == 2
    assert kip.where("step = 1 and broker = 2 and dead").select("load").distinct().collect()[0][0] == 210
    assert "A quota of 17 new ids per window" in " ".join(words.sentences(answer, heap))
    assert json.loads(words.as_json(answer, heap))["quota_that_holds"] == 17
    shown = StringIO()
    Console(file=shown, width=200).print(words.kafka_table(answer, heap), words.kip_table())
    assert "solved: 17 each" in shown.getvalue()
    assert "1: 100, 2: 210, 3: 236, 4: 299.6, 5: 364.96, 6: 660" in shown.getvalue()
