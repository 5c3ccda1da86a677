"""A user far over its quota: new connections at a rate, each with an id of its own that is refused and comes back.

    python -m bench.storm_load ADDRESS --topic-id HEX [--login USER:PASSWORD] PLAN

Each connection logs in, if it is told how, and sends the first batch of an id that no broker has given to anybody;
refused, it waits as long as it was told and sends the same batch again, and closes when it has been refused `tries`
times. So `connections_per_s` x `tries` refusals come per second. Each is begun at its own time whatever the answers do.
SIGTERM ends it: it prints one JSON object, in which are the ids that were let in.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final, cast

import uvloop

from bench.cold_client import Address, Login, parse_address
from bench.wire import CLIENT_ID, ProduceFrame, record_batch
from pidgate import open_files
from pidgate.protocol.producer_requests import sasl_authenticate_request, sasl_handshake_request

NOT_ENOUGH_REPLICAS: Final = 19

# Far above what a broker hands out.
_FIRST_ID: Final = 1 << 50
_SIZE: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_LOGIN_ERROR_AT: Final = 4
# Correlation id, tags, topics, topic id, partitions, partition index.
_PRODUCE_ERROR_AT: Final = 4 + 1 + 1 + 16 + 1 + 4
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class StormPlan:
    """How many connections, and how stubborn each is."""

    connections_per_s: float
    tries: int
    partitions: int
    record_bytes: int


@dataclass(slots=True)
class Tally:
    """What has happened so far."""

    opened: int = 0
    refusals: int = 0
    failed: int = 0
    """Connections that were closed or answered in another way: none is expected."""
    why: str = ""
    open_now: int = 0
    admitted: list[int] = field(default_factory=list)

    def fail(self, why: str) -> None:
        self.failed += 1
        self.why = why


class _Refused(asyncio.Protocol):
    """One connection of the storm."""

    transport: asyncio.Transport

    def __init__(self, storm: "_Storm", number: int) -> None:
        self._storm = storm
        self._number = number
        self._received = bytearray()
        self._left_to_send = [*storm.login_frames, storm.produce_frame(number)]
        self._refused = 0
        self._is_done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._storm.tally.opened += 1
        self._storm.tally.open_now += 1
        self.transport.write(self._left_to_send[0])

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= 4 and len(self._received) >= 4 + _SIZE.unpack_from(self._received)[0]:
            answer, self._received = bytes(self._received[4:]), bytearray()
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        if len(self._left_to_send) > 1:
            if _ERROR_CODE.unpack_from(answer, _LOGIN_ERROR_AT)[0]:
                self._end("the login was refused")
                return
            del self._left_to_send[0]
            self.transport.write(self._left_to_send[0])
            return
        error_code, throttle_time_ms = read_refusal(answer)
        if error_code == NOT_ENOUGH_REPLICAS:
            self._storm.tally.refusals += 1
            self._refused += 1
            if self._refused < self._storm.plan.tries:
                self._storm.loop.call_later(throttle_time_ms / 1e3, self._come_back)
            else:
                self._end()
        elif error_code == 0:
            self._storm.tally.admitted.append(_FIRST_ID + self._number)
            self._end()
        else:
            self._end(f"error code {error_code}")

    def _come_back(self) -> None:
        if not self._is_done:
            self.transport.write(self._left_to_send[0])

    def _end(self, why: str = "") -> None:
        self._is_done = True
        if why:
            self._storm.tally.fail(why)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._storm.tally.open_now -= 1
        self._storm.has_closed.set()
        if not self._is_done:
            self._is_done = True
            self._storm.tally.fail(f"closed by the other side: {exc}")


class _Storm:
    def __init__(
        self, address: Address, topic_id: bytes, login: Login | None, first: int, plan: StormPlan
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.plan = plan
        self.tally = Tally()
        self.has_closed = asyncio.Event()
        self.is_over = False
        self.seconds = 0.0
        self.login_frames = _login_frames(login) if login is not None else ()
        self._address = address
        self._topic_id = topic_id
        self._first = first
        self._connecting: set[asyncio.Task[None]] = set()

    def produce_frame(self, number: int) -> bytes:
        batch = record_batch(_FIRST_ID + number, 1, self.plan.record_bytes)
        partition = number % self.plan.partitions
        return bytes(ProduceFrame(self._topic_id, [partition], batch, acks=1, records=1).buffer)

    async def blow(self) -> None:
        """Begin connections until `is_over`; then wait until the last one is through."""
        began = time.monotonic()
        for index in itertools.count():
            if self.is_over:
                break
            wait_s = began + index / self.plan.connections_per_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            task = self.loop.create_task(self._connect(self._first + index))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        self.seconds = time.monotonic() - began
        await asyncio.gather(*self._connecting)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while self.tally.open_now:
                    self.has_closed.clear()
                    await self.has_closed.wait()
        except TimeoutError:
            self.tally.fail(f"connections left open after {_PATIENCE_S:.0f} s: {self.tally.open_now}")

    async def _connect(self, number: int) -> None:
        try:
            await self.loop.create_connection(lambda: _Refused(self, number), *self._address)
        except OSError as error:
            self.tally.fail(str(error))


def _login_frames(login: Login) -> tuple[bytes, ...]:
    client_id = CLIENT_ID.decode()
    token = "\0".join(("", *login)).encode()
    return (
        sasl_handshake_request(1, client_id, "PLAIN"),
        sasl_authenticate_request(2, client_id, token),
    )


def read_refusal(answer: bytes) -> tuple[int, int]:
    """(error code, throttle_time_ms) of a Produce v13 answer for one partition, without its size prefix.

    The throttle stands before the last tags, which are empty when the gateway answers by itself.
    """
    return _ERROR_CODE.unpack_from(answer, _PRODUCE_ERROR_AT)[0], _SIZE.unpack_from(answer, len(answer) - 5)[
        0
    ]


async def run_storm(
    address: Address, topic_id: bytes, login: Login | None, first: int, plan: StormPlan
) -> dict[str, Any]:
    """The storm through `address` until SIGTERM; ids are numbered from `first` on."""
    storm = _Storm(address, topic_id, login, first, plan)

    def stop() -> None:
        storm.is_over = True

    storm.loop.add_signal_handler(signal.SIGTERM, stop)
    await storm.blow()
    tally = storm.tally
    return {
        "seconds": storm.seconds,
        "opened": tally.opened,
        "refusals": tally.refusals,
        "failed": tally.failed,
        "why": tally.why,
        "admitted": tally.admitted,
    }


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.storm_load", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--topic-id", required=True)
    parser.add_argument("--login", default="", metavar="USER:PASSWORD", help="SASL PLAIN")
    parser.add_argument("--first", type=int, default=0, help="number of the first id")
    parser.add_argument("--cpus", default="")
    parser.add_argument("plan")
    arguments = parser.parse_args()
    if arguments.cpus:
        os.sched_setaffinity(0, set(map(int, arguments.cpus.split(","))))
    open_files.allow_most()
    user, _, password = arguments.login.partition(":")
    print(
        json.dumps(
            uvloop.run(
                run_storm(
                    parse_address(arguments.address),
                    bytes.fromhex(arguments.topic_id),
                    (user, password) if user else None,
                    arguments.first,
                    StormPlan(**json.loads(arguments.plan)),
                )
            )
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
