"""The users: their deployments, clients, addresses and habits.

Numbers come from wide, overlapping distributions: a slow crash loop starts fewer processes than a busy
autoscaler, and a five minute CronJob more than a program with a producer per batch and few batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pidgate.findings.patterns import HARMFUL, Pattern
from tools.history.world import DAY_MS, World, dice

DAILY = frozenset((Pattern.CRON_JOB, Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_BATCH))
"""Patterns with short-lived producers, generated for each day separately."""

STORIES: tuple[tuple[float, tuple[Pattern, ...]], ...] = (
    (30, (Pattern.STEADY,)),
    (9, (Pattern.ROLLING_DEPLOYMENT,)),
    (7, (Pattern.AUTOSCALING,)),
    (7, (Pattern.CRON_JOB,)),
    (4, (Pattern.SHARED_ADDRESS,)),
    (4, (Pattern.SHARED_CLIENT_ID,)),
    (8, (Pattern.UNKNOWN,)),
    (4, (Pattern.RESTART_LOOP,)),
    (3, (Pattern.PRODUCER_PER_ERROR,)),
    (4, (Pattern.PRODUCER_PER_BATCH,)),
    (3, (Pattern.RANDOM_TRANSACTIONAL_IDS,)),
    (3, (Pattern.STEADY, Pattern.RESTART_LOOP)),
    (2, (Pattern.STEADY, Pattern.PRODUCER_PER_BATCH)),
    (2, (Pattern.ROLLING_DEPLOYMENT, Pattern.PRODUCER_PER_ERROR)),
    (1.5, (Pattern.AUTOSCALING, Pattern.PRODUCER_PER_BATCH)),
    (1, (Pattern.STEADY, Pattern.RANDOM_TRANSACTIONAL_IDS)),
    (3, (Pattern.STEADY, Pattern.CRON_JOB)),
    (2, (Pattern.STEADY, Pattern.ROLLING_DEPLOYMENT)),
    (1, (Pattern.ROLLING_DEPLOYMENT, Pattern.CRON_JOB, Pattern.RESTART_LOOP)),
    (0.5, (Pattern.RESTART_LOOP, Pattern.PRODUCER_PER_BATCH)),
)
"""Deployments of one user, with weights. The first users have one each, so that all occur."""

LIBRARIES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("apache-kafka-java", ("3.4.1", "3.7.0", "3.9.1", "4.1.0"), "producer-{n}"),
    ("librdkafka", ("1.9.2", "2.3.0", "2.11.1"), "rdkafka"),
    ("confluent-kafka-python", ("2.6.1-rdkafka-2.6.1", "2.11.0-rdkafka-2.11.0"), "rdkafka"),
    ("", ("",), "aiokafka-0.12.0"),
    ("kafka-python", ("2.2.15", "3.0.12"), "kafka-python-producer-{n}"),
    ("kgo", ("1.18.0",), "kgo"),
    ("", ("",), "sarama"),
)
"""Name, versions, and default client id: {n} counts the producers of a process. aiokafka sends no name."""

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
    """A deployment of a user. `habit`: parameters of its pattern (see fleets.py, loops.py).

    `client_id` may contain {pod}, {n} (number of the producer in its process) and {hex} (random for each).
    """

    user: int
    number: int
    """Index among the user's deployments."""
    pattern: Pattern
    """The pattern it demonstrates; UNKNOWN: occasional manual starts."""
    client_id: str
    software: tuple[str, str]
    processes: int
    addresses: int
    """0: a new one per new pod; otherwise the number of addresses shared by all processes."""
    is_transactional: bool
    begin_day: float
    requests_per_hour: float
    records_per_request: float
    partitions: int
    busy_hour: float
    evenness: float
    """1: nights are as busy as days."""
    habit: dict[str, float] = field(default_factory=dict)
    report: str = ""
    """The incident report it is modelled on (reports.py); empty if it demonstrates its pattern."""

    def begin_ms(self, world: World) -> int:
        return world.begin_ms + int(self.begin_day * DAY_MS)

    @property
    def is_harmful(self) -> bool:
        return self.pattern in HARMFUL


@dataclass(frozen=True)
class User:
    """A principal. `rate_per_hour`: its enforced quota; None: observe mode."""

    number: int
    name: str
    deployments: tuple[Deployment, ...]
    rate_per_hour: float | None
    topics: tuple[str, ...]


def cast(world: World, number: int) -> User:
    """Return one user of the world."""
    roll = dice(world.seed, "user", number)
    weights = np.array([weight for weight, _ in STORIES])
    drawn = int(roll.choice(len(STORIES), p=weights / weights.sum()))
    _, patterns = STORIES[number if number < len(STORIES) else drawn]
    word = str(roll.choice(_WORDS))
    name = f"{word}-{roll.choice(_ROLES)}-{number:04d}"
    deployments = tuple(
        _deployment(world, roll, number, place, pattern, f"{word}-{roll.choice(_ROLES)}")
        for place, pattern in enumerate(patterns)
    )
    enforced = number % 10 in (7, 9) and not _is_too_busy(deployments)
    rate = float(round(np.exp(roll.normal(np.log(6), 0.6)), 1)) if enforced else None
    topics = tuple(f"{word}.{stem}" for stem in ("events", "state", "dlq")[: roll.integers(1, 4)])
    return User(number, name, deployments, rate, topics)


def _is_too_busy(deployments: Sequence[Deployment]) -> bool:
    """Return whether there are more arrivals than the quota's code can judge, some thousand per day."""
    return any(one.habit.get("per_hour", 0.0) * one.processes > 500 for one in deployments)


def _log_normal(roll: np.random.Generator, median: float, spread: float, low: float, high: float) -> float:
    return float(np.clip(median * np.exp(roll.normal(0, spread)), low, high))


def _deployment(
    world: World, roll: np.random.Generator, user: int, number: int, pattern: Pattern, stem: str
) -> Deployment:
    library, versions, default_id = LIBRARIES[
        roll.choice(len(LIBRARIES), p=(0.4, 0.16, 0.1, 0.1, 0.1, 0.08, 0.06))
    ]
    processes, habit = _size_and_habit(roll, pattern)
    naming = roll.choice(("pod", "fixed", "default"), p=(0.5, 0.3, 0.2))
    client_id = {"pod": f"{stem}-{{pod}}", "fixed": stem, "default": default_id}[str(naming)]
    if pattern is Pattern.SHARED_CLIENT_ID:
        client_id = stem if naming == "pod" or "{n}" in client_id else client_id
    elif pattern in (
        Pattern.PRODUCER_PER_BATCH,
        Pattern.PRODUCER_PER_ERROR,
        Pattern.RANDOM_TRANSACTIONAL_IDS,
    ):
        client_id = str(roll.choice((stem, f"{stem}-{{pod}}", "producer-{n}", f"{stem}-{{hex}}")))
    elif pattern not in (Pattern.UNKNOWN, Pattern.CRON_JOB, Pattern.RESTART_LOOP):
        client_id = f"{stem}-{{pod}}"
    processes = _scaled(world, roll, pattern, processes)
    if processes > 4 and "{" not in client_id and pattern is not Pattern.SHARED_CLIENT_ID:
        # Many pods of one name are a pattern of their own.
        client_id = f"{stem}-{{pod}}"
    late = pattern is not Pattern.STEADY and roll.random() < 0.25
    begin_day = float(roll.uniform(0, 0.8) * world.days) if late else 0.0
    if pattern is Pattern.UNKNOWN:
        begin_day = float(roll.uniform(0, 0.9) * world.days)
    software = (library, str(roll.choice(versions)))
    addresses = int(roll.integers(1, 3)) if pattern is Pattern.SHARED_ADDRESS else 0
    is_transactional = pattern is Pattern.RANDOM_TRANSACTIONAL_IDS or (
        pattern in (Pattern.STEADY, Pattern.ROLLING_DEPLOYMENT) and roll.random() < 0.2
    )
    return Deployment(
        user=user,
        number=number,
        pattern=pattern,
        client_id=client_id,
        software=software,
        processes=processes,
        addresses=addresses,
        is_transactional=is_transactional,
        begin_day=begin_day,
        requests_per_hour=_log_normal(roll, 600, 1.8, 4, 200_000),
        records_per_request=_log_normal(roll, 8, 1.2, 1, 2_000),
        partitions=int(_log_normal(roll, 6, 0.9, 1, 64)),
        busy_hour=float(roll.normal(13, 3)) % 24,
        evenness=float(roll.uniform(0.05, 1.0)),
        habit=habit,
    )


def _scaled(world: World, roll: np.random.Generator, pattern: Pattern, processes: int) -> int:
    """Scale the number of processes; at least one, and NATs and people do not grow."""
    if pattern in (Pattern.SHARED_ADDRESS, Pattern.UNKNOWN):
        return processes
    wanted = processes * world.scale
    least = 5 if pattern in (Pattern.ROLLING_DEPLOYMENT, Pattern.SHARED_CLIENT_ID) else 1
    return max(least, int(wanted + roll.random()))


def _size_and_habit(roll: np.random.Generator, pattern: Pattern) -> tuple[int, dict[str, float]]:
    match pattern:
        case Pattern.STEADY:
            return int(_log_normal(roll, 3, 1.0, 1, 60)), {
                "days_between_failures": _log_normal(roll, 25, 1.0, 4, 400)
            }
        case Pattern.ROLLING_DEPLOYMENT:
            return int(_log_normal(roll, 10, 0.8, 4, 80)), {
                "per_day": _log_normal(roll, 0.7, 0.9, 0.15, 6),
                "seconds_apart": _log_normal(roll, 35, 0.8, 4, 240),
                "surge": float(roll.choice((0, 1))),
            }
        case Pattern.AUTOSCALING:
            low = int(_log_normal(roll, 2, 0.6, 1, 8))
            return int(low + _log_normal(roll, 12, 0.9, 3, 120)), {
                "low": low,
                "nervousness": float(roll.uniform(0.02, 0.4)),
            }
        case Pattern.CRON_JOB:
            return int(_log_normal(roll, 1.5, 0.7, 1, 10)), {
                "every_minutes": float(roll.choice((5, 10, 15, 30, 60, 120, 360, 1_440), p=_CRON)),
                "lasts_s": _log_normal(roll, 40, 1.3, 2, 3_000),
                "jitter_s": _log_normal(roll, 3, 1.0, 0.2, 60),
            }
        case Pattern.SHARED_ADDRESS:
            return int(_log_normal(roll, 20, 0.6, 8, 90)), {
                "starts_per_day": _log_normal(roll, 1.0, 0.5, 0.2, 4)
            }
        case Pattern.SHARED_CLIENT_ID:
            return int(_log_normal(roll, 16, 0.7, 6, 120)), {
                "starts_per_day": _log_normal(roll, 0.6, 0.7, 0.05, 4)
            }
        case Pattern.UNKNOWN:
            return 1, {
                "lives": float(roll.integers(1, 5)),
                "lasts_minutes": _log_normal(roll, 20, 1.2, 0.5, 500),
            }
        case Pattern.RESTART_LOOP:
            return int(_log_normal(roll, 1.2, 0.6, 1, 6)), {
                "lives_s": _log_normal(roll, 60, 1.8, 1, 7_200),
                "spread": float(roll.uniform(0.3, 1.3)),
                "kubernetes": float(roll.random() < 0.7),
                "pause_s": _log_normal(roll, 8, 1.0, 1, 120),
                "share_of_days": float(roll.choice((1.0, roll.uniform(0.3, 0.9)), p=(0.6, 0.4))),
                "healthy_days": float(roll.random() < 0.5),
            }
        case Pattern.PRODUCER_PER_ERROR:
            return int(_log_normal(roll, 1.6, 0.7, 1, 8)), {
                "errors_per_hour": _log_normal(roll, 3, 1.1, 0.5, 60),
                "in_incident_every_s": _log_normal(roll, 4, 0.8, 1, 60),
                "leaks": float(roll.random() < 0.3),
            }
        case Pattern.PRODUCER_PER_BATCH:
            return int(_log_normal(roll, 1.4, 0.7, 1, 8)), {
                "per_hour": _log_normal(roll, 25, 1.4, 1.5, 300),
                "requests": float(roll.choice((1, 1, 1, 2, 3))),
                "lasts_ms": _log_normal(roll, 350, 1.2, 30, 20_000),
            }
        case Pattern.RANDOM_TRANSACTIONAL_IDS:
            return int(_log_normal(roll, 3, 0.7, 1, 14)), {
                "starts_per_day": _log_normal(roll, 30, 1.3, 4, 900)
            }
        case _:
            raise ValueError(f"no deployment shows {pattern}")


_CRON = (0.1, 0.15, 0.2, 0.15, 0.2, 0.08, 0.06, 0.06)
