"""Scripts of what goes wrong at a stage's brokers."""

from __future__ import annotations

from random import Random

from tests.unit.simulator.clients.stage import Cut, Hold, Refuse, Script, Seen, Verdict


class Sticky:
    """As a gateway over its quota does: all is refused until then, and no batch overtakes one that is refused.

    A request is refused whole; who sends what is behind a sixth time, and not what was refused, is cut off.
    """

    def __init__(self, until_s: float, throttle_ms: int = 500) -> None:
        self._until_s = until_s
        self._throttle_ms = throttle_ms
        self._lowest: dict[int, int] = {}
        self._further: dict[int, int] = {}

    def __call__(self, seen: Seen, *, at_s: float | None = None) -> Verdict | None:
        if seen.api != "Produce":
            return None
        above = [
            partition
            for partition, _, sequence in seen.batches
            if sequence > self._lowest.get(partition, sequence)
        ]
        for partition in above:
            self._further[partition] = self._further.get(partition, 0) + 1
            if self._further[partition] > 5:
                del self._lowest[partition], self._further[partition]
                return Cut(taken=False)
        if above or (seen.at_s if at_s is None else at_s) < self._until_s:
            for partition, _, sequence in seen.batches:
                if sequence < self._lowest.get(partition, sequence + 1):
                    self._lowest[partition] = sequence
                    self._further.pop(partition, None)
            return Refuse(19, self._throttle_ms)
        for partition, _, _ in seen.batches:
            self._lowest.pop(partition, None)
        return None


class Once:
    """One verdict, about the n-th request of an API (from 0)."""

    def __init__(self, verdict: Verdict, n: int = 0, api: str = "Produce") -> None:
        self._verdict = verdict
        self._left = n
        self._api = api

    def __call__(self, seen: Seen) -> Verdict | None:
        if seen.api != self._api:
            return None
        self._left -= 1
        return self._verdict if self._left == -1 else None


class Overtaking:
    """The n-th Produce (from 0) is refused, and what is behind it until it comes again."""

    def __init__(self, n: int, throttle_ms: int = 300) -> None:
        self._left = n
        self._sticky = Sticky(0.0, throttle_ms)

    def __call__(self, seen: Seen) -> Verdict | None:
        if seen.api != "Produce":
            return None
        self._left -= 1
        return self._sticky(seen, at_s=-1.0 if self._left == -1 else seen.at_s)


def answers(*verdicts: Verdict) -> Script:
    """These for the first Produce requests."""
    left = iter(verdicts)
    return lambda seen: next(left, None) if seen.api == "Produce" else None


class Weather:
    """For some seconds requests are cut off, answered late or never; and Produce is refused as by a gateway."""

    def __init__(self, random: Random, until_s: float = 20.0) -> None:
        self._random = random
        self._until_s = until_s
        self._sticky = Sticky(random.uniform(0.0, 5.0), random.choice((0, 200, 2_000)))

    def __call__(self, seen: Seen) -> Verdict | None:
        verdict = self._sticky(seen)
        if verdict is not None or seen.at_s > self._until_s:
            return verdict
        chance, taken = self._random.random(), self._random.random() < 0.5
        if chance < 0.10:
            return Cut(taken)
        if chance < 0.15:
            return Hold(taken, self._random.uniform(0.0, 5.0))
        if chance < 0.16:
            return Hold(taken)
        return None
