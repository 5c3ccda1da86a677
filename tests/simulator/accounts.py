"""What a wait for an account must leave alone: fetch sessions, groups, connections, answers that are due; and its end.

Most of it is stated where nothing else is wrong: the steps leave leaders, brokers, gateways and connections alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pidgate.gateway.logs import Event
from pidgate.gateway.proxy.client_connection import ORDINARY_CAUSES
from pidgate.quota.byte_quota import LONGEST_TOLD_MS
from tests.simulator import wiretap
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.link import Mark
from tests.simulator.waiting import CALM

if TYPE_CHECKING:
    from tests.simulator.world import World

BREAKS: Final = "garbage"
"""A step that makes the gateway close a connection; drains do so, too."""
LIFTED: Final = 1_000_000
"""Bytes per second: nobody here needs more."""
RELIEF_S: Final = 2.0
"""From a change of quotas until nobody waits that it concerns."""


def check(world: World) -> None:
    """Raise ModelViolation."""
    _sessions(world)
    _throttles(world)
    verbs = {step[1] for step in world.schedule.steps}
    if not world.fleet.gateways or not verbs <= CALM | {BREAKS, "drain"}:
        return
    _answers_due(world)
    if verbs <= CALM:
        _groups(world)
        _connections(world)


def _sessions(world: World) -> None:
    """No broker is asked with another epoch than that of its session: clients begin anew on each connection."""
    if world.cluster.sessions_lost:
        raise ModelViolation(
            f"brokers were asked for {world.cluster.sessions_lost} fetch sessions of another epoch"
        )


def _throttles(world: World) -> None:
    """Nobody is told a longer throttle than Kafka's clients bear."""
    for reader in world.readers.values():
        if reader.told_ms > LONGEST_TOLD_MS:
            raise ModelViolation(f"{reader.name} was told a throttle of {reader.told_ms} ms")


def _groups(world: World) -> None:
    """A group keeps its members: heartbeats and commits do not wait for bytes."""
    if world.setup.is_long_known:
        return  # for its members a long time has passed in one moment
    for name, group in world.cluster.groups.by_name.items():
        if group.generation > 1 or group.expelled:
            raise ModelViolation(f"group {name} rebalanced: generation {group.generation}")


def _connections(world: World) -> None:
    """No client is closed for what it has in flight. Each comes back when its throttle ends."""
    setup = world.setup
    has_room = setup.buffered_total_bytes is None and setup.quotas.sticky_entries is None
    if not has_room or any(one.hurry_s for one in setup.clients):
        return
    ordinary = {
        *ORDINARY_CAUSES,
        *(("login",) if setup.is_long_known else ()),
    }  # hours pass in the midst of one
    for line in world.machine.logged(Event.CONNECTION_CLOSED):
        if line.fields["cause"] not in ordinary and line.fields.get("user") != "mallory":
            raise ModelViolation(f"{line.process} closed a client: {line.fields['cause']}")


def _answers_due(world: World) -> None:
    """Whatever a gateway has handed on is answered to its client, also where the gateway ends the connection."""
    handed_on = {frame.raw for frame in wiretap.written_to_brokers(world)}
    answered = {one.asked.raw for one in wiretap.produce_answers(world)}
    gone = _ended_by_clients(world)
    for asked in wiretap.arrived_at_gateways(world):
        is_due = asked.raw in handed_on and asked.raw not in answered and asked.link not in gone
        if is_due and (batches := wiretap.batches_in(asked)):
            raise ModelViolation(f"{asked.client} was closed with answers due: {batches[0][0]}")
    for application in world.everybody:
        if any(not connection.is_gone for connection in application.client.broken):
            raise ModelViolation(f"{application.name} was not closed, though it broke the protocol")


def _ended_by_clients(world: World) -> set[str]:
    """Return the links that a client ended: what came first was its FIN, or its RST."""
    first: dict[str, bool] = {}
    for _, link, reached, what in world.network.trace or ():
        if isinstance(what, Mark):
            first.setdefault(link, reached in world.fleet.names)
    return {link for link, is_by_client in first.items() if is_by_client}


# ---- relief ----------------------------------------------------------------------------------------------


def look_for_relief(world: World) -> None:
    """Have it checked in time that nobody waits for bytes any more: all byte rates have been lifted."""
    changes = world.changes

    def look() -> None:
        if world.changes == changes:
            world.unrelieved += [
                f"{who} waits {RELIEF_S:g} s after byte rates were lifted" for who in _waiting(world)
            ]

    world.loop.call_later(RELIEF_S, look)


def _waiting(world: World) -> Iterator[str]:
    """Yield clients that wait for bytes: of a throttle of ids the longest is known."""
    for gateway in world.fleet.gateways:
        process = gateway.process
        if process is None or not process.is_running or not gateway.is_listening:
            continue
        by_ids_ms = round(world.loop.time() * 1_000) + world.setup.quotas.max_throttle_ms
        for connection in gateway.connections:
            session = connection.session
            if session.awaits_account or session.context.muted_until_ms > by_ids_ms:
                yield f"{gateway.host}: a connection of {connection.client.client_id}"
