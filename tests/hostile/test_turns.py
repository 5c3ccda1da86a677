"""How long others wait beside one account that keeps the event loop busy, from a few connections or from many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import pytest

from tests.hostile.attack import HOSTILE_USER, Place, Target
from tests.hostile.attacker import Attacker
from tests.hostile.cost import Cost, MiB
from tests.hostile.site import BUSY_MS, Site, running_site
from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import Closed, request
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

API_VERSIONS: Final = 18
FEW, MANY = 5, 40
FOR_S: Final = 1.5
SHARE_BYTES: Final = MANY * MiB
"""Requests of one read that wait for a turn, and their answers."""
LIVEZ_S: Final = 2.0
"""By the clock, on a busy machine."""


def dear_produce(target: Target) -> bytes:
    """Return a Produce that is refused, and takes nearly 10 ms: it has as many partitions as may be."""
    empty: list[tuple[int, bytes | None]] = [(number, None) for number in range(1, 2_998)]
    batch = record_batch(target.new_id(), records=ONE_RECORD)
    return framed(produce_request(9, [(target.topic, [(0, batch), *empty])])) * 4


def many_questions(target: Target) -> bytes:
    """Return as many ApiVersions as a client can send before it has to read."""
    return request(API_VERSIONS, 3) * 100


FLOODS: Final[dict[str, tuple[str | None, Callable[[Target], bytes], int]]] = {
    "dear Produces of a user": (HOSTILE_USER, dear_produce, 4),
    "pipelined ApiVersions": (None, many_questions, 100),
}
"""Who sends, what, and how many answers that has."""


class Flood:
    """Connections of one account that send again as soon as they are answered."""

    def __init__(self, site: Site, kind: str, connections: int) -> None:
        user, frames, self._answers = FLOODS[kind]
        self._frames = frames(site.target())
        self._over = threading.Event()
        self.answered = 0
        self._clients = [site.connect(user) for _ in range(connections)]
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in self._clients]

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client: Attacker) -> None:
        with client, suppress(OSError, Closed):
            while not self._over.is_set():
                client.send(self._frames)
                for _ in range(self._answers):
                    client.frame()
                    self.answered += 1
                    if self._over.is_set():
                        return


def under(site: Site, kind: str, connections: int) -> tuple[Cost, float]:
    """Return what the flood cost, and how long the health check waited at most."""
    longest_s = 0.0
    with site.under_attack(share_bytes=SHARE_BYTES) as cost, Flood(site, kind, connections) as flood:
        until_s = time.monotonic() + FOR_S
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            assert site.gateway.status("/livez") == HTTPStatus.OK
            longest_s = max(longest_s, time.monotonic() - began_s)
            time.sleep(0.02)
    assert flood.answered > FOR_S * 10, "the attack did not arrive"
    return cost, longest_s


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=pytest.mark.nightly) if "pipelined" in one else one for one in FLOODS]
)
def test_others_wait_no_longer_for_many_connections_than_for_few(sasl_cluster: Cluster, kind: str) -> None:
    place = Place(sasl=FLOODS[kind][0] is not None)
    with running_site(sasl_cluster, place) as site:
        few, _ = under(site, kind, FEW)
        many, livez_s = under(site, kind, MANY)
    assert many.busy_ms < 2 * few.busy_ms + BUSY_MS / 2
    assert livez_s < LIVEZ_S
