"""The users: deployments, clients, addresses, and the habits of each deployment.

The numbers are drawn from wide distributions that overlap: a slow crash loop starts fewer processes than a busy
autoscaler, and a CronJob of every five minutes more than a program that makes a producer for each of its few batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from pidgate.events.patterns import HARMFUL, Pattern
from pidgate.pipeline.history.world import DAY_MS, World, dice


class Kind(StrEnum):
    """Kind of a deployment."""

    STEADY = "steady"
    ROLLING = "rolling"
    SCALING = "scaling"
    CRON = "cron"
    NAT = "nat"
    NAMESAKES = "namesakes"
    BY_HAND = "by_hand"
    CRASHING = "crashing"
    PER_ERROR = "per_error"
    PER_BATCH = "per_batch"
    RANDOM_TXN = "random_txn"


PATTERN_OF = {
    Kind.STEADY: Pattern.STEADY,
    Kind.ROLLING: Pattern.ROLLING_DEPLOYMENT,
    Kind.SCALING: Pattern.AUTOSCALING,
    Kind.CRON: Pattern.CRON_JOB,
    Kind.NAT: Pattern.SHARED_ADDRESS,
    Kind.NAMESAKES: Pattern.SHARED_CLIENT_ID,
    Kind.BY_HAND: Pattern.UNKNOWN,
    Kind.CRASHING: Pattern.RESTART_LOOP,
    Kind.PER_ERROR: Pattern.PRODUCER_PER_ERROR,
    Kind.PER_BATCH: Pattern.PRODUCER_PER_BATCH,
    Kind.RANDOM_TXN: Pattern.RANDOM_TRANSACTIONAL_IDS,
}
DAILY = frozenset((Kind.CRON, Kind.CRASHING, Kind.PER_BATCH))
"""Kinds whose producers live so shortly that each day is made up by itself."""

STORIES: tuple[tuple[float, tuple[Kind, ...]], ...] = (
    (30, (Kind.STEADY,)),
    (9, (Kind.ROLLING,)),
    (7, (Kind.SCALING,)),
    (7, (Kind.CRON,)),
    (4, (Kind.NAT,)),
    (4, (Kind.NAMESAKES,)),
    (8, (Kind.BY_HAND,)),
    (4, (Kind.CRASHING,)),
    (3, (Kind.PER_ERROR,)),
    (4, (Kind.PER_BATCH,)),
    (3, (Kind.RANDOM_TXN,)),
    (3, (Kind.STEADY, Kind.CRASHING)),
    (2, (Kind.STEADY, Kind.PER_BATCH)),
    (2, (Kind.ROLLING, Kind.PER_ERROR)),
    (1.5, (Kind.SCALING, Kind.PER_BATCH)),
    (1, (Kind.STEADY, Kind.RANDOM_TXN)),
    (3, (Kind.STEADY, Kind.CRON)),
    (2, (Kind.STEADY, Kind.ROLLING)),
    (1, (Kind.ROLLING, Kind.CRON, Kind.CRASHING)),
    (0.5, (Kind.CRASHING, Kind.PER_BATCH)),
)
"""Deployments of one user, with weights. The first users have one each, so that nothing is missing."""

LIBRARIES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("apache-kafka-java", ("3.4.1", "3.7.0", "3.9.1", "4.1.0"), "producer-{n}"),
    ("librdkafka", ("1.9.2", "2.3.0", "2.11.1"), "rdkafka"),
    ("confluent-kafka-python", ("2.6.1-rdkafka-2.6.1", "2.11.0-rdkafka-2.11.0"), "rdkafka"),
    ("", ("",), "aiokafka-0.12.0"),
    ("kafka-python", ("2.2.15", "3.0.12"), "kafka-python-producer-{n}"),
    ("kgo", ("1.18.0",), "kgo"),
    ("", ("",), "sarama"),
)
"""Name, versions, and the default client id: {n} counts the producers of a process. aiokafka sends no name."""

_WORDS = (
    "orders",
    "payments",
    "stock",
    "clicks",
    "audit",
    "search",
    "ledger",
    "email",
    "price",
    "fraud",
    "geo",
    "media",
)
_ROLES = ("api", "sync", "etl", "worker", "ingest", "export", "bridge", "sink", "job", "service")


@dataclass(frozen=True)
class Deployment:
    """One thing a user runs. `habit`: the numbers of its kind (fleets.py, loops.py say which).

    `client_id` may hold {pod}, {n} (number of the producer in its process) and {hex} (made up for each).
    """

    user: int
    number: int
    """Of the user's deployments."""
    kind: Kind
    client_id: str
    software: tuple[str, str]
    processes: int
    addresses: int
    """0: each new pod has a new one; else all processes share so many."""
    is_transactional: bool
    begin_day: float
    requests_per_hour: float
    records_per_request: float
    partitions: int
    busy_hour: float
    evenness: float
    """1: nights are as busy as days."""
    habit: dict[str, float] = field(default_factory=dict)

    def begin_ms(self, world: World) -> int:
        return world.begin_ms + int(self.begin_day * DAY_MS)

    @property
    def pattern(self) -> Pattern:
        return PATTERN_OF[self.kind]

    @property
    def is_harmful(self) -> bool:
        return self.pattern in HARMFUL


@dataclass(frozen=True)
class User:
    """A principal. `rate_per_hour`: the quota that is enforced for it; None: it is only observed."""

    number: int
    name: str
    deployments: tuple[Deployment, ...]
    rate_per_hour: float | None
    topics: tuple[str, ...]


def cast(world: World, number: int) -> User:
    """One user of the world."""
    roll = dice(world.seed, "user", number)
    weights = np.array([weight for weight, _ in STORIES])
    drawn = int(roll.choice(len(STORIES), p=weights / weights.sum()))
    _, kinds = STORIES[number if number < len(STORIES) else drawn]
    word = str(roll.choice(_WORDS))
    name = f"{word}-{roll.choice(_ROLES)}-{number:04d}"
    deployments = tuple(
        _deployment(world, roll, number, place, kind, f"{word}-{roll.choice(_ROLES)}")
        for place, kind in enumerate(kinds)
    )
    enforced = number % 10 in (7, 9) and not _is_too_busy(deployments)
    rate = float(round(np.exp(roll.normal(np.log(6), 0.6)), 1)) if enforced else None
    topics = tuple(f"{word}.{stem}" for stem in ("events", "state", "dlq")[: roll.integers(1, 4)])
    return User(number, name, deployments, rate, topics)


def _is_too_busy(deployments: Sequence[Deployment]) -> bool:
    """The quota's own code judges one by one: that is for some thousand arrivals a day."""
    return any(one.habit.get("per_hour", 0.0) * one.processes > 500 for one in deployments)


def _log_normal(roll: np.random.Generator, median: float, spread: float, low: float, high: float) -> float:
    return float(np.clip(median * np.exp(roll.normal(0, spread)), low, high))


def _deployment(
    world: World, roll: np.random.Generator, user: int, number: int, kind: Kind, stem: str
) -> Deployment:
    library, versions, default_id = LIBRARIES[
        roll.choice(len(LIBRARIES), p=(0.4, 0.16, 0.1, 0.1, 0.1, 0.08, 0.06))
    ]
    processes, habit = _size_and_habit(roll, kind)
    naming = roll.choice(("pod", "fixed", "default"), p=(0.5, 0.3, 0.2))
    client_id = {"pod": f"{stem}-{{pod}}", "fixed": stem, "default": default_id}[str(naming)]
    if kind is Kind.NAMESAKES:
        client_id = stem if naming == "pod" or "{n}" in client_id else client_id
    elif kind in (Kind.PER_BATCH, Kind.PER_ERROR, Kind.RANDOM_TXN):
        client_id = str(roll.choice((stem, f"{stem}-{{pod}}", "producer-{n}", f"{stem}-{{hex}}")))
    elif kind not in (Kind.BY_HAND, Kind.CRON, Kind.CRASHING):
        client_id = f"{stem}-{{pod}}"
    processes = _scaled(world, roll, kind, processes)
    if processes > 4 and "{" not in client_id and kind is not Kind.NAMESAKES:
        # Many of one name are a pattern of their own.
        client_id = f"{stem}-{{pod}}"
    late = kind is not Kind.STEADY and roll.random() < 0.25
    begin_day = float(roll.uniform(0, 0.8) * world.days) if late else 0.0
    if kind is Kind.BY_HAND:
        begin_day = float(roll.uniform(0, 0.9) * world.days)
    return Deployment(
        user=user,
        number=number,
        kind=kind,
        client_id=client_id,
        software=(library, str(roll.choice(versions))),
        processes=processes,
        addresses=int(roll.integers(1, 3)) if kind is Kind.NAT else 0,
        is_transactional=kind is Kind.RANDOM_TXN or (kind in (Kind.STEADY, Kind.ROLLING) and roll.random() < 0.2),
        begin_day=begin_day,
        requests_per_hour=_log_normal(roll, 600, 1.8, 4, 200_000),
        records_per_request=_log_normal(roll, 8, 1.2, 1, 2_000),
        partitions=int(_log_normal(roll, 6, 0.9, 1, 64)),
        busy_hour=float(roll.normal(13, 3)) % 24,
        evenness=float(roll.uniform(0.05, 1.0)),
        habit=habit,
    )  # fmt: skip


def _scaled(world: World, roll: np.random.Generator, kind: Kind, processes: int) -> int:
    """More processes that behave as before; never none, and a NAT or a person does not grow."""
    if kind in (Kind.NAT, Kind.BY_HAND):
        return processes
    wanted = processes * world.scale
    return max(1 if kind not in (Kind.ROLLING, Kind.NAMESAKES) else 5, int(wanted + roll.random()))


def _size_and_habit(roll: np.random.Generator, kind: Kind) -> tuple[int, dict[str, float]]:
    match kind:
        case Kind.STEADY:
            return int(_log_normal(roll, 3, 1.0, 1, 60)), {
                "days_between_failures": _log_normal(roll, 25, 1.0, 4, 400)
            }
        case Kind.ROLLING:
            return int(_log_normal(roll, 10, 0.8, 4, 80)), {
                "per_day": _log_normal(roll, 0.7, 0.9, 0.15, 6),
                "seconds_apart": _log_normal(roll, 35, 0.8, 4, 240),
                "surge": float(roll.choice((0, 1))),
            }
        case Kind.SCALING:
            low = int(_log_normal(roll, 2, 0.6, 1, 8))
            return int(low + _log_normal(roll, 12, 0.9, 3, 120)), {
                "low": low,
                "nervousness": float(roll.uniform(0.02, 0.4)),
            }
        case Kind.CRON:
            return int(_log_normal(roll, 1.5, 0.7, 1, 10)), {
                "every_minutes": float(roll.choice((5, 10, 15, 30, 60, 120, 360, 1_440), p=_CRON)),
                "lasts_s": _log_normal(roll, 40, 1.3, 2, 3_000),
                "jitter_s": _log_normal(roll, 3, 1.0, 0.2, 60),
            }
        case Kind.NAT:
            return int(_log_normal(roll, 20, 0.6, 8, 90)), {
                "starts_per_day": _log_normal(roll, 1.0, 0.5, 0.2, 4)
            }
        case Kind.NAMESAKES:
            return int(_log_normal(roll, 16, 0.7, 6, 120)), {
                "starts_per_day": _log_normal(roll, 0.6, 0.7, 0.05, 4)
            }
        case Kind.BY_HAND:
            return 1, {
                "lives": float(roll.integers(1, 5)),
                "lasts_minutes": _log_normal(roll, 20, 1.2, 0.5, 500),
            }
        case Kind.CRASHING:
            return int(_log_normal(roll, 1.2, 0.6, 1, 6)), {
                "lives_s": _log_normal(roll, 60, 1.8, 1, 7_200),
                "spread": float(roll.uniform(0.3, 1.3)),
                "kubernetes": float(roll.random() < 0.7),
                "pause_s": _log_normal(roll, 8, 1.0, 1, 120),
                "share_of_days": float(roll.choice((1.0, roll.uniform(0.3, 0.9)), p=(0.6, 0.4))),
                "healthy_days": float(roll.random() < 0.5),
            }
        case Kind.PER_ERROR:
            return int(_log_normal(roll, 1.6, 0.7, 1, 8)), {
                "errors_per_hour": _log_normal(roll, 3, 1.1, 0.5, 60),
                "in_incident_every_s": _log_normal(roll, 4, 0.8, 1, 60),
                "leaks": float(roll.random() < 0.3),
            }
        case Kind.PER_BATCH:
            return int(_log_normal(roll, 1.4, 0.7, 1, 8)), {
                "per_hour": _log_normal(roll, 25, 1.4, 1.5, 300),
                "requests": float(roll.choice((1, 1, 1, 2, 3))),
                "lasts_ms": _log_normal(roll, 350, 1.2, 30, 20_000),
            }
        case Kind.RANDOM_TXN:
            return int(_log_normal(roll, 3, 0.7, 1, 14)), {
                "starts_per_day": _log_normal(roll, 30, 1.3, 4, 900)
            }


_CRON = (0.1, 0.15, 0.2, 0.15, 0.2, 0.08, 0.06, 0.06)
