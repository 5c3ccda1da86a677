"""Clients of the reports, one function each: the lives of their producers. Sources: REPORTS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pidgate.findings.patterns import Pattern
from tools.history.cast import Deployment
from tools.history.lives import CLIENT, RESET, Lives, activity, lives_of, together
from tools.history.world import DAY_MS, HOUR_MS, MINUTE_MS, Times, World

Roll = np.random.Generator
Plan = Callable[[World, Deployment, Roll], Lives]
_TOO_LARGE, _NOT_AUTHORIZED, _INVALID_RECORD = 10, 29, 87


@dataclass(frozen=True)
class Report:
    """`processes`: minimum and maximum. `grows`: more in a larger world. `source`: the report."""

    pattern: Pattern
    lives: Plan
    source: str
    client_id: str = "{stem}-{pod}"
    software: tuple[str, str] = ("apache-kafka-java", "3.9.1")
    processes: tuple[int, int] = (1, 3)
    addresses: int = 0
    is_transactional: bool = False
    grows: bool = True


def _work(world: World, deployment: Deployment, roll: Roll, per_hour: float) -> Times:
    """Return sorted times of work: random, more by day."""
    number = roll.poisson(2 * per_hour * (world.end_ms - world.begin_ms) / HOUR_MS)
    at_ms = np.sort(roll.integers(world.begin_ms, world.end_ms, number))
    busy = activity(world, deployment.busy_hour, deployment.evenness, at_ms)
    return at_ms[roll.random(number) < busy / 2]


def _troubles(world: World, roll: Roll, hours: tuple[float, float]) -> list[tuple[int, int]]:
    """Return (begin, end) of one to three incidents, from a bad release to its fix."""
    begins = np.sort(roll.integers(world.begin_ms, world.end_ms - HOUR_MS, roll.integers(1, 4)))
    ends = begins + (roll.uniform(*hours, len(begins)) * HOUR_MS).astype(np.int64)
    until = np.minimum(ends, np.append(begins[1:], world.end_ms))
    return list(zip(begins.tolist(), until.tolist(), strict=True))


def _in_turn(begin_ms: int, end_ms: int, lasts_ms: np.ndarray, pauses_ms: np.ndarray) -> tuple[Times, Times]:
    """Return starts and ends of consecutive lives within this period."""
    starts = begin_ms + np.concatenate([[0], np.cumsum(lasts_ms + pauses_ms)[:-1]]).astype(np.int64)
    within = starts < end_ms
    return starts[within], (starts + lasts_ms.astype(np.int64))[within]


def _http_bridge(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a bridge with a producer per HTTP connection and callers that close theirs after each event."""
    parts = []
    for process in range(deployment.processes):
        starts = _work(world, deployment, roll, roll.uniform(8, 120))
        ends = starts + (1_000 * roll.gamma(2.0, 0.12, len(starts))).astype(np.int64) + 20
        parts.append(lives_of(deployment, starts, ends, process, np.arange(len(starts)) + 1, requests=1))
    return together(parts)


def _http_bridge_kept_alive(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate the same bridge with callers that keep a connection until their library's idle limit."""
    parts = []
    idle_ms = int(roll.choice((5_000, 15_000, 60_000)))
    for process in range(deployment.processes):
        starts = _work(world, deployment, roll, roll.uniform(4, 40))
        requests = roll.geometric(0.4, len(starts))
        ends = starts + idle_ms + (requests - 1) * roll.integers(300, idle_ms, len(starts))
        n = np.arange(len(starts)) + 1
        parts.append(lives_of(deployment, starts, ends, process, n, requests=requests))
    return together(parts)


def _fluentd(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a node's log shipper with a producer per flushed chunk; failed flushes are retried."""
    parts = []
    interval_ms = int(roll.choice((30, 60, 60, 120))) * 1_000
    for process in range(deployment.processes):
        # The flush itself delays the next one, so that the times drift.
        number = (world.end_ms - world.begin_ms) // interval_ms
        ticks = world.begin_ms + np.cumsum(interval_ms + roll.integers(5, 300, number))
        ticks = ticks[(ticks < world.end_ms) & (roll.random(number) < roll.uniform(0.1, 0.7))]
        codes = np.zeros(len(ticks), np.int64)
        for begin_ms, end_ms, code in world.incidents:
            # retry_wait 1 s, doubled each time (fluentd's defaults).
            again = begin_ms + np.cumsum(1_000 * 2 ** np.arange(18))
            again = again[again < end_ms]
            kept = (ticks < begin_ms) | (ticks >= end_ms)
            ticks = np.concatenate([ticks[kept], again])
            codes = np.concatenate([codes[kept], np.full(len(again), code)])
        order = np.argsort(ticks, kind="stable")
        ticks, codes = ticks[order], codes[order]
        ends = ticks + roll.integers(30, 400, len(ticks))
        n = np.arange(len(ticks)) + 1
        requests = roll.integers(1, 4, len(ticks))
        parts.append(lives_of(deployment, ticks, ends, process, n, requests=requests, error=codes))
    return together(parts)


def _per_invocation(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a function that runs per event and creates its producer in the handler."""
    starts = _work(world, deployment, roll, roll.uniform(10, 150))
    ends = starts + (1_000 * roll.gamma(3.0, 0.3, len(starts))).astype(np.int64) + 100
    # The platform keeps a container for an hour or two, and runs several under load.
    pods = (starts - world.begin_ms) // (90 * MINUTE_MS) * 100 + roll.integers(
        0, deployment.processes, len(starts)
    )
    return lives_of(deployment, starts, ends, pods, 1, requests=roll.integers(1, 3, len(starts)))


def _per_task_event(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate Airflow's lineage listener: a producer per task event, at its start and at its end."""
    every_ms = int(roll.choice((15, 30, 60))) * MINUTE_MS
    runs = np.arange(
        world.begin_ms + roll.integers(0, every_ms // MINUTE_MS) * MINUTE_MS, world.end_ms, every_ms
    )
    tasks = int(roll.integers(3, 12))
    lasts = roll.gamma(1.5, 25_000, (len(runs), tasks)) + 3_000
    ends = np.cumsum(lasts + roll.integers(500, 6_000, lasts.shape), axis=1)
    at_ms = (
        np.concatenate([runs[:, None] + ends - lasts, runs[:, None] + ends], axis=1).ravel().astype(np.int64)
    )
    pods = roll.integers(0, deployment.processes, len(at_ms))
    return lives_of(deployment, at_ms, at_ms + roll.integers(150, 900, len(at_ms)), pods, 1, requests=1)


def _flink_checkpoints(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate sink subtasks that take a new transactional id at each checkpoint."""
    every_ms = int(roll.choice((1, 3, 5, 10))) * MINUTE_MS
    begun = np.arange(world.begin_ms + roll.integers(every_ms), world.end_ms, every_ms)
    starts = (begun[:, None] + roll.integers(0, 1_500, (len(begun), deployment.processes))).ravel()
    ends = starts + every_ms + roll.integers(200, 4_000, len(starts))
    subtask = np.tile(np.arange(deployment.processes), len(begun))
    return lives_of(deployment, starts, ends, subtask, np.repeat(np.arange(len(begun)), deployment.processes))


def _random_prefix(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a transactional id prefix drawn at each start, for each of a pod's threads."""
    parts = []
    threads = int(roll.integers(1, 8))
    for process in range(deployment.processes):
        number = 2 + roll.poisson(roll.uniform(4, 25) * world.days)
        starts = np.sort(roll.integers(world.begin_ms, world.end_ms, number))
        ends = np.append(starts[1:] - roll.integers(2_000, 40_000, number - 1), world.end_ms + DAY_MS)
        each = np.repeat(np.arange(number), threads)
        # A thread opens its producer when it first sends.
        own = starts[each] + roll.integers(0, 60_000, len(each))
        n = np.tile(np.arange(threads), number)
        parts.append(lives_of(deployment, own, np.maximum(ends[each], own + 500), process, n))
    return together(parts)


def _replaced_threads(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate Kafka Streams with REPLACE_THREAD: a record that cannot be sent kills each thread in turn."""
    quiet_since = world.begin_ms - DAY_MS
    code = int(roll.choice((_TOO_LARGE, _NOT_AUTHORIZED, _INVALID_RECORD)))
    parts, pods = [], np.arange(deployment.processes)
    parts.append(
        lives_of(
            deployment, np.full(len(pods), quiet_since), np.full(len(pods), world.end_ms + DAY_MS), pods, 1
        )
    )
    for begin_ms, end_ms in _troubles(world, roll, (0.5, 20)):
        # A rebalance, and the time to reach the record again.
        least_ms = roll.uniform(3_000, 40_000)
        number = int((end_ms - begin_ms) / least_ms) + 1
        lasts = least_ms + roll.exponential(0.3 * least_ms, number)
        starts, ends = _in_turn(begin_ms, end_ms, lasts, roll.integers(20, 400, number))
        n = np.arange(len(starts)) + 2
        parts.append(
            lives_of(
                deployment,
                starts,
                ends,
                int(roll.integers(deployment.processes)),
                n,
                error=code,
                healthy=False,
            )
        )
    parts[0].healthy = True
    return together(parts)


def _killed_for_memory(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a pod that is killed at its memory limit and restarted by Kubernetes with back-off."""
    parts = []
    fills_ms = 1_000 * np.exp(roll.uniform(np.log(8), np.log(1_500)))
    for begin_ms, end_ms in _troubles(world, roll, (3, 60)):
        for process in range(deployment.processes):
            number = int((end_ms - begin_ms) / (0.5 * fills_ms + 10_000)) + 2
            lasts = fills_ms * roll.gamma(20, 1 / 20, number) + 2_000
            starts, ends = _in_turn(begin_ms, end_ms, lasts, _kubelet_ms(lasts, roll))
            closes = roll.choice((CLIENT, RESET), len(starts), p=(0.8, 0.2))
            parts.append(lives_of(deployment, starts, ends, process, 1, close=closes))
    return together(parts)


def _kubelet_ms(lasts_ms: np.ndarray, roll: Roll) -> np.ndarray:
    """Return the pause after each life: 10 s, doubled up to 5 minutes, and reset after 10 minutes of running."""
    waits, wait = np.empty(len(lasts_ms)), 10_000.0
    for place, lasted in enumerate(lasts_ms):
        wait = 10_000.0 if lasted > 600_000 else wait
        waits[place] = wait
        wait = min(2 * wait, 300_000.0)
    return waits + roll.uniform(800, 4_000, len(waits))


def _supervised(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate systemd with Restart=on-failure: a fixed pause, and a program that fails at the same place."""
    parts = []
    pause_ms, runs_ms = float(roll.choice((5_000, 10_000, 30_000))), roll.uniform(2_000, 60_000)
    for begin_ms, end_ms in _troubles(world, roll, (1, 30)):
        number = int((end_ms - begin_ms) / (pause_ms + 0.4 * runs_ms)) + 2
        lasts = runs_ms * roll.uniform(0.6, 1.4, number)
        starts, ends = _in_turn(begin_ms, end_ms, lasts, pause_ms + roll.uniform(100, 900, number))
        parts.append(lives_of(deployment, starts, ends, 0, 1, requests=1 + roll.poisson(6, len(starts))))
    return together(parts)


def _nightly_export(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a scheduled Spark job with a producer per executor."""
    every_ms = int(roll.choice((1, 6, 24))) * HOUR_MS
    runs = np.arange(world.begin_ms + roll.integers(0, 60) * MINUTE_MS, world.end_ms, every_ms)
    each = np.repeat(runs, deployment.processes)
    starts = each + roll.integers(15_000, 60_000, len(each))
    ends = starts + (roll.gamma(4, 3 * MINUTE_MS, len(each))).astype(np.int64) + 20_000
    return lives_of(deployment, starts, ends, np.arange(len(each)), 1)


def _released(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate a web service released on working days, a quarter of the pods at a time."""
    times = [world.begin_ms - DAY_MS]
    for day in range(world.days):
        if not world.free_days[day]:
            releases = roll.poisson(1.5)
            times += (
                (world.midnight_ms(day) + np.sort(roll.uniform(9, 17, releases)) * HOUR_MS)
                .astype(int)
                .tolist()
            )
    wave_ms = roll.uniform(20_000, 90_000)
    waves = np.arange(deployment.processes) // max(1, deployment.processes // 4)
    starts = np.array(times)[:, None] + waves * wave_ms + roll.uniform(0, 8_000, (len(times), len(waves)))
    starts = np.maximum.accumulate(starts, axis=0)
    ends = np.vstack([starts[1:] + 10_000, np.full((1, len(waves)), world.end_ms + DAY_MS)])
    pods = np.arange(starts.size)
    return lives_of(deployment, starts.ravel().astype(np.int64), ends.ravel().astype(np.int64), pods, 1)


def _scaled(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate an autoscaler with peaks at noon and in the evening; pods stop after five minutes of low load."""
    times = np.arange(world.begin_ms - HOUR_MS, world.end_ms, MINUTE_MS)
    hour = times % DAY_MS / HOUR_MS
    load = 0.15 + np.exp(-((hour - 12.5) ** 2) / 4) + 1.3 * np.exp(-((hour - 20) ** 2) / 5)
    need = np.ceil(deployment.processes * load / 1.5 * np.exp(roll.normal(0, 0.06, len(times)))).astype(int)
    lately = np.max([np.roll(need, step) for step in range(5)], axis=0)
    running = np.maximum(lately, 1)[None, :] > np.arange(2 * deployment.processes)[:, None]
    edges = np.diff(running.astype(np.int8), axis=1, prepend=0, append=0)
    (slots, begins), (_, ends) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    starts = times[begins] + roll.integers(1_000, 30_000, len(slots))
    stops = np.append(times, world.end_ms + DAY_MS)[ends] + roll.integers(1_000, 30_000, len(slots))
    return lives_of(deployment, starts, stops, np.arange(len(slots)), 1)


def _let_run(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate processes started before the history that keep running; machines are replaced now and then."""
    parts = []
    for process in range(deployment.processes):
        moves = np.sort(roll.integers(world.begin_ms, world.end_ms, roll.poisson(world.days / 40)))
        starts = np.concatenate([[world.begin_ms - 5 * DAY_MS], moves + 60_000])
        ends = np.concatenate([moves, [world.end_ms + DAY_MS]])
        parts.append(lives_of(deployment, starts, ends, process + 1_000 * np.arange(len(starts)), 1))
    return together(parts)


def _office(world: World, deployment: Deployment, roll: Roll) -> Lives:
    """Simulate desktop machines: started in the morning, stopped in the evening, on working days."""
    parts = []
    for day in np.flatnonzero(~world.free_days):
        size = deployment.processes
        begins = world.midnight_ms(int(day)) + roll.normal(8.5, 0.6, size) * HOUR_MS
        lasts = roll.normal(8.5, 1.0, size) * HOUR_MS
        there = roll.random(size) < 0.9
        ends = (begins + np.maximum(lasts, HOUR_MS)).astype(np.int64)
        parts.append(
            lives_of(deployment, begins.astype(np.int64)[there], ends[there], np.arange(size)[there], 1)
        )
    return together(parts)


REPORTS: dict[str, Report] = {
    "http_bridge": Report(
        Pattern.PRODUCER_PER_BATCH, _http_bridge, "strimzi-kafka-bridge issues 623 and 1049", client_id="producer-{n}"
    ),
    "http_bridge_kept_alive": Report(
        Pattern.PRODUCER_PER_BATCH, _http_bridge_kept_alive, "strimzi-kafka-bridge issue 1049", client_id="producer-{n}"
    ),
    "fluentd": Report(
        Pattern.PRODUCER_PER_BATCH, _fluentd, "fluent-plugin-kafka issue 290", client_id="kafka", software=("", "")
    ),
    "per_invocation": Report(
        Pattern.PRODUCER_PER_BATCH, _per_invocation, "KIP-936: a producer per batch", client_id="rdkafka",
        software=("librdkafka", "2.11.1"), processes=(1, 4),
    ),
    "per_task_event": Report(
        Pattern.PRODUCER_PER_BATCH, _per_task_event, "OpenLineage docs, pull request 190", client_id="rdkafka",
        software=("confluent-kafka-python", "2.11.0-rdkafka-2.11.0"), processes=(1, 4),
    ),
    "flink_checkpoints": Report(
        Pattern.RANDOM_TRANSACTIONAL_IDS, _flink_checkpoints, "FLINK-8132, FLINK-28250",
        client_id="producer-{stem}-{pod}-{n}", processes=(1, 6), is_transactional=True,
    ),
    "random_prefix": Report(
        Pattern.RANDOM_TRANSACTIONAL_IDS, _random_prefix, "spring-kafka issue 1503",
        client_id="producer-{hex}", processes=(1, 3), is_transactional=True,
    ),
    "replaced_threads": Report(
        Pattern.PRODUCER_PER_ERROR, _replaced_threads, "KAFKA-10810, kafka-streams-examples issue 447",
        client_id="{stem}-StreamThread-{n}-producer",
    ),
    "killed_for_memory": Report(
        Pattern.RESTART_LOOP, _killed_for_memory, "KIP-936: fails after produce; Kubernetes' CrashLoopBackOff",
    ),
    "supervised": Report(
        Pattern.RESTART_LOOP, _supervised, "KIP-936: fails after produce; systemd.service, Restart=",
        client_id="{stem}", processes=(1, 1), grows=False,
    ),
    "nightly_export": Report(
        Pattern.CRON_JOB, _nightly_export, "Spark's Kafka sink: a producer for each executor", processes=(2, 24)
    ),
    "released": Report(Pattern.ROLLING_DEPLOYMENT, _released, "Kubernetes' RollingUpdate", processes=(4, 16)),
    "scaled": Report(Pattern.AUTOSCALING, _scaled, "Kubernetes' HorizontalPodAutoscaler", processes=(4, 20)),
    "let_run": Report(Pattern.STEADY, _let_run, "most clients", processes=(1, 12)),
    "office": Report(
        Pattern.SHARED_ADDRESS, _office, "redpanda issue 3778: clients behind NAT", processes=(12, 50), addresses=1,
        grows=False,
    ),
    "tills": Report(
        Pattern.SHARED_CLIENT_ID, _office, "one client.id in a file that is copied", client_id="{stem}",
        processes=(12, 60), grows=False,
    ),
}  # fmt: skip
