"""Share of the producer ids allocated by brokers that passed a gateway. Pure.

The claim: a broker allocates the ids of its block (1,000, KIP-730) in order, and a block belongs to one
broker. Take the lowest id of a block whose allocation passed a gateway within the window, and the highest id
seen by any gateway. All ids between them were allocated within the window, too. If no gateway saw such an id,
neither in an answer to InitProducerId nor in a Produce, its producer bypasses the gateways (or uses one that
writes no events).

Not claimed: ids below the lowest and above the highest one of a block; blocks of which no gateway saw two
ids; a transactional producer's old id, which is returned again at every start. Lost events, and answers
summed up in a storm, hide ids: as many missing ones may have passed after all (`hidden`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pidgate.quota.decisions import IDS_OF_BLOCK
from pidgate.who.id_marks import IdMarks, Mark


@dataclass(frozen=True, slots=True)
class Gap:
    """Ids of one block that passed no gateway."""

    first_id: int
    last_id: int
    missing: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """`allocated` ids in `blocks` blocks since `since_ms` (wall clock); `missing` of them passed no gateway.

    `hidden` of the missing ones may have passed after all. `gaps`: the blocks with the most missing ids.
    """

    since_ms: int
    blocks: int
    allocated: int
    missing: int
    hidden: int
    gaps: tuple[Gap, ...] = ()

    @property
    def around(self) -> int:
        """Return the number of ids that certainly bypassed the gateways."""
        return max(0, self.missing - self.hidden)

    @property
    def share(self) -> float:
        """Return the share of allocated ids that passed, if all hidden ones passed."""
        return 1 - self.around / self.allocated


MOST_GAPS = 10


def coverage(marks: IdMarks, since_ms: int | None, summed_up: int, lost: int) -> Coverage | None:
    """Return the coverage. None: no block can be judged.

    `summed_up`: allocations without ids in events. `lost`: events.
    """
    judged, allocated, untold = 0, 0, 0
    gaps = []
    for number, block in marks.blocks():
        first = next((place for place, mark in enumerate(block) if mark & Mark.ALLOCATED), None)
        inside = b"" if first is None else block[first:].rstrip(b"\0")
        if first is None or len(inside) < 2:
            continue
        judged += 1
        allocated += len(inside)
        untold += sum(mark > 0 and not mark & Mark.ALLOCATED for mark in inside)
        if missing := inside.count(0):
            lowest = number * IDS_OF_BLOCK + first
            gaps.append(Gap(lowest, lowest + len(inside) - 1, missing))
    if not judged or since_ms is None:
        return None
    missing = sum(gap.missing for gap in gaps)
    # Some of the summed-up ids produced through a gateway without an allocation event.
    hidden = max(0, summed_up - untold) + lost
    gaps.sort(key=lambda gap: (-gap.missing, gap.first_id))
    return Coverage(since_ms, judged, allocated, missing, min(hidden, missing), tuple(gaps[:MOST_GAPS]))
