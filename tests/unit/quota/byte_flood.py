"""Clients that send as much as they are let: what passes, on a clock of its own."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pidgate.quota.byte_quota import ClientSensors

ROUND_TRIP_MS = 5


class Flood:
    """Each client sends its next request when the one before was answered, and its mute is over."""

    def __init__(self, sensors_of: Sequence[ClientSensors], request_bytes: int, until_ms: int) -> None:
        self.passed: list[tuple[int, int]] = []
        self.longest_wait_ms = 0
        due = [(number * 7 % 50, number) for number in range(len(sensors_of))]
        heapq.heapify(due)
        while due[0][0] <= until_ms:
            now_ms, number = heapq.heappop(due)
            wait_ms = sensors_of[number].record(request_bytes, now_ms)
            self.passed.append((now_ms, request_bytes))
            self.longest_wait_ms = max(self.longest_wait_ms, wait_ms)
            heapq.heappush(due, (now_ms + max(ROUND_TRIP_MS, wait_ms), number))

    def bytes_per_s(self, from_ms: int, to_ms: int) -> float:
        """What passed in that time."""
        return (
            sum(size for at_ms, size in self.passed if from_ms <= at_ms < to_ms) * 1_000 / (to_ms - from_ms)
        )
