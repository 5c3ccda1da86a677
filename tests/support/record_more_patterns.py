"""Recording of a second user for each pattern, of another client and at another pace than in record_patterns.py."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.support.record_patterns import PLAY_S, aio_life, at_addresses, kafka_python, librdkafka
from tests.support.recorded_stage import Scenario, Stage

LABELS: Mapping[str, frozenset[str]] = {
    "backoff-app": frozenset({"restart_loop"}),
    "error-app": frozenset({"producer_per_error"}),
    "batch-app": frozenset({"producer_per_batch"}),
    "txn-app": frozenset({"random_transactional_ids"}),
    "quiet-app": frozenset({"rolling_deployment"}),
    "kept-app": frozenset({"steady"}),
    "waves-app": frozenset({"autoscaling"}),
    "hourly-app": frozenset({"cron_job"}),
    "shop": frozenset({"shared_address"}),
    "clones": frozenset({"shared_client_id"}),
    "lasting-app": frozenset({"steady"}),
    "notebook": frozenset({"unknown"}),
}
ROGUES = frozenset({"backoff", "error", "batch", "txn"})


async def _backoff(stage: Stage) -> None:
    """A process that runs for as long as it happens to, and comes back after a pause that is never the same."""
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        await aio_life(stage, "backoff-app", "backoff", 0.7 + random.lognormvariate(0.0, 0.7), 0.08)
        await asyncio.sleep(random.uniform(0.3, 2.0))


def _errors(stage: Stage) -> None:
    """Each record that the broker refuses (too large for its topic) ends a producer of librdkafka."""
    until_s = time.monotonic() + PLAY_S
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    while time.monotonic() < until_s:
        producer = librdkafka(stage, "error-app", "error", **{"message.max.bytes": 4_000_000})
        failed.clear()
        while not failed and time.monotonic() < until_s:
            size = 1_500_000 if random.random() < 0.25 else 100
            producer.produce(stage.topic, b"x" * size, partition=2, on_delivery=delivered)
            producer.flush(30)
            time.sleep(0.4)
        producer.close()


def _batches(stage: Stage) -> None:
    """A producer of kafka-python for each handful of records, at the pace of its work."""
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        producer = kafka_python(stage, "batch-app", "batch")
        producer.send(stage.topic, b"x", partition=3).get(timeout=30)
        producer.close()
        time.sleep(random.expovariate(1.0))


def _transactions(stage: Stage) -> None:
    until_s = time.monotonic() + PLAY_S
    while time.monotonic() < until_s:
        producer = librdkafka(stage, "txn-app", "txn", **{"transactional.id": f"t-{uuid.uuid4()}"})
        producer.init_transactions(30)
        for _ in range(3):
            producer.begin_transaction()
            producer.produce(stage.topic, b"x", partition=4)
            producer.commit_transaction(30)
        producer.close()
        time.sleep(random.uniform(0.5, 2.0))


def _life(stage: Stage, user: str, client_id: str, begins_s: float, ends_s: float, pause_s: float) -> None:
    """One producer of librdkafka, from and until so many seconds after now; three records at least."""
    began_s, sent = time.monotonic(), 0
    time.sleep(begins_s)
    producer = librdkafka(stage, user, client_id)
    while time.monotonic() < began_s + ends_s or sent < 3:
        producer.produce(stage.topic, b"x", partition=random.randrange(6))
        producer.flush(30)
        sent += 1
        time.sleep(min(pause_s, max(0.0, began_s + ends_s - time.monotonic())))
    producer.close()


async def _lives(stage: Stage, user: str, lives: list[tuple[str, float, float]], pause_s: float) -> None:
    await asyncio.gather(
        *(asyncio.to_thread(_life, stage, user, name, begins, ends, pause_s) for name, begins, ends in lives)
    )


async def _quiet(stage: Stage) -> None:
    """Four instances that send every ten seconds; all are replaced twice."""
    lives = [
        (f"quiet-v{version}-{number}", version * 40.0 + number * (version > 0), (version + 1) * 40.0 + number)
        for version in range(3)
        for number in range(4)
    ]
    await _lives(
        stage, "quiet-app", [(name, begins, min(ends, PLAY_S)) for name, begins, ends in lives], 10.0
    )


async def _kept(stage: Stage) -> None:
    """Four instances that keep their transactional ids; all are replaced once."""

    async def one(number: int) -> None:
        for version in range(2):
            await aio_life(
                stage,
                "kept-app",
                f"kept-v{version}-{number}",
                50.0 + number,
                1.0,
                transactional_id=f"kept-{number}",
            )

    await asyncio.gather(*(one(number) for number in range(4)))


async def _waves(stage: Stage) -> None:
    """Two instances, and four more in each of four waves."""
    base = [(f"waves-0-{number}", 0.0, PLAY_S) for number in range(2)]
    more = [
        (f"waves-{1 + wave}-{number}", 8.0 + wave * 25.0 + number, 24.0 + wave * 25.0 - 1.5 * number)
        for wave in range(4)
        for number in range(4)
    ]
    await _lives(stage, "waves-app", base + more, 0.8)


async def _hourly(stage: Stage) -> None:
    """A job every five seconds by the clock."""
    until_s = time.monotonic() + PLAY_S - 5
    run = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(5.0 - time.monotonic() % 5.0)
        run += 1
        await asyncio.to_thread(_life, stage, "hourly-app", f"hourly-{run}", 0.0, 1.5, 0.3)


async def _notebook(stage: Stage) -> None:
    """Somebody tries something, three times."""
    for number, waits_s in enumerate((11.0, 3.0, 38.0)):
        await asyncio.sleep(waits_s)
        await aio_life(stage, "notebook", "notebook", 2.0 + 5 * number)


async def _all(stage: Stage) -> None:
    # Each producer of librdkafka has a thread here.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(96))
    threads: tuple[Callable[[Stage], None], ...] = (_errors, _batches, _transactions)
    plays: tuple[Awaitable[None], ...] = (
        *(asyncio.to_thread(play, stage) for play in threads),
        *(play(stage) for play in (_backoff, _quiet, _kept, _waves, _hourly, _notebook)),
        _lives(stage, "lasting-app", [(f"lasting-{number}", 0.0, PLAY_S) for number in range(3)], 1.5),
        at_addresses(stage, "shop", [f"till-{n}" for n in range(12)], ["127.0.22.1"] * 12),
        at_addresses(stage, "clones", ["clone"] * 12, [f"127.0.23.{n + 1}" for n in range(12)]),
    )
    await asyncio.gather(*plays)


SCENARIOS: Mapping[str, Scenario] = {
    "more-patterns": Scenario(
        about="A second user for each pattern, of another client, at another pace",
        quotas={"mode": "observe"},
        play=_all,
        labels=LABELS,
        rogue_clients=ROGUES,
    )
}
