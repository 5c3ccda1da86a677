"""Byte quotas of one process: Kafka's own test matrix, bounds that change, modes, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.quota.byte_quota import IDLE_MS, LONGEST_TOLD_MS, OTHER_CLIENTS, ByteQuota, ClientSensors, Kind
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import ByteEntity, ByteQuotas, ByteRates, Mode, Quotas, QuotasHolder, UserQuota
from tests.unit.quota.byte_flood import Flood

SAMPLES = 11


class World:
    """A ByteQuota whose rates are set one by one, as Kafka's tests do; the same rate for both kinds."""

    def __init__(self, kind: Kind = Kind.PRODUCE, *, mode: Mode = Mode.ENFORCE) -> None:
        self.kind = kind
        self.rates: dict[ByteEntity, ByteRates] = {}
        self.quotas = Quotas(mode=mode)
        self.quota = ByteQuota(QuotasHolder(self.quotas))

    def set(self, user: str | None, client_id: str | None, rate: int | None) -> None:
        if rate is None:
            del self.rates[user, client_id]
        else:
            # The other kind has a rate that would throttle everything.
            self.rates[user, client_id] = (
                ByteRates(rate, 1) if self.kind is Kind.PRODUCE else ByteRates(1, rate)
            )
        self.quotas = replace(self.quotas, bytes=ByteQuotas(rates=dict(self.rates)))
        self.quota.in_force.replace(self.quotas)

    def sensors(self, user: str, client_id: str | None) -> ClientSensors:
        sensors = self.quota.sensors(self.kind, user, client_id, 0)
        assert sensors is not None
        return sensors

    def check(self, user: str, client_id: str, bound: int, bytes_per_s: int, *, throttled: bool) -> None:
        """Kafka's checkQuota: the bound, the most that fits, and a record of eleven times `bytes_per_s`."""
        sensors = self.sensors(user, client_id)
        assert sensors.window_bytes == bound * (SAMPLES - 1)
        assert (sensors.record(bytes_per_s * SAMPLES, 0) > 0) is throttled


@pytest.mark.parametrize("kind", Kind)
def test_kafkas_precedence_matrix(kind: Kind) -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence."""
    world = World(kind)
    world.set("", None, 1000)
    world.set(None, "", 2000)
    world.set("", "", 3000)
    world.set("userA", None, 4000)
    world.set("userA", "client1", 5000)
    world.set("userB", None, 6000)
    world.set("userB", "client1", 7000)
    world.set("userB", "", 8000)
    world.set("userC", None, 10000)
    world.set(None, "client1", 9000)

    world.check("userA", "client1", 5000, 4500, throttled=False)
    world.check("userA", "client2", 4000, 4500, throttled=True)
    world.check("userA", "client3", 4000, 0, throttled=True)  # shared by the user's clients
    world.check("userA", "client1", 5000, 0, throttled=False)  # its own
    world.check("userB", "client1", 7000, 8000, throttled=True)
    world.check("userB", "client2", 8000, 7000, throttled=False)
    world.check("userB", "client3", 8000, 7000, throttled=False)
    world.check("userD", "client1", 3000, 3500, throttled=True)
    world.check("userD", "client2", 3000, 2500, throttled=False)
    world.check("userE", "client1", 3000, 2500, throttled=False)

    world.set("", "", None)
    world.check("userD", "client1", 1000, 0, throttled=False)  # another bucket: it counts from 0
    world.check("userE", "client4", 1000, 1500, throttled=True)
    world.check("userF", "client4", 1000, 800, throttled=False)
    world.check("userF", "client5", 1000, 800, throttled=True)

    world.set("", None, None)
    world.check("userF", "client4", 2000, 0, throttled=False)
    world.check("userF", "client5", 2000, 0, throttled=False)
    world.check("userF", "client5", 2000, 2500, throttled=True)
    world.check("userG", "client5", 2000, 0, throttled=True)  # shared by all users of the client id

    world.set("userA", None, 8000)
    world.set("userA", "client1", 10000)
    world.check("userA", "client2", 8000, 0, throttled=False)
    world.check("userA", "client2", 8000, 4500, throttled=True)  # with what it had counted
    world.check("userA", "client1", 10000, 0, throttled=False)
    world.check("userA", "client1", 10000, 6000, throttled=True)
    world.set("userA", "client1", None)
    world.check("userA", "client6", 8000, 0, throttled=True)
    world.set("userA", "client6", 11000)
    world.check("userA", "client6", 11000, 8500, throttled=False)
    world.set("userA", "", 12000)
    world.set("userA", "client6", None)
    world.check(
        "userA", "client6", 12000, 4000, throttled=True
    )  # the level is another one, the bucket the same


@pytest.mark.parametrize(
    ("entity", "default"), [((None, "p1"), (None, "")), (("u1", None), ("", None)), (("u1", "p1"), ("", ""))]
)
def test_a_changed_bound_holds_at_once_for_meters_that_are_held(
    entity: ByteEntity, default: ByteEntity
) -> None:
    """ClientQuotaManagerTest.testQuotaParsing."""
    world = World()
    world.set(*entity, 2000)
    sensors = world.sensors("u1", "p1")
    assert sensors.record(2500 * SAMPLES, 0) == 3_750

    world.set(*entity, 3000)
    assert sensors.record(0, 0) == 0
    world.set(*entity, 500)
    assert sensors.bucket(0).record(0, 0) == 45_000
    assert sensors.told_ms(0) == LONGEST_TOLD_MS
    world.set(*default, 4000)
    world.set(*entity, None)
    assert world.sensors("u1", "p1").record(1000 * SAMPLES, 0) == 0
    assert world.sensors("u1", "p1").window_bytes == 40_000


def test_what_nothing_limits_has_no_meter() -> None:
    world = World()
    assert not world.quota.is_on
    assert world.quota.sensors(Kind.PRODUCE, "alice", "app", 0) is None

    world.set("bob", None, 10)
    assert world.quota.is_on
    assert world.quota.sensors(Kind.PRODUCE, "alice", "app", 0) is None
    sensors = world.sensors("bob", "app")

    world.set("bob", None, None)
    assert not world.quota.is_on
    assert sensors.record(10**9, 0) == 0
    assert list(world.quota.snapshots(0)) == []


def test_every_change_of_quotas_is_another_version() -> None:
    world = World()
    seen = {world.quota.in_force.version}
    for rate in (10, 10, None):
        world.set("bob", None, rate)
        assert world.quota.in_force.version not in seen
        seen.add(world.quota.in_force.version)


def test_another_shape_of_the_window_starts_all_anew() -> None:
    world = World()
    world.set("bob", None, 100)
    sensors = world.sensors("bob", "app")
    assert sensors.record(1_001, 0) == 10

    world.quota.in_force.replace(replace(world.quotas, bytes=ByteQuotas(3, 2_000, dict(world.rates))))

    assert sensors.record(400, 0) == 0
    assert sensors.record(1, 0) == 10  # 401 bytes over two samples of 2 s
    assert sensors.window_bytes == 400


def test_the_most_that_fits_is_at_least_one_byte() -> None:
    quotas = Quotas(bytes=ByteQuotas(2, 10, {("bob", None): ByteRates(1)}))
    sensors = ByteQuota(QuotasHolder(quotas)).sensors(Kind.PRODUCE, "bob", None, 0)

    assert sensors is not None
    assert sensors.window_bytes == 1


@pytest.mark.parametrize(
    ("mode", "users"),
    [
        (Mode.OBSERVE, {}),
        (Mode.ENFORCE, {"alice": UserQuota(mode=Mode.OBSERVE)}),
        (Mode.ENFORCE, {"alice": UserQuota(exempt_from_bytes=True)}),
    ],
)
def test_who_is_observed_or_exempt_is_counted_and_never_waits(
    mode: Mode, users: dict[str, UserQuota]
) -> None:
    quotas = Quotas(mode=mode, users=users, bytes=ByteQuotas(rates={("alice", None): ByteRates(100)}))
    quota = ByteQuota(QuotasHolder(quotas))
    sensors = quota.sensors(Kind.PRODUCE, "alice", "app", 0)
    assert sensors is not None
    assert not sensors.throttles

    assert [sensors.record(800, 0) for _ in range(3)] == [0, 0, 0]

    (snapshot,) = quota.snapshots(0)
    assert (snapshot.throttled, snapshot.would_throttle, snapshot.throttle_time_ms) == (0, 2, 0.0)
    assert (snapshot.total_bytes, snapshot.bytes_per_s) == (2_400, 240.0)


def test_who_is_unidentified_waits_as_everybody_else() -> None:
    world = World()
    world.set(None, "app", 100)

    assert world.sensors(unidentified("GSSAPI"), "app").record(2_000, 0) == 10_000
    assert world.sensors("alice", "app").record(0, 0) == 10_000


def test_a_snapshot_says_what_came_of_a_bucket() -> None:
    world = World()
    world.set("alice", "app", 100)
    sensors = world.sensors("alice", "app")
    assert [sensors.record(size, 0) for size in (1_000, 100, 200)] == [0, 1_000, 3_000]

    (snapshot,) = world.quota.snapshots(500)
    assert (snapshot.user, snapshot.client_id, snapshot.kind) == ("alice", "app", Kind.PRODUCE)
    assert snapshot.rate_bytes_per_s == 100
    assert snapshot.bytes_per_s == pytest.approx(1_300 / 10.5)
    assert (snapshot.throttled, snapshot.would_throttle, snapshot.total_bytes) == (2, 0, 1_300)
    assert snapshot.throttle_time_ms == 2_000.0
    assert next(world.quota.snapshots(11_000)).bytes_per_s == 0.0


def test_an_idle_bucket_is_dropped_and_a_meter_that_is_held_finds_the_new_one() -> None:
    world = World()
    world.set("alice", None, 100)
    held = world.sensors("alice", "app")
    held.record(10, 5)

    world.quota.sweep(IDLE_MS + 4)
    assert len(list(world.quota.snapshots(IDLE_MS))) == 1
    world.quota.sweep(IDLE_MS + 5)
    assert list(world.quota.snapshots(IDLE_MS)) == []

    later_ms = IDLE_MS + 10
    asked_anew = world.sensors("alice", "other")
    assert held.record(900, later_ms) == 0
    assert asked_anew.record(101, later_ms) == 10
    assert [row.total_bytes for row in world.quota.snapshots(later_ms)] == [1_001]


def test_a_bucket_that_was_just_made_is_not_idle() -> None:
    quotas = Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(rates={("", None): ByteRates(100)}))
    quota = ByteQuota(QuotasHolder(quotas))
    sensors = quota.sensors(Kind.PRODUCE, "alice", "app", 0)
    assert sensors is not None
    sensors.record(1, 10 * IDLE_MS)

    quota.sweep(10 * IDLE_MS + 1)

    assert len(list(quota.snapshots(10 * IDLE_MS))) == 1


class TestManyClientIds:
    """Client ids are chosen by clients; here there is room for three."""

    def quota(self) -> ByteQuota:
        rates: dict[ByteEntity, ByteRates] = {("", ""): ByteRates(100), ("big", None): ByteRates(7)}
        quotas = Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(rates=rates))
        return ByteQuota(QuotasHolder(quotas), max_client_buckets=3)

    def record(self, quota: ByteQuota, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        sensors = quota.sensors(Kind.PRODUCE, user, client_id, now_ms)
        assert sensors is not None
        return sensors.record(size_bytes, now_ms)

    def test_beyond_the_bound_the_clients_of_a_user_share_one_bucket(self) -> None:
        quota = self.quota()
        for number in range(3):
            assert self.record(quota, "mallory", f"made-up-{number}", 1_000, 0) == 0

        assert self.record(quota, "mallory", "made-up-3", 1_000, 0) == 0
        assert self.record(quota, "mallory", "made-up-4", 1_000, 0) == 10_000
        assert self.record(quota, "alice", "app", 1_000, 0) == 0  # takes nothing from others
        assert quota.no_room == 3
        names = [(row.user, row.client_id) for row in quota.snapshots(0)]
        assert names[3:] == [("mallory", OTHER_CLIENTS), ("alice", OTHER_CLIENTS)]

    def test_the_shared_bucket_goes_on_over_a_change_of_quotas(self) -> None:
        quota = self.quota()
        for number in range(5):
            self.record(quota, "mallory", f"made-up-{number}", 600, 0)
        rates: dict[ByteEntity, ByteRates] = {("", ""): ByteRates(110)}
        quota.in_force.replace(Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(rates=rates)))

        assert self.record(quota, "mallory", "made-up-5", 0, 0) == 909  # 1200 bytes at 110 a second

    def test_an_empty_bucket_makes_room(self) -> None:
        quota = self.quota()
        for number in range(3):
            self.record(quota, "mallory", f"made-up-{number}", 1_000, 0)
        self.record(quota, "mallory", "made-up-0", 1, 5_000)

        assert self.record(quota, "alice", "app", 1_000, 11_000) == 0
        names = {(row.user, row.client_id) for row in quota.snapshots(11_000)}
        assert names == {("mallory", "made-up-0"), ("mallory", "made-up-2"), ("alice", "app")}
        assert quota.no_room == 0

    def test_users_need_no_room(self) -> None:
        quota = self.quota()
        for number in range(3):
            self.record(quota, "mallory", f"made-up-{number}", 1_000, 0)

        assert self.record(quota, "big", "app", 71, 0) == 143


@pytest.mark.parametrize("clients", [1, 10])
def test_clients_that_send_all_they_can_keep_the_rate_over_two_windows(clients: int) -> None:
    """Kafka's window lets ten seconds' worth go at once, again when it is forgotten after eleven. So what passes is
    level over multiples of eleven seconds, and not over twenty.
    """
    world = World()
    world.set("alice", None, 2_000_000)
    flood = Flood([world.sensors("alice", f"c{number}") for number in range(clients)], 16_384, 110_000)

    for begin_ms in (11_000, 33_000, 55_000, 77_000):
        assert flood.bytes_per_s(begin_ms, begin_ms + 22_000) == pytest.approx(2_000_000, rel=0.05)
    assert flood.bytes_per_s(0, 11_000) <= 2_000_000 * 21 / 11 * 1.05
    assert flood.longest_wait_ms <= 1_500


def test_a_meter_alone_takes_no_room() -> None:
    world = World()
    world.set("", None, 100)
    sensors = world.sensors("alice", "app")
    assert list(world.quota.snapshots(0)) == []

    sensors.record(0, 0)
    assert len(list(world.quota.snapshots(0))) == 1
