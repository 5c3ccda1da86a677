"""A connection that a lane gives back goes on as if the lane had never had it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pidgate.gateway.lane.lanes import Left
from pidgate.gateway.proxy.lending import Lending
from tests.support.scene import Scene, heartbeat

FRAME_MS = 60_000


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


def test_the_deadline_of_a_frame_that_a_lane_carried_ends_with_the_lending(scene: Scene) -> None:
    pair = scene.connect()
    pair.client.receive(heartbeat(1))
    connection = pair.channel.connection
    lending, reservation = Lending(pair.channel, connection), connection.reservation
    in_frame = 0, 0, 0, 0, 0, 0, 0, 0, scene.time_ms, list[tuple[bytes, bytes]]()
    lending.left(Left(in_frame, b"", b"", b"", b"", [], 0, None, 0, None, 0))
    assert not reservation.is_overdue(scene.time_ms + FRAME_MS + 1, FRAME_MS)
