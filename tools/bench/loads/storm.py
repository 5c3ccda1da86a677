"""A user far over its quota: new connections at a rate, each with an id of its own that is refused and comes back.

Each connection logs in, if there is a login, and sends the first batch of an id that no broker has given to anybody;
refused, it waits for its throttle time and sends the same batch again, and closes when it has been refused `tries`
times. So `connections_per_s` x `tries` refusals come per second. Each is begun at its own time whatever the answers do.
SIGTERM ends it; among what it measured are the ids that were let in.
"""

import asyncio
import itertools
import signal
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import uvloop

from pidgate.load.connection import ConnectionLost, connect
from pidgate.load.exchanges import log_in, produce
from pidgate.protocol.errors import ErrorCode, KafkaProtocolError
from pidgate.protocol.logins import LoginRefused
from tools.bench.loads.client import CLIENT_ID, Through, record_batch

# Far above what a broker hands out.
_FIRST_ID: Final = 1 << 50
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class StormPlan:
    """Number of connections, and how stubborn each is."""

    connections_per_s: float
    tries: int
    partitions: int
    record_bytes: int
    first: int
    """Number of the first id."""


@dataclass(slots=True)
class Tally:
    """Counts so far."""

    seconds: float = 0.0
    opened: int = 0
    refusals: int = 0
    failed: int = 0
    """Connections that were closed or answered in another way: none is expected."""
    why: str = ""
    admitted: list[int] = field(default_factory=list)

    def fail(self, why: str) -> None:
        self.failed += 1
        self.why = why


class _Storm:
    def __init__(self, through: Through, plan: StormPlan) -> None:
        self.tally = Tally()
        self.is_over = False
        self._through = through
        self._plan = plan

    async def blow(self) -> None:
        """Begin connections until `is_over`; then wait until the last one is through."""
        began_s = time.monotonic()
        living: set[asyncio.Task[None]] = set()
        for index in itertools.count():
            if self.is_over:
                break
            wait_s = began_s + index / self._plan.connections_per_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            task = asyncio.ensure_future(self._live(self._plan.first + index))
            living.add(task)
            task.add_done_callback(living.discard)
        self.tally.seconds = time.monotonic() - began_s
        left = (await asyncio.wait(living, timeout=_PATIENCE_S))[1] if living else ()
        if left:
            self.tally.fail(f"connections left open after {_PATIENCE_S:.0f} s: {len(left)}")

    async def _live(self, number: int) -> None:
        try:
            connection = await connect(self._through.address, client_id=CLIENT_ID)
            self.tally.opened += 1
            try:
                if self._through.login is not None:
                    await connection.run(log_in(self._through.login))
                batch = record_batch(_FIRST_ID + number, 1, self._plan.record_bytes)
                batches = [(number % self._plan.partitions, batch)]
                for tries in range(1, self._plan.tries + 1):
                    answer = await connection.run(produce(self._through.topic_id, batches, acks=1))
                    if answer.error_code != ErrorCode.NOT_ENOUGH_REPLICAS:
                        break
                    self.tally.refusals += 1
                    if tries < self._plan.tries:
                        await asyncio.sleep(answer.throttle_time_ms / 1e3)
                        if not connection.is_open:
                            raise ConnectionLost("closed by the other side")
            finally:
                connection.close()
        except (OSError, LoginRefused, KafkaProtocolError) as error:
            return self.tally.fail(str(error))
        if answer.error_code == ErrorCode.NONE:
            self.tally.admitted.append(_FIRST_ID + number)
        elif answer.error_code != ErrorCode.NOT_ENOUGH_REPLICAS:
            self.tally.fail(f"error code {answer.error_code}")


def run_storm(through: Through, plan: StormPlan) -> dict[str, Any]:
    """Storm in an event loop of its own."""
    return uvloop.run(storm(through, plan))


async def storm(through: Through, plan: StormPlan) -> dict[str, Any]:
    """Storm until SIGTERM and return the counts."""
    connections = _Storm(through, plan)

    def stop() -> None:
        connections.is_over = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await connections.blow()
    return asdict(connections.tally)
