"""Kafka's Sensor, Rate and SampledStat once more, in plain words: a ring of samples, nothing kept in between.

It is slow and says what org.apache.kafka.common.metrics does; quota/byte_quota.py is held to it. `number` is what the
division is done in: float, as in Kafka, or Fraction, which rounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Number = float | Fraction


@dataclass
class PlainSample:
    start_ms: int
    last_ms: int
    value: int = 0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0


class PlainSensor:
    """`record` returns the throttle in ms, as ClientQuotaManager does."""

    def __init__(
        self, samples: int, sample_ms: int, bound: int, number: Callable[[int], Number] = float
    ) -> None:
        self.samples = samples
        self.sample_ms = sample_ms
        self.bound = bound
        self.number = number
        self.ring: list[PlainSample] = []
        self.current = 0

    def record(self, value: int, now_ms: int) -> int:
        if not self.ring:
            self.ring.append(PlainSample(now_ms, now_ms))
        if now_ms - self.ring[self.current].start_ms >= self.sample_ms:
            self._advance(now_ms)
        self.ring[self.current].value += value
        self.ring[self.current].last_ms = now_ms
        return self._throttle_ms(now_ms)

    def _advance(self, now_ms: int) -> None:
        self.current = (self.current + 1) % (self.samples + 1)
        if self.current == len(self.ring):
            self.ring.append(PlainSample(now_ms, now_ms))
        else:
            self.ring[self.current].reset(now_ms)

    def _throttle_ms(self, now_ms: int) -> int:
        for sample in self.ring:
            if now_ms - sample.last_ms >= self.samples * self.sample_ms:
                sample.reset(now_ms)
        window_ms = now_ms - min(sample.start_ms for sample in self.ring)
        full = window_ms // self.sample_ms
        if full < self.samples - 1:
            window_ms += (self.samples - 1 - full) * self.sample_ms
        rate = self.number(sum(sample.value for sample in self.ring)) / (self.number(window_ms) / 1_000)
        if rate <= self.bound:
            return 0
        return math.floor((rate - self.bound) / self.bound * window_ms + self.number(1) / 2)
