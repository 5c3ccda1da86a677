"""A stage for one model client: a simulated network, a model cluster, and a script that says what goes wrong.

The cluster answers as Kafka does, unless the script has another verdict about a request. `seen` holds what arrived.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain, repeat
from random import Random
from typing import Any, NamedTuple, TypeVar

from pidgate.load.plan import Login
from pidgate.protocol.headers import RequestHead, peek_request
from tests.simulator.brokers.batches import values
from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.entries import Entry
from tests.simulator.brokers.server import BrokerConnection, Brokers
from tests.simulator.brokers.sessions import Listener
from tests.simulator.brokers.wire import PartitionAnswer, produce_answer, read_produce
from tests.simulator.clients.producer import ModelProducer
from tests.simulator.clients.settings import Settings, Times
from tests.simulator.clients.traits import Traits
from tests.simulator.loop import SimulatedLoop

TOPIC = "model"
PRODUCE = 0
NAMES = {0: "Produce", 3: "Metadata", 10: "FindCoordinator", 18: "ApiVersions", 22: "InitProducerId"}
NAMES |= {24: "AddPartitionsToTxn", 26: "EndTxn", 17: "SaslHandshake", 36: "SaslAuthenticate"}

T = TypeVar("T")
Place = tuple[int, int, int]
"""Partition, epoch and base sequence of a batch."""


class Seen(NamedTuple):
    """A request that arrived at a broker."""

    at_s: float
    node_id: int
    connection: int
    api: str
    version: int
    batches: tuple[Place, ...] = ()
    producer_ids: tuple[int, ...] = ()
    raw: tuple[bytes, ...] = ()


class Refuse(NamedTuple):
    """Answer a Produce with this code for all its partitions; the cluster does not see it."""

    code: int = 19
    throttle_ms: int = 0


class Hold(NamedTuple):
    """Act on it after so long; or never answer it, whether the cluster has taken it or not."""

    taken: bool = True
    for_s: float | None = None


class Cut(NamedTuple):
    """Close the connection instead of an answer."""

    taken: bool


Verdict = Refuse | Hold | Cut
Script = Callable[[Seen], Verdict | None]


class Connection(BrokerConnection):
    """A broker's end of a connection; the script is asked about each request first."""

    def __init__(self, stage: Stage, node_id: int) -> None:
        super().__init__(stage.brokers, node_id, stage.listener)
        self._stage = stage
        stage.connections += 1
        self._number = stage.connections

    def _act(self, frame: bytes, *, goes_on: bool = True) -> None:
        stage = self._stage
        if not stage.is_traced:
            super()._act(frame, goes_on=goes_on)
            return
        head = peek_request(frame, 0, len(frame))
        seen = stage.read(self._node_id, self._number, frame, head)
        stage.seen.append(seen)
        verdict = stage.script(seen) if stage.script is not None else None
        if verdict is None:
            super()._act(frame, goes_on=goes_on)
        elif isinstance(verdict, Refuse):
            self._answer(_refusal(frame, head, verdict), goes_on=goes_on)
        elif isinstance(verdict, Cut):
            if verdict.taken:
                self._taken(frame)
            self.reset()
        elif verdict.for_s is not None:
            asyncio.get_running_loop().call_later(verdict.for_s, partial(super()._act, frame))
        elif verdict.taken:
            self._taken(frame)

    def _taken(self, frame: bytes) -> bytes | None:
        assert self._session is not None
        return self._stage.cluster.answer(self._session, frame, self._brokers.now_ms())


def _refusal(frame: bytes, head: RequestHead, verdict: Refuse) -> bytes:
    asked = read_produce(frame, head)
    topics = [
        (topic, [PartitionAnswer(index, verdict.code) for index, _ in partitions])
        for topic, partitions in asked.topics
    ]
    answer = produce_answer(head, topics, [])
    return answer[:-5] + struct.pack(">i", verdict.throttle_ms) + answer[-1:]


class Stage:
    """Everything of one test; `play` runs its story as the client's process."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        partitions: int = 1,
        seed: int = 1,
        script: Script | None = None,
        users: dict[str, str] | None = None,
        traced: bool = True,
        delay_s: float = 0.0,
    ) -> None:
        """`traced`: whether what arrives is read and kept; not where it is garbage. `delay_s`: of each Produce."""
        self.loop = SimulatedLoop(seed)
        self.listener = Listener("ONLY", users)
        self.cluster = ModelCluster(nodes, {TOPIC: partitions}, listeners=(self.listener,), now_ms=1_000_000)
        self.brokers: Brokers
        self.script = script
        self.seen: list[Seen] = []
        self.trace: list[str] = []
        self.connections = 0
        self.seed = seed
        self.is_traced = traced
        self._delay_s = delay_s

    def play(self, story: Callable[[], Awaitable[T]]) -> T:
        """Run the story to its end, as the client's process."""

        async def all_of_it() -> T:
            self.brokers = self.made_brokers()
            for node_id in self.cluster.nodes.ids:
                host, port = self.cluster.address(node_id, "ONLY")
                node = self.loop.process(f"broker {node_id}", host=host)
                await node.spawn(self.loop.create_server(partial(Connection, self, node_id), host, port))
            return await self.loop.process("client").spawn(_awaited(story))

        return self.loop.run(all_of_it())

    def made_brokers(self) -> Brokers:
        """On the running loop. The first Produce takes five times as long: a pipeline is full before it is answered."""
        delays = chain((5 * self._delay_s,), repeat(self._delay_s))
        return Brokers(self.cluster, delay_s=lambda _, frame: 0.0 if any(frame[:2]) else next(delays))

    def settings(
        self,
        *,
        transactional_id: str | None = None,
        times: Times | None = None,
        login: Login | None = None,
        newest: dict[int, int] | None = None,
    ) -> Settings:
        """Of a client before this cluster."""
        return Settings(
            bootstrap=(self.cluster.address(1, "ONLY"),),
            topic=TOPIC,
            transactional_id=transactional_id,
            times=times,
            login=login,
            newest=newest,
        )

    def make(self, traits: Traits, name: str = "client-1", **settings: Any) -> Any:
        """A client of that family, before this cluster. Call it within the story."""
        return ModelProducer(
            traits, name, self.settings(**settings), Random(f"{self.seed}/{name}"), self._note
        )

    def _note(self, line: str) -> None:
        self.trace.append(f"{self.loop.time() - 1000:9.4f} {line}")

    def read(self, node_id: int, connection: int, frame: bytes, head: RequestHead) -> Seen:
        """What a frame is."""
        name = NAMES.get(head.api_key, str(head.api_key))
        now_s = round(self.loop.time() - 1000, 4)
        if head.api_key != PRODUCE:
            return Seen(now_s, node_id, connection, name, head.api_version)
        places, ids, raw = [], [], []
        for _, partitions in read_produce(frame, head).topics:
            for index, records in partitions:
                assert records is not None
                producer_id, epoch, sequence = struct.unpack_from(">qhi", records, 43)
                places.append((index, epoch, sequence))
                ids.append(producer_id)
                raw.append(records)
        return Seen(now_s, node_id, connection, name, head.api_version, tuple(places), tuple(ids), tuple(raw))

    @property
    def produced(self) -> list[tuple[Place, ...]]:
        """The batches of each Produce, in the order of arrival."""
        return [seen.batches for seen in self.seen if seen.api == "Produce"]

    @property
    def apis(self) -> list[str]:
        """The names of all requests but ApiVersions and Metadata, in the order of arrival."""
        return [seen.api for seen in self.seen if seen.api not in ("ApiVersions", "Metadata")]

    def log(self, partition: int = 0) -> list[bytes]:
        """The value of each batch in a partition's log."""
        return [
            value_of(entry) for entry in self.cluster.partition(TOPIC, partition).log if entry.commits is None
        ]

    def committed(self, partition: int = 0) -> list[bytes]:
        """The value of each batch that a read_committed consumer is given."""
        return [value_of(entry) for entry in self.cluster.partition(TOPIC, partition).committed()]

    def story(self) -> str:
        """Trace of the client and what arrived, for a test that fails."""
        return "\n".join([*self.trace, "", *(str(seen._replace(raw=())) for seen in self.seen)])


async def _awaited(story: Callable[[], Awaitable[T]]) -> T:
    return await story()


def value_of(entry: Entry) -> bytes:
    """The value of a batch's first record."""
    return values(entry.raw)[0] or b""
