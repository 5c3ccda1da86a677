"""Every schedule of a small world: two partitions, two connections, three batches, about six steps.

An id that finds no token; its client sends, reads, loses a connection, leaders move, mutes end, tokens come, the
mode changes, in every order. What is checked at each step stands in model/world.py; of so many states one is run
to its end. HYPOTHESIS_PROFILE=thorough goes two steps deeper.
"""

from __future__ import annotations

import pytest

from pidgate.quota.admission import Admission
from pidgate.quota.settings import Quotas
from pidgate.quota.sticky import StickyRefusals
from tests.support.bounds import THOROUGH
from tests.unit.gateway.model.exchange import Exchange
from tests.unit.gateway.model.search import search
from tests.unit.gateway.model.steps import WINDOW_MS, Setup, Step
from tests.unit.gateway.model.world import AdmissionFactory, World, real_admission, seed


def _begun(
    kind: str,
    route: tuple[int, ...],
    *,
    exchange: Exchange | None = None,
    admission: AdmissionFactory = real_admission,
) -> World:
    world = Setup(((kind, ((1, 1), (1,))),), route).world(admission, exchange=exchange)
    world.rogue(0)
    return world


def _cuts(world: World) -> list[Step]:
    return [("cut", *key) for key in world.channels] + [("advance", WINDOW_MS)]


def _cuts_and_modes(world: World) -> list[Step]:
    other = "observe" if world.quotas.mode == "enforce" else "enforce"
    return [*_cuts(world), ("mode", other)]


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_every_schedule_of_one_process(kind: str) -> None:
    found = search(
        _begun(kind, (0, 0)), 8 if THOROUGH else 6, extra=_cuts, drain_every=100 if THOROUGH else 50
    )
    assert found.violation is None, found.violation
    assert found.states > (10_000 if THOROUGH else 7_000)
    assert found.drained > 100
    assert found.longest_drain_ms > 1_000


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_every_schedule_with_changes_of_mode(kind: str) -> None:
    found = search(_begun(kind, (0, 0)), 7 if THOROUGH else 5, extra=_cuts_and_modes, drain_every=50)
    assert found.violation is None, found.violation
    assert found.states > 2_000
    assert found.drained > 40


@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_every_schedule_of_two_processes(kind: str) -> None:
    """The second process has a token, the first has none."""
    found = search(
        _begun(kind, (0, 1)), 7 if THOROUGH else 5, extra=_cuts, drain_every=50 if THOROUGH else 15
    )
    assert found.violation is None, found.violation
    assert found.states > (5_000 if THOROUGH else 1_500)
    assert found.drained > 100


@pytest.mark.parametrize("delay_ms", [0, 200])
@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_every_schedule_of_two_processes_that_tell_each_other_with_changes_of_mode(
    kind: str, delay_ms: int
) -> None:
    """One refuses, both are switched to observe, the leader moves: the other one knows that something was refused."""
    begun = _begun(kind, (0, 1), exchange=Exchange(delay_ms))
    found = search(begun, 6 if THOROUGH else 5, extra=_cuts_and_modes, drain_every=50)
    assert found.violation is None, found.violation
    assert found.states > 2_000
    assert found.drained > 40


class HearsNoRefusals(StickyRefusals):
    """Admissions of others count, their refusals do not."""

    def refused_elsewhere(self, user: str | None, producer_id: int, now_ms: int) -> None:
        pass


def _deaf(quotas: Quotas, now_ms: int) -> Admission:
    return Admission(quotas, seed, now_ms, sticky=HearsNoRefusals(quotas.producer_ids.sticky_entries))


def test_without_shared_refusals_a_change_of_mode_loses_a_record() -> None:
    """What the test above is there for: without the topic, and with one that is heard by half."""
    for world in (_begun("java", (0, 1)), _begun("java", (0, 1), exchange=Exchange(0), admission=_deaf)):
        found = search(world, 5, extra=_cuts_and_modes)
        assert found.violation is not None
        assert "in the log" in found.violation
        assert "quotas: observe" in found.violation
