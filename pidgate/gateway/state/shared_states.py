"""Sketches of producer states in lifecycle events: of other gateways, and of earlier runs of this one. PURE."""

from __future__ import annotations

import base64
import binascii
import zlib

from pidgate.events.definitions import BrokerStates, LifecycleEvent
from pidgate.quota.producer_states import REGISTERS, ProducerStates


def told_states(states: ProducerStates, now_ms: int) -> list[BrokerStates]:
    """Return what other gateways have not been told yet."""
    return [
        BrokerStates(node_id=node_id, registers=base64.b64encode(zlib.compress(registers)).decode("ascii"))
        for node_id, registers in states.find_unpublished(now_ms)
    ]


def take_states(event: LifecycleEvent, states: ProducerStates, at_ms: int, now_ms: int) -> None:
    """Merge the states of an event of `at_ms`, except unreadable ones."""
    for told in event.producer_states:
        try:
            inflating = zlib.decompressobj()
            registers = inflating.decompress(base64.b64decode(told.registers), REGISTERS + 1)
        except (binascii.Error, ValueError, zlib.error):
            continue
        states.merge(told.node_id, registers, at_ms, now_ms)
