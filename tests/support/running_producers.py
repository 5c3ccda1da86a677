"""Producers that run already when a gateway comes (or comes back), and what a gateway says of them.

Their sequences are above 0, as a running producer's are: to a gateway that remembers nothing they look new.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka.admin import AdminClient

from tests.support.swarm import Sent, SwarmProducer
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.log_checker import read_log

USER = "ANONYMOUS"


def next_value(producer: SwarmProducer) -> bytes:
    """No two batches of a test are alike: what was lost or doubled shows."""
    return b"%d-%d" % (producer.producer_id, producer.sequence)


async def running_producers(
    brokers: str, topic: str, number: int, *, at_once: int = 100
) -> list[SwarmProducer]:
    """That many, with ids of the cluster; each has sent one batch directly to the brokers, and is not connected."""
    room = asyncio.Semaphore(at_once)

    async def one() -> SwarmProducer:
        async with room:
            producer = await SwarmProducer(brokers, topic).begin()
            await producer.send(next_value(producer))
            producer.close()
            return producer

    return list(await asyncio.gather(*(one() for _ in range(number))))


async def send_all(producers: Iterable[SwarmProducer], *, within_s: float = 60.0) -> list[Sent]:
    """One batch of each at the same moment, each until it is acknowledged."""
    return list(
        await asyncio.gather(
            *(producer.send(next_value(producer), within_s=within_s) for producer in producers)
        )
    )


async def send_all_once(producers: Iterable[SwarmProducer]) -> Counter[int]:
    """One try of each; how often each error code was the answer."""
    sent = await asyncio.gather(*(producer.send_once(next_value(producer)) for producer in producers))
    return Counter(one.codes[-1] for one in sent)


def move_all(producers: Iterable[SwarmProducer], address: str) -> None:
    for producer in producers:
        producer.move_to(address)


def close_all(producers: Iterable[SwarmProducer]) -> None:
    for producer in producers:
        producer.close()


def codes_of(sent: Iterable[Sent]) -> Counter[tuple[int, ...]]:
    """How often each history of error codes came about."""
    return Counter(tuple(one.codes) for one in sent)


def check_exactly_once(brokers: str, topic: str, producers: Sequence[SwarmProducer]) -> None:
    """What was acknowledged is in the log, once, and nothing else is."""
    acknowledged = sorted(value for producer in producers for value in producer.acknowledged)
    found = Counter(record.value for record in read_log(brokers, topic))
    assert [value for value, times in found.items() if times > 1] == []
    missing = [value for value in acknowledged if value not in found]
    assert missing == []
    assert len(found) == len(acknowledged)


def admitted(gateway: GatewayProcess, reason: str) -> int:
    """Ids let in for that reason, as its metrics say."""
    return int(gateway.metrics().value("pidgate_producer_ids_admitted_total", user=USER, reason=reason))


def tokens(gateway: GatewayProcess) -> float:
    return gateway.metrics().value("pidgate_producer_ids_tokens", user=USER)


def until(is_true: Callable[[], object], within_s: float = 20.0, what: str = "") -> float:
    """Wait for it; how long it took."""
    began_s = time.monotonic()
    while not is_true():
        assert time.monotonic() - began_s < within_s, what or "not in time"
        time.sleep(0.02)
    return time.monotonic() - began_s


def delete_topic(brokers: str, topic: str) -> None:
    """If it is there, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": brokers})
    if topic not in admin.list_topics(timeout=10).topics:
        return
    admin.delete_topics([topic], operation_timeout=30)[topic].result(timeout=60)
    give_up_s = time.monotonic() + 20
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < give_up_s
        admin.poll(0.05)
