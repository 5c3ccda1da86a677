"""Beside the known attacks: what a client could try next."""

from tests.hostile.attack import WITH_SASL, Attack, Case, Delivery, Target, cases
from tests.hostile.attacker import authenticate, handshake, plain_token
from tests.hostile.site import HONEST_USER, Site, carry_out
from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import request

HEARTBEAT = 12


def silent(target: Target) -> list[bytes]:
    """acks=0 has no answer, so nothing can be refused but by closing."""
    batch = record_batch(target.new_id(), records=ONE_RECORD)
    return [framed(produce_request(target.version, [(target.topic, [(0, batch)])], acks=0))] * 5


def other_names(target: Target) -> list[bytes]:
    """A token for another user, with a wrong password, in the middle of the connection."""
    return [
        handshake(),
        authenticate(plain_token(HONEST_USER, "wrong"), 2),
        *(target.produce(version=target.version) for _ in range(5)),
    ]


def many_epochs(target: Target) -> list[bytes]:
    """A new epoch makes no other id of it, and a refused one no known one."""
    producer_id = target.new_id()
    batches = [record_batch(producer_id, epoch, 0, records=ONE_RECORD) for epoch in range(20)]
    return [target.produce_of([(target.topic, [(0, batch)])], version=target.version) for batch in batches]


ATTACKS = [
    Attack(name="new ids that want no answer", frames=silent, versions=(9, 3, 8, 12), answers=0),
    Attack(
        name="another user's name in the middle",
        frames=other_names,
        versions=(9, 3, 12),
        places=WITH_SASL,
    ),
    Attack(name="one id in twenty epochs", frames=many_epochs, versions=(9, 3, 12)),
    Attack(
        name="nothing but sizes",
        frames=lambda target: [b"\0\0\0\0"] * 100,
        deliveries=(Delivery.PIPELINED, Delivery.ODD_BYTES),
    ),
    Attack(
        name="a size below zero",
        frames=lambda target: [b"\xff\xff\xff\xff" + bytes(100)],
        user=None,
    ),
    Attack(
        name="the beginning of a frame of 2 GB",
        frames=lambda target: [b"\x7f\xff\xff\xff" + bytes(100)],
        user=None,
    ),
    Attack(
        name="1,000 heartbeats behind one that is refused",
        frames=lambda target: [
            target.produce(),
            *(request(HEARTBEAT, target.version, {"group_id": "g", "member_id": "m"}) for _ in range(1_000)),
            target.produce(),
        ],
        versions=(4, 0, 3),
        deliveries=(Delivery.PIPELINED,),
    ),
    Attack(
        name="a client id of 30 kB",
        frames=lambda target: [
            request(HEARTBEAT, target.version, {"group_id": "g", "member_id": "m"}, client_id="c" * 30_000)
            for _ in range(200)
        ],
        versions=(4, 0, 3),
    ),
]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)
