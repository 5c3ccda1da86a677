"""The failover example of KIP-936 under the text's own rule, exact to the last fraction.

Six brokers, each dead when it holds more than 200 producer ids. Broker 1 dies for whatever reason; its ids go to
others, 60 of 100 to broker 2. The text says neither where the other 40 go nor how later loads spread, and asserts the
end: so the spread is an argument here, and each has its answer. Plain Python: six brokers need no Spark.

Real brokers do not behave so: see cascade.py. Source: KIP-936, Rejected Alternatives 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, repeat

Spread = Callable[[Fraction, Sequence[int]], list[Fraction]]
"""Rule by which a dead broker's load falls on the living ones, in the order in which they come after it."""

LOADS: Mapping[int, int] = {1: 100, 2: 150, 3: 100, 4: 120, 5: 100, 6: 90}
LIMIT = 200
FIRST_DEAD = 1
_TO_NEXT = Fraction(60, 100)


def evenly(load: Fraction, living: Sequence[int]) -> list[Fraction]:
    """Spread to all living brokers alike."""
    return [load / len(living)] * len(living)


def mostly_to_next(load: Fraction, living: Sequence[int]) -> list[Fraction]:
    """60 % to the next broker, the rest evenly over the others; all of it to the last one."""
    if len(living) == 1:
        return [load]
    return [load * _TO_NEXT, *evenly(load * (1 - _TO_NEXT), living[1:])]


@dataclass(frozen=True, slots=True)
class Rule:
    """A name, and the spread of loads at the first death and at each one after it."""

    name: str
    first: Spread
    later: Spread | None
    """None: the text says no more, so nothing after the first death is looked at."""

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
    """One broker after one step: step 0 is the first death, each later one what the death before it brought."""

    rule: str
    step: int
    broker: int
    load: Fraction
    """Ids it holds; of a dead broker: those it held when it died."""
    dead: bool
    """It died in this step of this load, or before."""


def run(rule: Rule, loads: Mapping[int, int] = LOADS, first_dead: int = FIRST_DEAD) -> list[BrokerLoad]:
    """Every broker after every step, until nobody living is above the limit or nobody lives.

    Of several above the limit the one that comes next after the last dead dies first.
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
    """The living, beginning with the one that comes next in the ring."""
    return sorted(living, key=lambda broker: (broker < last_dead, broker))


def _step(rule: Rule, step: int, held: Mapping[int, Fraction], dead: Sequence[int]) -> list[BrokerLoad]:
    return [BrokerLoad(rule.name, step, broker, load, broker in dead) for broker, load in held.items()]


def fatal_loads(broker_loads: Sequence[BrokerLoad]) -> dict[int, Fraction]:
    """Return the load of each broker when it died, in the order of their deaths."""
    deaths: dict[int, Fraction] = {}
    for one in broker_loads:
        if one.dead:
            deaths.setdefault(one.broker, one.load)
    return deaths


def most_deaths_survivable(loads: Mapping[int, int] = LOADS) -> int:
    """Return how many brokers may be gone before no spread fits all ids onto the others."""
    needed = -(-sum(loads.values()) // LIMIT)
    return len(loads) - needed
