"""A hostile client: frames at the edges, drawn from a seed. It may lose what it sends; nobody else may.

Each act is a connection of its own, and one line of the trace. It knows the producer ids of others, if it is given
them: it may use up their sequences with their own user's name, which is why it belongs to a user of its own.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random

from tests.simulator.clients import frames
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.clients.settings import Settings
from tests.simulator.clients.turns import Trace
from tests.support.frames import NAMED, produce_frame

_MOST_SEQUENCE = 0x7FFFFFFF
_MOST_ID = (1 << 63) - 1
_EDGE_SIZES = (0, 1, 4, 8, -1, -2147483648, 104_857_601, 2147483647)


class Hostile:
    """`run` does a number of acts, one after another or several at once; `acts` counts them by name."""

    def __init__(self, name: str, settings: Settings, random: Random, trace: Trace | None = None) -> None:
        self.name = name
        self.acts: dict[str, int] = {}
        self.others_ids: list[int] = []
        """Producer ids of other clients, to be fabricated now and then."""
        self._settings = settings
        self.random = random
        self._trace = trace
        self.correlation_id = 0

    async def run(self, acts: int, *, pause_s: float = 0.05) -> None:
        """Do so many acts. Whatever the other side does to a connection ends its act."""
        ways = list(ACTS)
        for _ in range(acts):
            way = self.random.choice(ways)
            self.acts[way] = self.acts.get(way, 0) + 1
            if self._trace is not None:
                self._trace(f"{self.name} {way}")
            try:
                longest_s = 40.0 if self.random.random() < 0.3 else 0.6
                async with asyncio.timeout(self.random.uniform(0.1, longest_s)):
                    await self._act(ACTS[way])
            except (OSError, EOFError, TimeoutError):
                pass
            await asyncio.sleep(self.random.uniform(0.0, 2 * pause_s))

    async def _act(self, act: Act) -> None:
        address = self.random.choice(self._settings.bootstrap)
        reader, writer = await asyncio.open_connection(*address)
        try:
            if act is not pipelined_login:
                await self._log_in(reader, writer)
            await act(self, reader, writer)
        finally:
            if self.random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()

    # ---- frames ----------------------------------------------------------------------------------------

    def numbered(self, frame: bytes) -> bytes:
        """With the next correlation id."""
        self.correlation_id += 1
        return frames.numbered(frame, self.correlation_id)

    def greeting(self) -> list[bytes]:
        """ApiVersions and the login, if there is one."""
        found = [frames.api_versions(3, self.name, "hostile")]
        login = self._settings.login
        if login is not None:
            found.append(frames.handshake(self.name, login.mechanism))
            token = f"\0{login.user}\0{login.password}".encode()
            found.append(frames.authenticate(2, self.name, token))
        return [self.numbered(frame) for frame in found]

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for frame in self.greeting():
            writer.write(frame)
            await read_frame(reader)

    def producer_id(self) -> int:
        """Fabricated: at an edge, somebody else's, or any."""
        random = self.random
        if self.others_ids and random.random() < 0.3:
            return random.choice(self.others_ids)
        edge = random.choice((0, -1, -2, _MOST_ID, -_MOST_ID - 1, 1 << 32))
        return random.choice((edge, random.randrange(1_000), random.getrandbits(62)))

    def produce(
        self,
        ids: int = 1,
        *,
        repeat: bool = False,
        acks: int = -1,
        value: bytes = b"hostile",
        is_good: bool = False,
    ) -> bytes:
        """A Produce with that many producer ids, one for each partition it names. `is_good`: brokers take it."""
        random = self.random
        if is_good:
            self.correlation_id += 1
            batch = (random.randrange(2), random.getrandbits(40), 0, 0, 1, value)
            topic = self._settings.topic.encode()
            return produce_frame(NAMED, self.correlation_id, self.name, (batch,), topic=topic, acks=acks)
        same = (self.producer_id(), random.choice((0, 1, 32_767, -1)), random.choice((0, 1, _MOST_SEQUENCE)))
        batches = tuple(
            (
                number,
                *(
                    same
                    if repeat
                    else (self.producer_id(), random.choice((0, 0, 3)), random.choice((0, 0, 7)))
                ),
                random.randint(1, 3),
                value,
            )
            for number in range(ids)
        )
        self.correlation_id += 1
        return produce_frame(
            NAMED,
            self.correlation_id,
            self.name,
            batches,
            topic=self._settings.topic.encode(),
            transactional_id=random.choice((None, None, None, b"hostile", b"")),
            acks=acks,
        )


Act = Callable[[Hostile, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next answer. Raises EOFError."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def pipelined_login(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything at once: login, Produce, another login, without waiting for an answer."""
    writer.write(b"".join([*me.greeting(), me.produce(), *me.greeting()[1:], me.produce()]))
    while True:
        await read_frame(reader)


async def fabricated_ids(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ids that no broker gave it."""
    for _ in range(me.random.randint(1, 8)):
        writer.write(me.produce())
        await read_frame(reader)


async def many_ids_in_a_frame(
    me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """More ids in one frame than any client sends."""
    writer.write(me.produce(me.random.choice((2, 7, 8, 9, 50, 400))))
    await read_frame(reader)


async def duplicates(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One batch over and over, and one that names a partition twice."""
    frame = me.produce(repeat=True)
    for _ in range(me.random.randint(2, 10)):
        writer.write(me.numbered(frame))
    writer.write(me.produce(2, repeat=True))
    while True:
        await read_frame(reader)


async def half_a_frame(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A frame that ends in the middle, and then silence, or the end."""
    frame = me.produce(value=b"." * me.random.choice((7, 7, 9_000)))
    writer.write(frame[: me.random.randrange(1, len(frame))])
    if me.random.random() < 0.5:
        writer.write_eof()
    await reader.read()


async def never_reads(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests and requests, and no look at the answers."""
    del reader
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(me.random.randint(10, 200)):
        writer.write(me.numbered(frames.metadata(12, me.name, "model")))
        writer.write(me.produce())
    await asyncio.sleep(20.0)


async def garbage(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes, behind a size that fits or does not."""
    random = me.random
    body = random.randbytes(random.randrange(0, 300))
    size = random.choice((len(body), *_EDGE_SIZES))
    head = struct.pack(">hhi", random.choice((0, 3, 18, 22, 24, 26, 9_999)), random.choice((0, 9, 13, 99)), 1)
    writer.write(struct.pack(">i", size) + random.choice((b"", head)) + body)
    await reader.read()


async def bent(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A good frame with some bytes of it changed."""
    random = me.random
    frame = bytearray(me.produce(random.randint(1, 3)))
    for _ in range(random.randint(1, 4)):
        frame[random.randrange(4, len(frame))] = random.getrandbits(8)
    writer.write(bytes(frame))
    await read_frame(reader)


async def second_login(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Another login where there is one, with its requests around it."""
    writer.write(me.produce() + b"".join(me.greeting()[1:]) + me.produce())
    while True:
        await read_frame(reader)


async def ids_for_nothing(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """InitProducerId as fast as it goes; nothing is written with the ids."""
    count = me.random.randint(1, 30)
    frame = frames.init_producer_id(4, me.name, None, -1, (-1, -1))
    writer.write(b"".join(me.numbered(frame) for _ in range(count)))
    for _ in range(count):
        await read_frame(reader)


async def no_answers(me: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Produces of acks=0 among others. Raises ModelViolation for an answer out of turn, or to one of them."""
    answered = []
    for _ in range(me.random.randint(2, 8)):
        acks = me.random.choice((0, 0, -1, 1))
        writer.write(me.produce(acks=acks, is_good=me.random.random() < 0.8))
        if acks:
            answered.append(me.correlation_id)
        writer.write(me.numbered(frames.metadata(12, me.name, "model")))
        answered.append(me.correlation_id)
    for expected in answered:
        found = int.from_bytes((await read_frame(reader))[:4], "big")
        if found != expected:
            raise ModelViolation(f"{me.name} was answered {found} in place of {expected}")


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        pipelined_login,
        fabricated_ids,
        many_ids_in_a_frame,
        duplicates,
        half_a_frame,
        never_reads,
        garbage,
        bent,
        second_login,
        ids_for_nothing,
        no_answers,
    )
}
