"""What passed without an event: batches of an id that is known are forwarded, and nobody is told of each.

For most of them nothing follows from that. For an id that had been refused, it ends refusals: the batch that was
refused comes again, is known by then, passes in silence, and what comes after it may pass as well. Without that, every
refusal of a pipeline would stand for as long as its connection.
"""

from __future__ import annotations

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client, ProducerBatch
from pidgate.quota.layered_filter import Sighting
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.sticky import Position

MOST_REFUSED_IN_A_ROW = 16
"""An entry remembers the refused one and five after it; more rounds than that are no longer a pipeline."""


def pass_in_silence(
    admission: Admission,
    state: ProducerIdQuota,
    client: Client,
    batch: ProducerBatch,
    *,
    was_here: bool,
    transactional: bool,
    now_ms: int,
) -> None:
    """Let pass what must have passed before `batch`, the first of its id in a new slice. Else nothing is done.

    An id that is remembered from an earlier slice has been let in; whatever was refused of it before came again and
    passed, or the client would not have gone on for the rest of that slice. `was_here`: the id was met on this
    connection before; then its other partitions began there, in silence.
    """
    user, (producer_id, epoch, base_sequence, topic, partition) = client.user, batch
    live, sticky = state.table.find(user), admission.sticky
    if live is None or sticky.find_watched_id(user, producer_id, now_ms) is None:
        return
    if live.sight(producer_id, now_ms, transactional=transactional) is not Sighting.REMEMBERED:
        return
    for _ in range(MOST_REFUSED_IN_A_ROW):
        record = sticky.find_watched_id(user, producer_id, now_ms)
        entry = record.entries.get((topic, partition)) if record is not None else None
        if entry is None or entry.epoch != epoch or not sticky.is_above(base_sequence, entry.base_sequence):
            break
        refused = (producer_id, entry.epoch, entry.base_sequence, topic, partition)
        sticky.record_forwarded(user, [refused], entry.connection_id)
    look = sticky.locate_batch(user, batch, client.connection_id, now_ms)
    if was_here and look is Position.FIRST_SIGHT:
        sticky.record_forwarded(user, [(producer_id, epoch, 0, topic, partition)], client.connection_id)
