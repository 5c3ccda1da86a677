"""What gateways keep: memory as they count it, and their tables, within their limits after each step; all given back.

docs/explanation/architecture.md, Memory: what must outlive a read is counted against a budget of two halves. Frames
that arrive keep to it: of each half one at a time may go beyond, so that it is finished. The rest is bounded for each
connection: what one read brought and cannot be dealt with yet, and what its peers do not take; where the budget is
spent, nothing more is read. Tables are bounded for each user (docs/reference/rules.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.proxy.buffers import READ_BUFFER_BYTES, BudgetShare, Half, Purpose
from pidgate.gateway.proxy.client_connection import ClientConnection
from pidgate.gateway.proxy.reading import WRITE_HIGH_BYTES
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.sticky_entries import WATCHED_IDS_PER_USER
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.gateway import SimulatedGateway

if TYPE_CHECKING:
    from tests.simulator.world import World

FRAMES: Final = (Purpose.SMALL_FRAME, Purpose.LARGE_FRAME, Purpose.PASSED_ON)
"""What the budget alone bounds."""
OF_A_CONNECTION: Final = READ_BUFFER_BYTES + WRITE_HIGH_BYTES
"""Of any other purpose: what the last read brought, behind as much as is written before reading stops."""


def within_limits(world: World) -> None:
    """Raise ModelViolation where a gateway holds more than its limit, or has miscounted what its users hold."""
    for process, traffic in _serving(world):
        _memory(process, traffic)
        _tables(process, traffic)
    for gateway in _running(world):
        if gateway.serving is not None:
            _lines(gateway.host, gateway.serving._manager.state)


def nothing_held(world: World) -> None:
    """Raise ModelViolation where a gateway without clients still holds memory for some."""
    for process, traffic in _serving(world):
        budget = traffic._budget
        held_bytes = budget.used_bytes + budget.announced.used_bytes
        if held_bytes:
            raise ModelViolation(f"{process} holds {held_bytes} bytes for clients that are gone")
        sticky = traffic._admission.sticky
        entries = sum(sticky._entries_of_user.values())
        if entries:
            raise ModelViolation(f"{process} holds {entries} entries for connections that are gone")


def _memory(process: str, traffic: Traffic) -> None:
    budget, shares = traffic._budget, _shares(traffic)
    purposes = {
        budget.small: (Purpose.SMALL_FRAME,),
        budget.announced: (Purpose.PASSED_ON,),
        budget.large: tuple(set(Purpose) - {Purpose.SMALL_FRAME, Purpose.PASSED_ON}),
    }
    for half, held in purposes.items():
        by_share = sum(share.held(purpose) for share in shares for purpose in held)
        held_bytes = half._held_bytes.values()
        if (
            sum(held_bytes) != half.used_bytes
            or by_share != half.used_bytes
            or any(one <= 0 for one in held_bytes)
        ):
            raise ModelViolation(
                f"{process} has miscounted its memory: {half.used_bytes}, {half._held_bytes}"
            )
        _frames(process, half, shares, held)
    for share in shares:
        for purpose in set(Purpose) - set(FRAMES):
            if share.held(purpose) > OF_A_CONNECTION:
                raise ModelViolation(
                    f"{process} holds {share.held(purpose)} bytes {purpose.name} of a connection"
                )


def _frames(process: str, half: Half, shares: list[BudgetShare], held: tuple[Purpose, ...]) -> None:
    """Of all frames that have begun to arrive one may be beyond the limit, whole."""
    sizes = [share.held(purpose) for share in shares for purpose in held if purpose in FRAMES]
    if sum(sizes) - max(sizes, default=0) > half.limit_bytes:
        raise ModelViolation(f"{process} holds {sum(sizes)} bytes of frames, {half.limit_bytes} at most")


def _tables(process: str, traffic: Traffic) -> None:
    sticky = traffic._admission.sticky
    for user, entries in sticky._entries_of_user.items():
        if entries > sticky.entries_per_user:
            raise ModelViolation(
                f"{process} has {entries} entries of {user}, {sticky.entries_per_user} at most"
            )
    for user, records in sticky.watched.items():
        counted = sum(
            1 + len(entry.later) for record in records.values() for entry in record.entries.values()
        )
        if counted != sticky.count_entries(user):
            raise ModelViolation(
                f"{process} has {counted} entries of {user}, and counts {sticky.count_entries(user)}"
            )
        if len(records) > WATCHED_IDS_PER_USER:
            raise ModelViolation(f"{process} watches {len(records)} ids of {user}")
    if sticky._room.ids != sum(map(len, sticky.watched.values())):
        raise ModelViolation(f"{process} has miscounted the ids that it watches: {sticky._room.ids}")


def _lines(process: str, state: ProducerIdQuota) -> None:
    most = state.table.quotas.producer_ids.queue
    for user, live in state.table._users.items():
        if len(live.queue.waiting) > most:
            raise ModelViolation(
                f"{process} has {len(live.queue.waiting)} ids of {user} in line, {most} at most"
            )


def _shares(traffic: Traffic) -> list[BudgetShare]:
    return [one.share for one in traffic.shared.connections if isinstance(one, ClientConnection)]


def _serving(world: World) -> Iterator[tuple[str, Traffic]]:
    for gateway in _running(world):
        if gateway.serving is not None and gateway.is_listening:
            yield gateway.host, gateway.serving.traffic


def _running(world: World) -> Iterator[SimulatedGateway]:
    for gateway in world.fleet.gateways:
        if gateway.serving is not None and gateway.process is not None and gateway.process.is_running:
            yield gateway
