"""KIP-936's failover example under its own rule, in exact fractions.

Six brokers, each dead above 200 producer ids. Broker 1 dies for any reason and its ids move, 60 of 100 to
broker 2. The KIP specifies neither the other 40 nor later moves, and only states the end. The spread is
therefore an argument here, with a result for each. They ship as pidgate/pipeline/failover/kip.csv.

Real brokers behave differently: see failover/cascade.py. Source: KIP-936, Rejected Alternatives 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, repeat

Spread = Callable[[Fraction, Sequence[int]], list[Fraction]]
"""Rule that spreads a dead broker's load over the living ones, given in ring order after it."""

LOADS: Mapping[int, int] = {1: 100, 2: 150, 3: 100, 4: 120, 5: 100, 6: 90}
LIMIT = 200
FIRST_DEAD = 1
_TO_NEXT = Fraction(60, 100)


def evenly(load: Fraction, living: Sequence[int]) -> list[Fraction]:
    """Spread evenly over all living brokers."""
    return [load / len(living)] * len(living)


def mostly_to_next(load: Fraction, living: Sequence[int]) -> list[Fraction]:
    """Move 60 % to the next broker and the rest evenly to the others; all of it to the last one."""
    if len(living) == 1:
        return [load]
    return [load * _TO_NEXT, *evenly(load * (1 - _TO_NEXT), living[1:])]


@dataclass(frozen=True, slots=True)
class Rule:
    """A name, and the spreads for the first and for later deaths."""

    name: str
    first: Spread
    later: Spread | None
    """None: unspecified in the KIP, so the model stops after the first death."""

    def spreads(self) -> chain[Spread]:
        return chain([self.first], repeat(self.later) if self.later else [])


RULES = (
    Rule("the text's step only", mostly_to_next, None),
    Rule("then evenly", mostly_to_next, evenly),
    Rule("then 60 % to the next, the rest evenly", mostly_to_next, mostly_to_next),
    Rule("evenly from the start", evenly, evenly),
)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker after a step; step 0 is the first death, each later step the effect of the previous death."""

    rule: str
    step: int
    broker: int
    load: Fraction
    """Ids it holds; for a dead broker those at its death."""
    dead: bool
    """Whether this step's load or an earlier one killed it."""


def run(rule: Rule, loads: Mapping[int, int] = LOADS, first_dead: int = FIRST_DEAD) -> list[BrokerLoad]:
    """Return every broker after every step, until no living broker is above the limit.

    Of several above the limit, the next one in the ring after the last death dies first.
    """
    held = {broker: Fraction(load) for broker, load in loads.items()}
    dead = [first_dead]
    broker_loads = _step(rule, 0, held, dead)
    for step, spread in enumerate(rule.spreads(), 1):
        living = _after(dead[-1], held.keys() - set(dead))
        if not living:
            break
        for broker, more in zip(living, spread(held[dead[-1]], living), strict=True):
            held[broker] += more
        above = [broker for broker in living if held[broker] > LIMIT]
        dead += above[:1]
        broker_loads += _step(rule, step, held, dead)
        if not above:
            break
    return broker_loads


def _after(last_dead: int, living: Set[int]) -> list[int]:
    """Return the living brokers in ring order after the last death."""
    return sorted(living, key=lambda broker: (broker < last_dead, broker))


def _step(rule: Rule, step: int, held: Mapping[int, Fraction], dead: Sequence[int]) -> list[BrokerLoad]:
    return [BrokerLoad(rule.name, step, broker, load, broker in dead) for broker, load in held.items()]


def fatal_loads(broker_loads: Sequence[BrokerLoad]) -> dict[int, Fraction]:
    """Return the load of each broker at its death, in order of death."""
    deaths: dict[int, Fraction] = {}
    for one in broker_loads:
        if one.dead:
            deaths.setdefault(one.broker, one.load)
    return deaths


def most_deaths_survivable(loads: Mapping[int, int] = LOADS) -> int:
    """Return the number of deaths after which no spread fits all ids onto the living brokers."""
    needed = -(-sum(loads.values()) // LIMIT)
    return len(loads) - needed
