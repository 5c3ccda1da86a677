"""What is checked of a run. The yardstick: with the brokers alone, and no gateway, it would have been the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from pidgate.quota.decisions import Reason
from tests.simulator import (
    accounts,
    byte_bound,
    counting,
    fuse,
    gaps,
    logs,
    memory,
    pairs,
    quota_bound,
    transactions,
    waiting,
)
from tests.simulator.brokers.producer_state import KEPT_BATCHES
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.ledger import Name, Seen, seen_by_brokers

_ANOTHER_ANSWER: Final = "which is not the next request in flight"

_BY_THE_QUOTA: Final = frozenset({Reason.FIRST_SEEN, Reason.QUEUE, Reason.BLOCKED})

if TYPE_CHECKING:
    from tests.simulator.applications import Application
    from tests.simulator.world import World


def at_step(world: World) -> None:
    """Check what can be seen at once: memory, and that what was acknowledged was in the log at that moment.

    Raises ModelViolation. That it stays there, once and in order, is as well seen at the end: what an acknowledgement
    has waited for is never cut from a log, and nothing is put before it.
    """
    memory.within_limits(world)
    if world.unrelieved:
        raise ModelViolation(world.unrelieved[0])
    if world.unwritten:
        overtaken = gaps.overtaken(world, seen_by_brokers(world))
        for batch in world.unwritten:
            if (batch.producer, batch.partition) not in overtaken:
                raise ModelViolation(f"{logs.words(batch)} was acknowledged before it was in the log")
        world.unwritten.clear()


def at_end(world: World) -> None:
    """Check all that can be seen when everything has ended. Raises ModelViolation."""
    ledger = seen_by_brokers(world)
    overtaken = gaps.overtaken(world, ledger)
    logs.check(world, overtaken)
    logs.check_readers(world)
    transactions.check(world, overtaken)
    quota_bound.check(world)
    byte_bound.check(world)
    fuse.check(world)
    pairs.check(world)
    waiting.check(world, overtaken)
    accounts.check(world)
    counting.check(world)
    no_broker_address(world)
    restored_first(world)
    answers_match(world)
    in_order(world, ledger)
    nobody_is_stuck(world, overtaken)


def no_broker_address(world: World) -> None:
    """No byte that reached a client names a broker."""
    if not world.fleet.gateways:
        return
    streams: dict[str, list[bytes]] = {}
    for _, link, reached, what in world.network.trace or ():
        if isinstance(what, bytes) and (reached in world.applications or reached in world.readers):
            streams.setdefault(link, []).append(what)
    for link, chunks in streams.items():
        if b"broker-" in b"".join(chunks):
            raise ModelViolation(f"the address of a broker reached a client over {link}")


def restored_first(world: World) -> None:
    """The quota refuses nothing before the gateway's state is whole. Of each user the first refusal is logged."""
    for since_s, what, whom, _ in world.fleet.history:
        gateway = whom
        if what != "start":
            continue
        for line in world.machine.lines:
            if line.at_s < since_s or line.process != gateway:
                continue
            if line.event == Event.STATE_RESTORED:
                break
            if line.event == Event.PRODUCER_ID_REFUSED and line.fields["reason"] in _BY_THE_QUOTA:
                raise ModelViolation(f"{line.process} refused before its state was whole")


def answers_match(world: World) -> None:
    """No gateway was given an answer that it did not wait for: brokers here answer what was asked, in order."""
    for line in world.machine.logged(Event.CONNECTION_CLOSED):
        if _ANOTHER_ANSWER in str(line.fields.get("reason")):
            raise ModelViolation(f"{line.process}: {line.fields['reason']}")


def in_order(world: World, ledger: list[Seen]) -> None:
    """No refusal makes a broker answer OUT_OF_ORDER_SEQUENCE_NUMBER, where nothing else can.

    45 loses nothing, but kafka-python reports the batch as failed, and others answer with a new epoch. Brokers also
    answer it when a client with more batches in flight than they remember sends a written one again.
    """
    is_calm = all(step[1] in waiting.CALM for step in world.schedule.steps)
    if not is_calm or world.setup.shape.is_fleet or any(one.hurry_s for one in world.setup.clients):
        return
    written: dict[tuple[int, int], dict[Name, None]] = {}
    for seen in ledger:
        of_lane = written.setdefault((seen.numbers.producer_id, seen.partition), {})
        if seen.error_code == 0:
            of_lane.setdefault(seen.name)
        elif seen.error_code == gaps.OUT_OF_ORDER and seen.name not in list(of_lane)[:-KEPT_BATCHES]:
            raise ModelViolation(f"{seen.name} reached broker-{seen.node_id} out of order")


def nobody_is_stuck(world: World, overtaken: gaps.Overtaken) -> None:
    """No producer died of what a gateway did."""
    for application in world.applications.values():
        why = application.client.told.fatal
        if why and not any(producer == application.name for producer, _ in overtaken):
            raise ModelViolation(f"{application.name} died: {why}")


def waits_without_fault(world: World, waiters: list[Application], bound_s: float) -> None:
    """Raise ModelViolation for whoever waits longer than the bound; not for a batch that another one overtook.

    Java's producer sends such a batch again and again, until its delivery time-out: KAFKA-15591.
    """
    overtaken = {producer for producer, _ in gaps.overtaken(world, seen_by_brokers(world))}
    names = [application.name for application in waiters if application.name not in overtaken]
    if names:
        raise ModelViolation(f"{', '.join(names)} still wait after {bound_s:.0f} s")
