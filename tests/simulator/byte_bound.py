"""The most bytes that a user may have brought, or read, in any time: from rate, samples, connections and failures.

Every connection of a user waits until the debt is paid, and one request passes then. So in a time t, wherever it
begins, at most

    rate x (t + samples - 1) + the one frame that goes beyond

for each gateway: of a fleet each has the whole rate. Of answers to Fetch it is one for each connection that is open at
the same time: their sizes are known when they come. A gateway that starts again has forgotten what it had recorded, and
what is on its way to a broker that does not read, or is not there yet, arrives in a lump.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulator import observed, wiretap
from tests.simulator.admissions import MALLORY
from tests.simulator.clients.batches import ModelViolation
from tests.simulator.drawing import USERS
from tests.simulator.loop import BEGAN_S
from tests.simulator.observed import ANONYMOUS

if TYPE_CHECKING:
    from tests.simulator.world import World

PRODUCE: Final = b"\0\0"
WINDOW_S: Final = 10.0
"""Samples of a second but the current one: their bytes may pass in one go."""
EMPTY_BYTES: Final = 17
"""An answer to Fetch v12 without topics. The gateway gives it, and does not charge it, as a broker."""
RELOADED_S: Final = 0.2
"""From a change of the file until it is in force, where the disk is not slow."""
ON_ITS_WAY_S: Final = 1.0
"""From a decision to the write to a broker, where nothing is wrong."""


class Piece(NamedTuple):
    """A frame that counts, without its size prefix, as brokers count."""

    at_s: float
    size_bytes: int


Pieces = dict[tuple[str, str], list[Piece]]
"""By user and gateway, in the order of time."""


def check(world: World) -> None:
    """Raise ModelViolation if a user brought, or was given, more bytes than the quota allows."""
    quotas = world.setup.quotas
    if not world.fleet.gateways:
        return
    changes = [step for step in world.schedule.steps if step[1] == "byte rate"]
    is_lifted = bool(changes)
    if quotas.producer_byte_rate is not None and not (
        changes and changes[-1][2] != quotas.producer_byte_rate
    ):
        since_s = world.steps_began_s + changes[-1][0] / 1_000 + RELOADED_S if changes else 0.0
        _check_all(world, "brought", _produced(world, since_s), quotas.producer_byte_rate, at_once=1)
    if quotas.consumer_byte_rate is not None and not is_lifted:
        at_once = len(world.readers) * world.setup.partitions
        _check_all(world, "was given", _fetched(world), quotas.consumer_byte_rate, at_once=at_once)


def _produced(world: World, since_s: float) -> Pieces:
    by_gateway: Pieces = {}
    for frame, is_hostile in wiretap.all_written_to_brokers(world):
        if frame.raw[:2] == PRODUCE and frame.at_s >= since_s:
            gateway = frame.process
            piece = Piece(frame.at_s, len(frame.raw))
            by_gateway.setdefault((_user(world, frame, is_hostile), gateway), []).append(piece)
    return by_gateway


def _fetched(world: World) -> Pieces:
    by_gateway: Pieces = {}
    user = USERS[0] if world.setup.has_login else ANONYMOUS
    for frame in wiretap.fetched(world):
        if len(frame.raw) <= EMPTY_BYTES:
            continue
        piece = Piece(frame.at_s, len(frame.raw))
        by_gateway.setdefault((user, frame.process), []).append(piece)
    return by_gateway


def _check_all(world: World, what: str, by_gateway: Pieces, rate: int, *, at_once: int) -> None:
    for (user, gateway), pieces in by_gateway.items():
        if not observed.spans(world, user):
            _check(world, f"user {user} {what}", gateway, pieces, rate, at_once)


def _user(world: World, frame: wiretap.Frame, is_hostile: bool) -> str:
    if is_hostile:
        return MALLORY
    batches = wiretap.batches_in(frame)
    if not world.setup.has_login or not batches:
        return ANONYMOUS
    return world.applications[batches[0][0].producer].setup.user


def _check(world: World, who: str, gateway: str, pieces: list[Piece], rate: int, at_once: int) -> None:
    history = world.fleet.history
    forgotten = [at_s for at_s, what, whom, _ in history if what in ("start", "kill") and whom == gateway]
    late_s = ON_ITS_WAY_S + max(
        (step[-1] / 1_000 for step in world.schedule.steps if _delays(step)), default=0.0
    )
    largest = max(piece.size_bytes for piece in pieces)
    for first, since in enumerate(pieces):
        brought = 0
        for until in pieces[first:]:
            brought += until.size_bytes
            for_s = until.at_s - since.at_s
            resets = sum(since.at_s <= at_s <= until.at_s for at_s in forgotten)
            most = rate * (for_s + late_s) + (1 + resets) * (rate * WINDOW_S + at_once * largest)
            if brought > most:
                raise ModelViolation(
                    f"{who} {brought} bytes through {gateway} from {since.at_s - BEGAN_S:.3f} to "
                    f"{until.at_s - BEGAN_S:.3f}, at most {most:.0f} are allowed"
                )


def _delays(step: tuple[object, ...]) -> bool:
    return step[1] in ("hold", "part", "refuse", "stop broker", "freeze", "late answers")
