"""Answers to Metadata for many topics, and beside them tiny requests that show whether the event loop is blocked.

The tiny ones are ApiVersions on a connection of their own, which a broker answers, and GET /livez of the admin address,
which the gateway answers by itself on the same event loop: lateness there is lateness of the gateway. Each is sent at
its own time, whatever the answers do; latency counts from when it was due.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pidgate.load.context import FAILURES, Context
from pidgate.load.exchanges import message_of
from pidgate.load.loops import OneByOne
from pidgate.load.plan import Address, Plan
from pidgate.load.running import Client, Group, Result, play
from pidgate.load.tally import Tally
from pidgate.protocol.codec import encode_request, message_class
from pidgate.protocol.messages import METADATA, METADATA_PROBE_VERSION, api_versions_request
from tools.bench.loads.client import CLIENT_ID, Through, latency_summary
from tools.bench.loads.played import Mark, measured_run

_LAST_ANSWERS_S = 30.0


@dataclass(frozen=True, slots=True)
class MetadataPlan:
    """Topics, and requests with their rates; a rate of 0 leaves that request out."""

    topics: int
    partitions: int
    metadata_per_s: float
    tiny_per_s: float
    seconds: float
    admin_port: int


def topic_name(number: int) -> str:
    return f"bench-metadata-{number:04}"


def metadata_requests(topics: int) -> list[bytes]:
    """Return a request for all topics, then requests for all of them by name but a different one each time.

    So every answer is new to a gateway that recognizes answers by their checksum.
    """
    some = [_metadata_request(None)]
    for left_out in range(min(topics, 20)):
        some.append(_metadata_request([topic_name(n) for n in range(topics) if n != left_out]))
    return some


def _metadata_request(names: list[str] | None) -> bytes:
    topics = None if names is None else [{"name": name} for name in names]
    body = {"topics": topics, "allow_auto_topic_creation": False}
    message = message_of(message_class(METADATA, "request"), METADATA_PROBE_VERSION, body)
    return encode_request(1, CLIENT_ID, message)


class _Requests(OneByOne):
    """Requests in turns, over one connection; the bytes of their answers."""

    def __init__(self, context: Context, tally: Tally, requests: Sequence[bytes]) -> None:
        super().__init__(context, tally, 0)
        self._link = self.link_to_leader(0)
        self._requests = requests

    async def prepare(self) -> None:
        await self._link.connection()

    async def do_work(self, due_s: float) -> None:
        request = self._requests[self.next_turn() % len(self._requests)]
        try:
            answer = await (await self._link.connection()).send(request)
        except FAILURES:
            self.tally.count_lost(due_s)
            return await self.count_connection_error()
        return self.tally.count_acknowledged(due_s, answer.arrived_s, 1, len(answer.frame))

    def end_run(self, end_s: float) -> None:
        super().end_run(end_s)
        self._link.drop()


class _Livez(OneByOne):
    """GET /livez over one connection."""

    def __init__(self, context: Context, tally: Tally, address: Address) -> None:
        super().__init__(context, tally, 0)
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def do_work(self, due_s: float) -> None:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r", 1)[0]))
        except (OSError, EOFError, ValueError):
            self.tally.count_lost(due_s)
            return
        if head.split()[1] == b"200":
            self.tally.count_acknowledged(due_s, self.loop.time(), 1, 0)
        else:
            self.tally.count_lost(due_s)

    def end_run(self, end_s: float) -> None:
        super().end_run(end_s)
        if self._streams is not None:
            self._streams[1].close()


def run_metadata(through: Through, plan: MetadataPlan) -> dict[str, float]:
    """Send all three kinds for `seconds`; return latencies in ms by kind. Raises LoadError."""
    whole = Plan(
        bootstrap=(through.address,),
        clients={},
        client_id=CLIENT_ID,
        duration_s=plan.seconds,
        is_direct=True,
        drain_s=_LAST_ANSWERS_S,
    )

    async def asked(mark: Mark) -> Result:
        context, groups = Context.of(whole), {}
        await context.cluster.open()

        def add(kind: str, client: Client, tally: Tally, per_s: float) -> None:
            if per_s:
                groups[kind] = Group([client], tally, per_s)

        tallies = [Tally(), Tally(), Tally()]
        tiny = _Requests(context, tallies[0], [api_versions_request(1, CLIENT_ID)])
        large = _Requests(context, tallies[2], metadata_requests(plan.topics))
        admin = _Livez(context, tallies[1], (through.address[0], plan.admin_port))
        add("kafka", tiny, tallies[0], plan.tiny_per_s)
        add("loop", admin, tallies[1], plan.tiny_per_s)
        add("metadata", large, tallies[2], plan.metadata_per_s)
        return await play(whole, groups, asyncio.Event(), mark=mark)

    result, _ = measured_run(through, asked)
    measured = {
        f"{kind}_{name}": value
        for kind, tally in result.tallies.items()
        for name, value in latency_summary(tally.latency).items()
    }
    answers = result.tallies.get("metadata", Tally())
    each = answers.bytes / max(answers.acknowledged, 1)
    return {**measured, "answers": answers.acknowledged, "answer_bytes": each}
