"""What passed for the first time: new producer ids and new transactional ids, by user; read from the wires.

Of hostile clients, too: what they wrote is read as a broker reads it, whatever they may have meant by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pidgate.protocol import codec
from pidgate.protocol.errors import KafkaProtocolError
from tests.simulator import wiretap
from tests.simulator.observed import ANONYMOUS
from tests.simulator.wiretap import Frame

if TYPE_CHECKING:
    from tests.simulator.world import World

MALLORY: Final = "mallory"
"""The user of hostile clients, who write to a topic of that name."""
ADD_PARTITIONS: Final = (24).to_bytes(2, "big")
INIT_PRODUCER_ID: Final = (22).to_bytes(2, "big")


class Admission(NamedTuple):
    """`what`: a producer id, or a transactional one."""

    at_s: float
    gateway: str
    what: object


Admissions = dict[str, list[Admission]]
"""By user, in the order of time."""


def producer_ids(world: World) -> Admissions:
    """Return when each new id that counts passed for the first time, through which gateway."""
    found: Admissions = {}
    known: set[tuple[str, int, bool]] = set()
    added: dict[int, float] = {}
    counts_transactional = world.setup.quotas.enforces_transactional
    for frame, is_hostile in wiretap.all_written_to_brokers(world):
        if frame.raw[:2] == ADD_PARTITIONS and counts_transactional and not is_hostile:
            # Before version 2 an id is paid for when its first partitions are added.
            request = codec.decode_request(frame.raw, frame.head)
            added.setdefault(request.v3_and_below_producer_id, frame.at_s)
        for user, producer_id, in_transaction in used(world, frame, is_hostile):
            if (user, producer_id, in_transaction) in known:
                continue
            known.add((user, producer_id, in_transaction))
            if in_transaction and not counts_transactional:
                continue
            at_s = added.get(producer_id, frame.at_s)
            gateway = frame.process
            found.setdefault(user, []).append(Admission(at_s, gateway, producer_id))
    return {user: sorted(admitted, key=lambda one: one.at_s) for user, admitted in found.items()}


def used(world: World, frame: Frame, is_hostile: bool) -> list[tuple[str, int, bool]]:
    """Return user, id and whether it is used in a transaction, of each batch of a Produce."""
    if is_hostile:
        return [(MALLORY, *one) for one in wiretap.ids_in(frame)]
    found = []
    for name, numbers in wiretap.batches_in(frame):
        client = world.applications[name.producer].setup
        found.append((_user(world, client.user), numbers.producer_id, client.is_transactional))
    return found


def transactional_ids(world: World) -> Admissions:
    """Return when each new transactional id was let pass to a broker for the first time, through which gateway."""
    found: Admissions = {}
    known: set[tuple[str, str]] = set()
    owners = {f"{one.name}.tx": one.setup.user for one in world.everybody if one.setup.is_transactional}
    for frame, is_hostile in wiretap.all_written_to_brokers(world):
        if frame.raw[:2] != INIT_PRODUCER_ID:
            continue
        try:
            name = codec.decode_request(frame.raw, frame.head).transactional_id
        except KafkaProtocolError:
            continue
        if name is None:
            continue
        user = MALLORY if is_hostile else _user(world, owners[name])
        if (user, name) not in known:
            known.add((user, name))
            gateway = frame.process
            found.setdefault(user, []).append(Admission(frame.at_s, gateway, name))
    return found


def _user(world: World, user: str) -> str:
    return user if world.setup.has_login else ANONYMOUS
