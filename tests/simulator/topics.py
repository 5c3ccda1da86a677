"""The gateways' own topics as a model: a log in memory, and what OwnClient gives out, with aiokafka's names and errors.

A request reaches the log after a delay, and its answer comes back after another. Where a gateway's host is cut off,
either may be lost: what was written then is written again, as aiokafka does, until the request's time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError

from pidgate.gateway.config.settings import Settings
from pidgate.gateway.topics.own_client import OwnClient
from tests.simulator.loop import SimulatedLoop
from tests.simulator.process import CURRENT, Process

SHORTEST_S: Final = 0.0005
LONGEST_S: Final = 0.008
"""Of one way, before `slowness`."""
BACKOFF_S: Final = 0.1
_ALREADY_EXISTS: Final = 36
_CREATE_TIME: Final = 0
_APPEND_TIME: Final = 1


class Record(NamedTuple):
    """A record of a partition, as a consumer gives it out."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class ModelTopic:
    """One topic: its partitions' records, and who waits for more."""

    name: str
    partitions: list[list[Record]]
    settings: Mapping[str, str]
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def append(self, partition: int, events: Sequence[tuple[bytes | None, bytes | None]], now_ms: int) -> int:
        """Append records; return the first one's offset."""
        log = self.partitions[partition]
        kind = (
            _APPEND_TIME if self.settings.get("message.timestamp.type") == "LogAppendTime" else _CREATE_TIME
        )
        first = len(log)
        for key, value in events:
            log.append(Record(partition, len(log), now_ms, kind, key, value))
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
        return first


class ModelTopics:
    """The cluster as own clients see it. Faults: `cut` and `heal` of a gateway's host, `slowness`, `lose`, `delete`.

    Pass `own_client` to a SimulatedGateway.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.topics: dict[str, ModelTopic] = {}
        self.slowness = 1.0
        self._random = Random(f"{loop.seed}/topics")
        self._cut: dict[str, asyncio.Event] = {}

    def own_client(self, settings: Settings) -> OwnClient:
        process = CURRENT.get()
        assert process is not None
        return _ModelClient(self, process, settings)

    def cut(self, host: str) -> None:
        """Let nothing of a gateway's reach the topics, and no answer reach it."""
        self._cut.setdefault(host, asyncio.Event())

    def heal(self) -> None:
        """Let everybody reach them."""
        cut, self._cut = self._cut, {}
        for healed in cut.values():
            healed.set()

    def lose(self, topic: str, share: float) -> None:
        """Lose the last of each partition, as an unclean leader election does; its offsets are given anew."""
        for log in self.topics[topic].partitions:
            del log[len(log) - int(len(log) * share) :]

    def delete(self, topic: str) -> None:
        """Delete a topic; whoever needs it makes it anew."""
        self.topics.pop(topic, None)

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values in a topic, partition by partition."""
        found = self.topics.get(topic)
        return [] if found is None else [record.value for log in found.partitions for record in log]

    # ---- for its clients -------------------------------------------------------------------------------

    def is_cut(self, process: Process) -> bool:
        return process.name in self._cut

    def healed(self, process: Process) -> asyncio.Event:
        return self._cut[process.name]

    def wall_ms(self) -> int:
        return self.loop.wall_ns() // 1_000_000

    async def way(self) -> None:
        """One way of a request or answer."""
        await asyncio.sleep(self.slowness * self._random.uniform(SHORTEST_S, LONGEST_S))

    async def ask(self, process: Process) -> None:
        """Put a question and get its answer. Raises KafkaConnectionError."""
        await self.way()
        if self.is_cut(process):
            raise KafkaConnectionError("Unable to bootstrap from the model")
        await self.way()

    def outside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Go on with what a process has sent, whether or not it lives."""
        return Context().run(self.loop.create_task, work)


class _ModelClient(OwnClient):
    """An OwnClient of one process."""

    def __init__(self, topics: ModelTopics, process: Process, settings: Settings) -> None:
        super().__init__([str(server) for server in settings.cluster.bootstrap_servers])
        object.__setattr__(self, "made_of", (topics, process))

    made_of: tuple[ModelTopics, Process]

    def producer(self, **settings: Any) -> Any:
        return _Producer(
            *self.made_of, settings["request_timeout_ms"] / 1000, settings.get("max_batch_size", 16384)
        )

    def consumer(self, client_id: str = "", **_: Any) -> Any:
        return _Consumer(*self.made_of)

    def admin(self, **_: Any) -> Any:
        return _Admin(*self.made_of)


class _Client:
    def __init__(self, topics: ModelTopics, process: Process) -> None:
        self._topics = topics
        self._process = process

    async def start(self) -> None:
        await self._topics.ask(self._process)

    async def stop(self) -> None:
        """Nothing is open."""

    async def close(self) -> None:
        """Nothing is open."""

    def _topic(self, name: str) -> ModelTopic:
        found = self._topics.topics.get(name)
        if found is None:
            raise UnknownTopicOrPartitionError(name)
        return found


class _Errors(NamedTuple):
    topic_errors: list[tuple[str, int, str]]


class _Resources(NamedTuple):
    resources: list[tuple[int, str, int, str, list[tuple[str, str]]]]


class _Admin(_Client):
    """Makes topics; an older broker's, which shows no topic ids."""

    async def create_topics(self, new_topics: Sequence[Any], timeout_ms: int) -> _Errors:
        await self._topics.ask(self._process)
        (new,) = new_topics
        if new.name in self._topics.topics:
            return _Errors([(new.name, _ALREADY_EXISTS, "it exists")])
        logs: list[list[Record]] = [[] for _ in range(new.num_partitions)]
        self._topics.topics[new.name] = ModelTopic(new.name, logs, dict(new.topic_configs))
        return _Errors([(new.name, 0, "")])

    async def describe_configs(self, config_resources: Sequence[Any]) -> list[_Resources]:
        await self._topics.ask(self._process)
        (asked,) = config_resources
        entries = list(self._topic(asked.name).settings.items())
        return [_Resources([(0, "", 2, asked.name, entries)])]


class _Batch:
    """A batch being filled, of `most` bytes."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.events: list[tuple[bytes | None, bytes | None]] = []

    def append(self, *, key: bytes | None, value: bytes | None, timestamp: int | None) -> object:
        size = len(key or b"") + len(value or b"") + 20
        if self.events and size > self._left:
            return None
        self._left -= size
        self.events.append((key, value))
        return self

    def close(self) -> None:
        """Nothing is added from here on."""


class _Producer(_Client):
    """Writes; one request of it after the other."""

    def __init__(self, topics: ModelTopics, process: Process, timeout_s: float, batch_bytes: int) -> None:
        super().__init__(topics, process)
        self._timeout_s = timeout_s
        self._batch_bytes = batch_bytes
        self._before: asyncio.Task[None] | None = None

    async def partitions_for(self, topic: str) -> set[int]:
        await self._topics.ask(self._process)
        return set(range(len(self._topic(topic).partitions)))

    def create_batch(self) -> _Batch:
        return _Batch(self._batch_bytes)

    async def send_batch(self, batch: _Batch, topic: str, *, partition: int) -> asyncio.Future[int]:
        return self._send(topic, partition, batch.events)

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None, *, partition: int
    ) -> asyncio.Future[int]:
        return self._send(topic, partition, [(key, value)])

    def _send(
        self, topic: str, partition: int, events: Sequence[tuple[bytes | None, bytes | None]]
    ) -> asyncio.Future[int]:
        loop = self._topics.loop
        sent: asyncio.Future[int] = loop.create_future()
        work = self._deliver(self._before, self._topic(topic), partition, events, sent)
        self._before = self._topics.outside(work)
        return sent

    async def _deliver(
        self,
        before: asyncio.Task[None] | None,
        topic: ModelTopic,
        partition: int,
        events: Sequence[tuple[bytes | None, bytes | None]],
        sent: asyncio.Future[int],
    ) -> None:
        topics, process = self._topics, self._process
        if before is not None and not before.done():
            await asyncio.wait([before])
        give_up_s = topics.loop.time() + self._timeout_s
        while not sent.cancelled():
            await topics.way()
            if not topics.is_cut(process):
                offset = topic.append(partition, events, topics.wall_ms())
                await topics.way()
                if not topics.is_cut(process):
                    if not sent.cancelled():
                        sent.set_result(offset)
                    return
            if not process.is_alive:
                return
            try:
                async with asyncio.timeout_at(give_up_s):
                    await topics.healed(process).wait()
                    await asyncio.sleep(BACKOFF_S)
            except TimeoutError:
                if not sent.cancelled():
                    sent.set_exception(KafkaTimeoutError("the request's time is over"))
                return


class _Found(NamedTuple):
    offset: int
    timestamp: int


class _Consumer(_Client):
    """Reads what it is assigned."""

    def __init__(self, topics: ModelTopics, process: Process) -> None:
        super().__init__(topics, process)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)
        self._paused.clear()

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(len(self._topic(topic).partitions)))

    async def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        await self._topics.ask(self._process)
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        await self._topics.ask(self._process)
        return {partition: len(self._log(partition)) for partition in partitions}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, _Found | None]:
        await self._topics.ask(self._process)
        return {
            partition: next(
                (
                    _Found(record.offset, record.timestamp)
                    for record in self._log(partition)
                    if record.timestamp >= at_ms
                ),
                None,
            )
            for partition, at_ms in times.items()
        }

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Record]]:
        topics = self._topics
        if topics.is_cut(self._process) or not self._has_more():
            await self._more(timeout_ms / 1000)
        await topics.way()
        if topics.is_cut(self._process):
            return {}
        found: dict[TopicPartition, list[Record]] = {}
        for partition, at in self._positions.items():
            log = self._log(partition)
            if at > len(log):
                at = 0  # auto.offset.reset: earliest
            if max_records and partition not in self._paused and (records := log[at : at + max_records]):
                found[partition] = records
                self._positions[partition] = at + len(records)
                max_records -= len(records)
        return found

    def _has_more(self) -> bool:
        return any(at != len(self._log(partition)) for partition, at in self._positions.items())

    async def _more(self, timeout_s: float) -> None:
        """Wait until something is appended, as a broker keeps a fetch."""
        loop = self._topics.loop
        more: asyncio.Future[None] = loop.create_future()
        for name in dict.fromkeys(partition.topic for partition in self._positions):
            self._topic(name).waiting.append(more)
        timer = loop.call_later(timeout_s, _end, more)
        try:
            await more
        finally:
            timer.cancel()

    def _log(self, partition: TopicPartition) -> list[Record]:
        return self._topic(partition.topic).partitions[partition.partition]


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
