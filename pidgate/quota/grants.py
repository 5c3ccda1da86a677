"""Grants: decisions that a lane repeats without asking again, and what ends them. PURE.

A grant says that Produce requests of one producer id, to certain partitions, over one connection would be forwarded
because the id is known (Admission.knows). It holds until its time or until one of two cells changes: that of (user,
producer id), and that of everything. Code that changes what `knows` reads changes the cell first: once `bump` has
returned, no later request of the grant passes.

Without lent connections the table is empty, and a change costs one lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pidgate.quota.entities import User

MOST_GRANTED_PARTITIONS: Final = 1_024
"""Of a topic. A batch to a higher partition is judged each time."""


class Cell(Protocol):
    """A number. Grants that were given under an earlier one are void."""

    def bump(self) -> None:
        """Change the number. Afterwards no request passes under an earlier one."""


class PlainCell:
    """A cell of this thread alone."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def bump(self) -> None:
        self.number += 1


@dataclass(frozen=True, slots=True)
class Grant:
    """The requests that may pass.

    until_ms    monotonic
    partitions  by topic as in ProducerBatch: bits of the partitions that may be written; None: all
    cell        of the user's id
    """

    user: User
    producer_id: int
    until_ms: int
    partitions: dict[bytes, int | None]
    cell: Cell


class Grants:
    """The cells of one process. An id has one while a grant of it is in use."""

    __slots__ = ("_cells", "_used", "everything", "new_cell")

    def __init__(self, new_cell: Callable[[], Cell] = PlainCell) -> None:
        self.new_cell = new_cell
        self.everything = new_cell()
        self._cells: dict[tuple[User, int], Cell] = {}
        self._used: dict[tuple[User, int], int] = {}

    def __len__(self) -> int:
        """Return the number of ids with a grant in use."""
        return len(self._cells)

    def use_cells(self, new_cell: Callable[[], Cell]) -> None:
        """Use other cells from now on. Nothing may be granted yet."""
        assert not self._cells
        self.new_cell = new_cell
        self.everything = new_cell()

    def cell_of(self, user: User, producer_id: int) -> Cell:
        """Return the id's cell for one more grant. `give_back` the grant once."""
        key = user, producer_id
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self.new_cell()
            self._used[key] = 0
        self._used[key] += 1
        return cell

    def give_back(self, grant: Grant) -> None:
        """Forget the cell of a grant that is not in use any more, unless another one needs it."""
        key = grant.user, grant.producer_id
        if self._cells.get(key) is grant.cell:
            self._used[key] -= 1
            if not self._used[key]:
                del self._cells[key], self._used[key]

    def changed(self, user: User, producer_id: int) -> None:
        """End the grants of the id, because what is known of it changes."""
        cell = self._cells.pop((user, producer_id), None)
        if cell is not None:
            del self._used[user, producer_id]
            cell.bump()

    def all_changed(self) -> None:
        """End all grants."""
        self.everything.bump()
