"""The description of an attack: which frames, in which versions, how they come over the wire, at which gateways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pytest
from _pytest.mark.structures import ParameterSet

from pidgate.protocol.produce import FIRST_TOPIC_ID
from pidgate.protocol.versions import SPOKEN
from tests.support.frames import ONE_RECORD, Topics, framed, produce_request, record_batch

if TYPE_CHECKING:
    from tests.hostile.attacker import Attacker

HOSTILE_USER: Final = "bob"
"""Has a rate of 0 at every place, as ANONYMOUS has where nobody logs in: no id of theirs may pass."""


_ids = itertools.count(10_000_000)


class Delivery(StrEnum):
    """How frames come."""

    WHOLE = "whole"  # each waits for the answer to the one before
    PIPELINED = "pipelined"  # all in one write
    ODD_BYTES = "odd bytes"  # all, cut anywhere


class Place(NamedTuple):
    """The gateway that is attacked."""

    sasl: bool = True
    mode: str = "enforce"
    tls: bool = False

    def __str__(self) -> str:
        tls = ", TLS" if self.tls else ""
        return f"{'SASL' if self.sasl else 'plain'}{tls}, {self.mode}"


PLACES: Final = (
    *(Place(sasl, mode) for mode in ("enforce", "observe") for sasl in (True, False)),
    Place(tls=True),
)
"""All there are; the first of an attack's is the one that it meets by day."""
WITH_SASL: Final = tuple(place for place in PLACES if place.sasl)
ENFORCED: Final = tuple(place for place in PLACES if place.mode == "enforce")


@dataclass(frozen=True, slots=True)
class Target:
    """What the frames of one case are made for."""

    topic: str
    """Of this case alone: the ids that the brokers know there are those that passed."""
    version: int
    place: Place
    topic_id: UUID | None = None
    """Known where `version` names topics by id."""

    def named(self, version: int) -> Any:
        """Return the topic as a Produce of that version names it."""
        return self.topic_id if version >= FIRST_TOPIC_ID else self.topic

    def new_id(self) -> int:
        """Return a producer id that nobody used yet."""
        return next(_ids)

    def produce(self, producer_id: int | None = None, *, version: int = 9, **options: Any) -> bytes:
        """Return a framed Produce of one record; by default its producer id is new."""
        batch = record_batch(self.new_id() if producer_id is None else producer_id, records=ONE_RECORD)
        return self.produce_of([(self.named(version), [(0, batch)])], version=version, **options)

    def produce_of(self, topics: Topics, *, version: int = 9, **options: Any) -> bytes:
        """Return a framed Produce of any batches. `options`: those of `frames.produce_request`."""
        return framed(produce_request(version, topics, **options))


def versions_of(api_key: int) -> tuple[int, ...]:
    """Return the newest, the oldest and, between them, the last inflexible and the first flexible version."""
    api = SPOKEN[api_key]
    first = api.flexible_from
    around = () if first is None else (first - 1, first)
    found = (api.max_version, api.min_version, *around)
    return tuple(dict.fromkeys(v for v in found if api.min_version <= v <= api.max_version))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one of the attack's connections saw: answers without their size, in order."""

    answers: Sequence[bytes]
    is_closed: bool


def _no_more(_target: Target, _outcomes: Sequence[Outcome]) -> None:
    """Ask nothing beyond what every attack is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack. Whatever is not given is what most have."""

    name: str
    frames: Callable[[Target], Iterable[bytes]]
    """Made anew for each case and connection, each behind its size (`framed`, `raw.request`, `target.produce`)."""
    versions: Sequence[int] = (0,)
    """Come to `frames` as `target.version`; see `versions_of`. By day the first."""
    deliveries: Sequence[Delivery] = tuple(Delivery)
    """By day the last."""
    places: Sequence[Place] = PLACES
    """By day the first."""
    user: str | None = HOSTILE_USER
    """Logs in first, where there is SASL; None: the frames are the first of their connection."""
    log_in: Callable[[Attacker], None] | None = None
    """How `user` logs in, if not by PLAIN."""
    connections: int = 1
    answers: int | None = None
    """How many are waited for, unless the connection is closed; None: one for each frame. 0: a peer that is silent."""
    ids_allowed: int = 0
    """Producer ids that may pass where the quota is enforced."""
    share_bytes: int = 0
    """Memory that the configuration grants to it; 32 MB are granted beyond."""
    log_lines: int = 1
    by_day: bool = True
    """Whether `make test` has a case of it."""
    check: Callable[[Target, Sequence[Outcome]], None] = _no_more
    """What else has to hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """One attack in one version, one delivery."""

    attack: Attack
    version: int
    delivery: Delivery
    place: Place

    def __str__(self) -> str:
        return f"{self.attack.name}, v{self.version}, {self.delivery}, {self.place}"


def cases(attacks: Sequence[Attack]) -> pytest.MarkDecorator:
    """Decorate a test of `site` and `case`: each attack in each version, delivery and place, most of them by night."""
    # By place, so that each gateway is started once.
    found = sorted(
        (case for attack in attacks for case in _cases_of(attack)), key=lambda case: PLACES.index(case.place)
    )
    return pytest.mark.parametrize("case", [_param(case) for case in found])


def _cases_of(attack: Attack) -> Iterator[Case]:
    for chosen in itertools.product(attack.versions, attack.deliveries, attack.places):
        yield Case(attack, *chosen)


def _param(case: Case) -> ParameterSet:
    attack = case.attack
    first = Case(attack, attack.versions[0], attack.deliveries[-1], attack.places[0])
    is_by_day = attack.by_day and case == first
    return pytest.param(
        case, id=str(case), marks=[pytest.mark.kafka, *([] if is_by_day else [pytest.mark.nightly])]
    )
