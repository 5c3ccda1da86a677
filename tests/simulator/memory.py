"""The memory that gateways have counted: within its limit after each step, and all given back in the end.

docs/architecture.md, Memory: what must outlive a read is counted against a budget of two halves; of a half one frame
at a time may go beyond, so that it is finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pidgate.gateway.process.traffic import Traffic
from pidgate.gateway.process.worker import Worker
from pidgate.gateway.proxy.buffers import BufferBudget
from tests.simulator.clients.batches import ModelViolation

if TYPE_CHECKING:
    from tests.simulator.world import World


def within_limits(world: World) -> None:
    """Raise ModelViolation where a gateway holds more than its limit, or has miscounted what its users hold."""
    for process, budget in _budgets(world):
        for half in (budget.small, budget.large, budget.announced):
            held_bytes = half._held_bytes.values()
            if sum(held_bytes) != half.used_bytes or any(one <= 0 for one in held_bytes):
                raise ModelViolation(
                    f"{process} has miscounted its memory: {half.used_bytes}, {half._held_bytes}"
                )
            if half.used_bytes > half.limit_bytes:
                raise ModelViolation(f"{process} holds {half.used_bytes} bytes, {half.limit_bytes} at most")


def nothing_held(world: World) -> None:
    """Raise ModelViolation where a gateway without clients still holds memory for some."""
    for process, budget in _budgets(world):
        held_bytes = budget.used_bytes + budget.announced.used_bytes
        if held_bytes:
            raise ModelViolation(f"{process} holds {held_bytes} bytes for clients that are gone")


def _budgets(world: World) -> Iterator[tuple[str, BufferBudget]]:
    for gateway in world.fleet.gateways:
        for child in gateway.children:
            if child.serving is None or child.process is None or not child.process.is_running:
                continue
            traffic = child.serving._traffic if isinstance(child.serving, Worker) else child.serving.traffic
            if isinstance(traffic, Traffic) and child.is_listening:
                yield child.name, traffic._budget
