"""Producer ids in blocks (KIP-730): the controller gives blocks of 1000, each node hands out of its own. Pure.

Kafka: controller/ProducerIdControlManager, server/common/ProducerIdsBlock, transaction/RPCProducerIdManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BLOCK: Final = 1000
"""ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""
_PREFETCH_AT: Final = BLOCK * 9 // 10
"""PID_PREFETCH_THRESHOLD: the next block is asked for when this one of the block is handed out."""


class Controller:
    """The next block of the cluster."""

    def __init__(self, first_id: int = 0) -> None:
        self.next_id = first_id

    def block(self) -> range:
        """Return a block that nobody else gets."""
        block = range(self.next_id, self.next_id + BLOCK)
        self.next_id += BLOCK
        return block


class ProducerIds:
    """The ids of one node."""

    def __init__(self, controller: Controller, later: Callable[[Callable[[], None]], None]) -> None:
        """`later` runs an action when the controller has answered."""
        self._controller = controller
        self._later = later
        self._block = range(0)
        self._given = 0
        self._next: range | None = None
        self._asked = False

    def generate(self) -> int | None:
        """Return a new id; None: no block is here yet, the client gets COORDINATOR_LOAD_IN_PROGRESS.

        So it is for the first id of a node since its start: nothing is asked for before it is needed.
        """
        if self._given == len(self._block):
            if self._next is None:
                self._ask()
                return None
            self._block, self._next, self._given = self._next, None, 0
        producer_id = self._block[self._given]
        if self._given == _PREFETCH_AT:
            self._ask()
        self._given += 1
        return producer_id

    def _ask(self) -> None:
        if not self._asked and self._next is None:
            self._asked = True
            self._later(self._granted)

    def _granted(self) -> None:
        self._next = self._controller.block()
        self._asked = False
