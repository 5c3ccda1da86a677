"""No log line may be had at will: a process writes one a second of a kind, whatever is sent and how often."""

from __future__ import annotations

from dataclasses import replace

from tests.hostile.attack import Attack, Case, Delivery, Target, cases
from tests.hostile.site import Site, carry_out
from tests.support.frames import ONE_RECORD, record_batch

CONNECTIONS = 20
Partitions = list[tuple[int, bytes | None]]


def two_epochs(target: Target) -> list[bytes]:
    """One id under two epochs in one partition, several batches of which Kafka takes up to version 2."""
    frames = []
    for _ in range(5):
        producer_id = target.new_id()
        batches = b"".join(record_batch(producer_id, epoch, 0, records=ONE_RECORD) for epoch in (0, 1))
        frames.append(target.produce_of([(target.topic, [(0, batches)])], version=target.version))
    return frames


def too_many_ids(target: Target) -> list[bytes]:
    """It is closed for it, with a line that names the user."""
    batches: Partitions = [(index, record_batch(target.new_id(), records=ONE_RECORD)) for index in range(20)]
    return [target.produce_of([(target.topic, batches)], version=target.version)]


def unreadable(target: Target) -> list[bytes]:
    return [b"\0\0\0\x0c" + target.version.to_bytes(2, "big") * 6]


KINDS = [
    Attack(name="one id in two epochs of a partition", frames=two_epochs, versions=(2, 0, 1, 3, 9)),
    Attack(name="more ids than a client has", frames=too_many_ids, versions=(9, 3)),
    Attack(name="nothing that can be read", frames=unreadable, versions=(9, 0xFFFF), user=None),
]

ATTACKS = [
    replace(
        kind,
        name=f"{kind.name}, over {CONNECTIONS} connections",
        connections=CONNECTIONS,
        deliveries=(Delivery.PIPELINED, Delivery.ODD_BYTES),
        by_day=kind is KINDS[0],
    )
    for kind in KINDS
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)
