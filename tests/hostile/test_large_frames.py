"""One frame stalls nobody, and takes no more memory than it has bytes: many of everything that may be repeated."""

from collections.abc import Callable, Iterable

from tests.hostile.attack import WITH_SASL, Attack, Case, Delivery, Target, cases
from tests.hostile.attacker import authenticate, handshake
from tests.hostile.cost import MiB
from tests.hostile.site import Site, carry_out
from tests.support.frames import ONE_RECORD, record_batch
from tests.support.raw import request

DESCRIBE_CONFIGS, DESCRIBE_QUOTAS, ALTER_QUOTAS = 32, 48, 49
USER = "user"
TOPIC = 2

Frames = Callable[[Target], Iterable[bytes]]
Partitions = list[tuple[int, bytes | None]]


def produce(partitions: int, batches: int) -> Frames:
    """A Produce of so many partitions, of so many batches each, each of an id of its own."""

    def frames(target: Target) -> list[bytes]:
        def batch() -> bytes:
            return record_batch(target.new_id(), records=ONE_RECORD)

        data: Partitions = [(index, b"".join(batch() for _ in range(batches))) for index in range(partitions)]
        return [target.produce_of([(target.named(target.version), data)], version=target.version)]

    return frames


def batches_of_one_id(partitions: int, batches: int) -> Frames:
    """The same, all of one new id: one decision, and one answer or none."""

    def frames(target: Target) -> list[bytes]:
        batch = record_batch(target.new_id(), records=ONE_RECORD)
        data: Partitions = [(index, batch * batches) for index in range(partitions)]
        return [target.produce_of([(target.named(target.version), data)], version=target.version)]

    return frames


def configs(target: Target) -> list[bytes]:
    """The configuration of 1,000 topics: the broker answers with more than a megabyte."""
    asked = {"resource_type": TOPIC, "resource_name": target.topic}
    return [request(DESCRIBE_CONFIGS, target.version, {"resources": [asked] * 1_000})]


def topics_of_one_name(target: Target) -> list[bytes]:
    name = "n" * 32_000
    data: Partitions = [(0, record_batch(target.new_id(), records=ONE_RECORD))]
    return [target.produce_of([(name, data)] * 30, version=target.version)]


def alterations(target: Target) -> list[bytes]:
    entity = [{"entity_type": USER, "entity_name": "u"}]
    entry = {"entity": entity, "ops": [{"key": "producer_ids_rate", "value": 1.0, "remove": False}]}
    return [request(ALTER_QUOTAS, target.version, {"entries": [entry] * 60_000, "validate_only": True})]


def filters(target: Target) -> list[bytes]:
    component = {"entity_type": USER, "match_type": 0, "match": "u"}
    return [request(DESCRIBE_QUOTAS, target.version, {"components": [component] * 60_000, "strict": False})]


ATTACKS = [
    Attack(
        name="a SCRAM name of 400 kB",
        frames=lambda target: [
            handshake("SCRAM-SHA-256"),
            authenticate(b"n,,n=" + b"a" * 400_000 + b",r=abc", target.version),
        ],
        versions=(2, 0, 1),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="a SCRAM name of 10 MB",
        frames=lambda target: [
            handshake("SCRAM-SHA-256"),
            authenticate(b"n,,n=" + b"a" * 10 * MiB + b",r=abc", target.version),
        ],
        versions=(2, 0, 1),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="a PLAIN token of NULs",
        frames=lambda target: [handshake(), authenticate(bytes(400_000), target.version)],
        versions=(2, 0, 1),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="2,000 new ids in one partition",
        frames=produce(1, 2_000),
        versions=(9, 3, 8, 12),
    ),
    Attack(
        name="20,000 new ids in one partition",
        frames=produce(1, 20_000),
        versions=(9, 3, 8, 12, 13),
        by_day=False,
    ),
    Attack(
        name="a new id for each of 20,000 partitions",
        frames=produce(20_000, 1),
        versions=(9, 3, 8, 12, 13),
    ),
    Attack(
        name="2,990 batches of one new id in one partition, up to version 2",
        frames=batches_of_one_id(1, 2_990),
        versions=(2, 0, 1),
    ),
    Attack(
        name="99,999 batches in one partition, up to version 2",
        frames=batches_of_one_id(1, 99_999),
        versions=(2, 0, 1),
        deliveries=(Delivery.PIPELINED, Delivery.ODD_BYTES),
        share_bytes=8 * MiB,  # the request
    ),
    Attack(
        name="one new id in each of 2,990 partitions",
        frames=batches_of_one_id(2_990, 1),
        versions=(9, 3, 8, 12, 13),
    ),
    Attack(
        name="the configuration of 1,000 topics",
        frames=configs,
        versions=(4, 1, 3),
    ),
    Attack(
        name="topic names of 32 kB",
        frames=topics_of_one_name,
        versions=(9, 3, 8, 12),
    ),
    Attack(
        name="60,000 alterations of quotas",
        frames=alterations,
        versions=(1, 0),
        deliveries=(Delivery.PIPELINED, Delivery.ODD_BYTES),
    ),
    Attack(
        name="a filter of 60,000 components",
        frames=filters,
        versions=(1, 0),
        deliveries=(Delivery.PIPELINED, Delivery.ODD_BYTES),
    ),
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)
