"""The story of a run, for a person: what was set up, what happened, who sent what, what the gateways did with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tests.simulator import wiretap
from tests.simulator.ledger import Seen, seen_by_brokers
from tests.simulator.loop import BEGAN_S
from tests.simulator.schedule import Schedule, Setup
from tests.simulator.wiretap import Frame

if TYPE_CHECKING:
    from tests.simulator.world import World

Line = tuple[float, str]

_NOT_TOLD = ("exc_info", "without_core_ms")
"""Of log lines: what the real machine has in it."""


def told(world: World) -> str:
    """Return the story of a world that was played with its notes kept."""
    lines = [*world.lines, *_logged(world), *_passed(world), *_refused(world), *_taken(world)]
    # Sorted by time alone: what happens at one moment stays in the order of these sources.
    lines.sort(key=lambda line: line[0])
    return "\n".join(f"{at_s - BEGAN_S:9.4f}  {text}" for at_s, text in lines)


def setting(schedule: Schedule) -> str:
    """Return what a schedule sets up and lets happen."""
    steps = [f"  {step[0]:>6} ms  {step_words(step)}" for step in schedule.steps]
    return "\n".join([f"seed {schedule.seed}: {setup_words(schedule.setup)}", *steps])


def setup_words(setup: Setup) -> str:
    """Return what differs from the simplest setup."""
    parts = [str(setup.shape)]
    parts += [f"{setup.brokers} brokers", f"{setup.partitions} partitions"]
    parts += [one.name for one in fields(setup) if getattr(setup, one.name) is True]
    if setup.lend_after is not None:
        parts.append(f"lent after {setup.lend_after}")
    if setup.fresh_partitions:
        parts.append(f"{setup.fresh_partitions} of them never written to")
    parts.append(f"weather {setup.weather}")
    parts.append(", ".join(f"{one.name}={getattr(setup.quotas, one.name)}" for one in fields(setup.quotas)))
    for client in setup.clients:
        what = "transactional" if client.is_transactional else "idempotent"
        hurry = "" if client.hurry_s is None else f", gives up after {client.hurry_s} s"
        parts.append(f"{client.name} of {client.user} ({what}, gateway {client.gateway + 1}{hurry})")
    return "; ".join(parts)


def step_words(step: tuple[Any, ...]) -> str:
    """Return a step as a person reads it."""
    _, verb, *args = step
    return " ".join([verb, *map(str, args)])


def _logged(world: World) -> Iterator[Line]:
    folder = str(world.machine.directory)  # another one for each run
    for line in world.machine.lines:
        about = ", ".join(
            f"{key}={str(value).replace(folder, '')}"
            for key, value in line.fields.items()
            if key not in _NOT_TOLD
        )
        yield line.at_s, f"{line.process} logs {line.event}: {about}"


def _batches(frame: Frame) -> str:
    return ", ".join(
        f"{name.producer} {name.partition}:{numbers.epoch}/{numbers.base_sequence}"
        for name, numbers in wiretap.batches_in(frame)
    )


def _passed(world: World) -> Iterator[Line]:
    for frame in wiretap.arrived_at_gateways(world):
        if batches := _batches(frame):
            yield frame.at_s, f"  {frame.process} is given {batches}"
    for frame in wiretap.written_to_brokers(world):
        if batches := _batches(frame):
            node = frame.link.split(" -> ")[1]
            yield frame.at_s, f"  {frame.process} hands on {batches} to {node}"


def _refused(world: World) -> Iterator[Line]:
    """Answers with an error: a gateway's own are NOT_ENOUGH_REPLICAS with its words."""
    for one in wiretap.produce_answers(world):
        if any(one.codes):
            text = f"  {one.answer.process} answers {_batches(one.asked)}: {one.codes}, throttle {one.throttle_ms} ms"
            yield one.answer.at_s, text


def _taken(world: World) -> Iterator[Line]:
    for seen in seen_by_brokers(world):
        yield seen.at_s, f"    broker-{seen.node_id} {_outcome(seen)}"


def _outcome(seen: Seen) -> str:
    what = f"{seen.name.producer} {seen.partition}:{seen.numbers.epoch}/{seen.numbers.base_sequence}"
    return f"appends {what}" if seen.error_code == 0 else f"answers {what} with {seen.error_code}"
