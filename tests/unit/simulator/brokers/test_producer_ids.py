"""Producer ids come in blocks of 1000, one block for one node."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.brokers.producer_ids import Controller, ProducerIds


def at_once(granted: Callable[[], None]) -> None:
    granted()


def test_the_first_question_of_a_node_finds_no_block() -> None:
    ids = ProducerIds(Controller(), at_once)
    assert [ids.generate() for _ in range(3)] == [None, 0, 1]


def test_nodes_have_blocks_of_their_own_and_go_on_to_the_next_without_a_gap() -> None:
    controller = Controller()
    one, other = ProducerIds(controller, at_once), ProducerIds(controller, at_once)
    one.generate(), other.generate()
    given = [one.generate() for _ in range(1001)]
    assert given == [*range(1000), 2000]
    assert other.generate() == 1000


def test_a_block_that_is_used_up_while_the_controller_is_silent_gives_nothing() -> None:
    asked: list[Callable[[], None]] = []
    ids = ProducerIds(Controller(), asked.append)
    assert ids.generate() is None
    asked.pop()()
    assert [ids.generate() for _ in range(1000)] == [*range(1000)]
    assert len(asked) == 1  # at the 900th
    assert ids.generate() is None
    asked.pop()()
    assert ids.generate() == 1000
