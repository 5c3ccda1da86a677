"""What metrics and pages are told of a user."""

from __future__ import annotations

from pidgate.quota.counters import UserSnapshot
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import Mode, Quotas, UserQuota
from tests.unit.quota.world import HOUR_MS, World, batch, enforcing


def only(world: World) -> UserSnapshot:
    (snapshot,) = world.admission.user_snapshots(world.now_ms)
    return snapshot


def test_a_user_under_throttling() -> None:
    world = World(enforcing(100))
    world.spend(101)
    session = world.connect()
    world.refusal(session, batch(1))
    world.refusal(session, batch(1, 1))
    world.now_ms = 10_000
    world.refusal(session, batch(1))
    snapshot = only(world)
    assert (snapshot.user, snapshot.enforces, snapshot.exempt) == ("alice", True, False)
    assert (snapshot.rate_milli, round(snapshot.tokens or 0, 2)) == (100_000, -0.72)
    assert snapshot.admitted == {"first_seen": 101}
    assert snapshot.refused == {"first_seen": 1, "sticky": 1, "queue": 1}
    assert snapshot.throttle_time_ms == 10_000
    assert (snapshot.waiting, snapshot.oldest_waiting_ms) == (1, 10_000)
    assert (snapshot.live_ids, snapshot.sticky_entries) == (101, 2)
    assert 2 < snapshot.admitted_per_s < 4


def test_a_user_without_a_limit() -> None:
    world = World(Quotas(mode=Mode.OBSERVE))
    world.judge(world.connect(), batch(1))
    snapshot = only(world)
    assert (snapshot.enforces, snapshot.rate_milli, snapshot.tokens) == (False, None, None)
    assert (snapshot.live_ids, snapshot.admitted) == (1, {"observe": 1})


def test_an_exempt_user_and_an_unidentified_one() -> None:
    world = World(enforcing(1, users={"mirror": UserQuota(exempt=True)}))
    world.judge(world.connect("mirror"), batch(1))
    world.judge(world.connect(unidentified("GSSAPI")), batch(2))
    mirror, kerberos = world.admission.user_snapshots(HOUR_MS)
    assert (mirror.user, mirror.exempt, mirror.enforces) == ("mirror", True, False)
    assert (kerberos.user, kerberos.rate_milli, kerberos.enforces) == ("\0GSSAPI", 1_000, True)
