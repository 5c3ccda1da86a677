"""The rogue: one new idempotent producer, and so one new producer id, for each batch it sends.

    python -m pidgate.sandbox.producers.rogue --bootstrap-server H:P --user U --password P --topic T --journal F ...

The mistake is a common one: a producer made inside the function that sends. Each is well-behaved for itself:
refused with NOT_ENOUGH_REPLICAS it sends the same batch again after `throttle_time_ms`, and gives up
after its delivery time-out. Runs until it is terminated.
"""

import argparse
import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pidgate.sandbox.producers.batch_journal import JournalWriter
from pidgate.sandbox.producers.raw import (
    NO_ERROR,
    NOT_ENOUGH_REPLICAS,
    Address,
    RawClientError,
    RawConnection,
    idempotent_batch,
)

# Java's retry.backoff.ms.
_RETRY_BACKOFF_S = 0.1
# While nobody answers, as Java's reconnect.backoff.max.ms would have it.
_RECONNECT_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach the brokers and as whom."""

    bootstrap_server: Address
    user: str
    password: str


class Rogue:
    """One process that makes producers in several threads, so to say."""

    def __init__(
        self,
        login: Login,
        *,
        client_id: str,
        topic: str,
        partitions: int,
        delivery_timeout_s: float,
        from_host: str | None,
        seed: int,
        journal: JournalWriter,
    ) -> None:
        self._login = login
        self._client_id = client_id
        self._topic = topic
        self._partitions = range(partitions)
        self._delivery_timeout_s = delivery_timeout_s
        self._from_host = from_host
        self._dice = random.Random(seed)
        self._journal = journal

    async def run(self, threads: int) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for thread in range(threads):
                group.create_task(self._send_for_ever(thread))

    async def _send_for_ever(self, thread: int) -> None:
        n = 0
        while True:
            n += 1
            try:
                await self._one_producer(f"{self._client_id}|{thread}|{n}".encode())
            except (OSError, RawClientError) as error:
                self._journal.trouble(error)
                await asyncio.sleep(_RECONNECT_BACKOFF_S)

    async def _one_producer(self, value: bytes) -> None:
        login = self._login
        connection = await RawConnection.open(
            login.bootstrap_server, self._client_id, from_host=self._from_host
        )
        try:
            await connection.log_in(login.user, login.password)
            producer_id = await connection.init_producer_id()
            self._journal.began(producer_id, self._client_id, connection.local_address)
            try:
                await self._deliver(connection, producer_id, value)
            except (OSError, RawClientError):
                self._journal.lost(producer_id)
                raise
        finally:
            await connection.close()

    async def _deliver(self, connection: RawConnection, producer_id: int, value: bytes) -> None:
        padding = b"." * self._dice.randrange(300, 600)
        batch = idempotent_batch(producer_id, 0, [value + b"|" + padding])
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._delivery_timeout_s
        while True:
            answer = await connection.produce(self._topic, self._partitions, batch)
            if answer.error_code == NO_ERROR:
                self._journal.acknowledged(producer_id, answer.appended)
                return
            if answer.error_code != NOT_ENOUGH_REPLICAS:
                raise RawClientError(f"Produce failed with code {answer.error_code}")
            self._journal.refused(
                producer_id, answer.error_code, answer.throttle_time_ms, answer.error_message
            )
            wait_s = max(_RETRY_BACKOFF_S, answer.throttle_time_ms / 1000)
            left_s = give_up_s - loop.time()
            await asyncio.sleep(min(wait_s, left_s))
            if wait_s >= left_s:
                self._journal.gave_up(producer_id)
                return


async def _run(arguments: argparse.Namespace, journal: JournalWriter) -> None:
    host, _, port = arguments.bootstrap_server.rpartition(":")
    rogue = Rogue(
        Login((host, int(port)), arguments.user, arguments.password),
        client_id=arguments.client_id,
        topic=arguments.topic,
        partitions=arguments.partitions,
        delivery_timeout_s=arguments.delivery_timeout_s,
        from_host=arguments.from_host,
        seed=arguments.seed,
        journal=journal,
    )
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await rogue.run(arguments.threads)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pidgate.sandbox.producers.rogue")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--delivery-timeout-s", type=float, default=120.0)
    parser.add_argument("--from-host", help="the loopback address to connect from")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with given.journal.open("w", buffering=1) as file:
        asyncio.run(_run(given, JournalWriter(file, given.user, given.topic)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
