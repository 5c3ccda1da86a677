"""The fuse: whom it enforces, in which order, and when that ends."""

from __future__ import annotations

from dataclasses import replace

from pidgate.quota.changes import Action, Change, Setting, Target, applied, deciding
from pidgate.quota.decisions import Forward
from pidgate.quota.fuse import HOLDS_MS, NEXT_AFTER_MS, Fuse, enforcement, is_by_fuse
from pidgate.quota.producer_states import pair_hash
from pidgate.quota.settings import Mode, UserQuota
from tests.support.rules import rule
from tests.unit.quota.world import World, batch, enforcing

CAPACITY = 1_000
RATE = 10
WALL_MS = 1_000_000_000


class Cluster:
    """A gateway with a fuse; `look` does what the gateway does once a second."""

    def __init__(self, *, file_wins: bool = False, **users: UserQuota) -> None:
        self.in_file = replace(enforcing(RATE, mode=Mode.OBSERVE, users=users), fuse=CAPACITY)
        self.world = World(self.in_file)
        self.state = self.world.admission.state
        self.fuse = Fuse(self.state)
        self.changes: dict[Target, Change] = {}
        self.file_wins = file_wins
        self._next_id = 0

    def bring(self, user: str, number: int, partitions: int = 1) -> list[bool]:
        """Bring so many new ids, each on so many partitions; return which were forwarded."""
        client = self.world.connect(user)
        forwarded = []
        for _ in range(number):
            self._next_id += 1
            passes = isinstance(self.world.judge(client, batch(self._next_id)), Forward)
            forwarded.append(passes)
            for partition in range(partitions if passes else 0):
                self.state.note_pair(client, self._next_id, b"t", partition, (1,), self.world.now_ms)
        return forwarded

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.world.now_ms

    def set_mode(self, user: str | None, mode: Mode, *, temporary: bool = False) -> None:
        until_ms = self.wall_ms + 60_000 if temporary else None
        target = Target(Setting.MODE, user, temporary)
        change = Change(target=target, action=Action.SET, value=mode, until_wall_ms=until_ms, set_by="cli")
        self._make([change])

    def _make(self, changes: list[Change]) -> None:
        self.changes |= {change.target: change for change in changes}
        found = deciding(self.in_file, self.changes.values(), file_wins=self.file_wins, wall_ms=self.wall_ms)
        self.world.admission.set_quotas(applied(self.in_file, found), self.world.now_ms)

    def look(self, after_ms: int = NEXT_AFTER_MS) -> list[str | None]:
        """Return the users that the fuse enforces from now on."""
        self.world.now_ms += after_ms
        now_ms, wall_ms = self.world.now_ms, self.wall_ms
        ended = [
            target for target, one in self.changes.items() if (one.until_wall_ms or wall_ms + 1) <= wall_ms
        ]
        for target in ended:
            del self.changes[target]
        look = self.fuse.look(self.changes.values(), now_ms, wall_ms)
        changes = look.renewed
        if look.note:
            found = [one for one in self.fuse.contributions(now_ms, file_wins=self.file_wins) if one]
            users = [one for one in found if one[0] not in look.taken]
            if users:
                changes = [*changes, enforcement(max(users, key=lambda one: one[1])[0], look.note, wall_ms)]
        self._make(changes)
        return [change.target.user for change in self.changes.values() if is_by_fuse(change)]


@rule("The fuse enforces users above their own quota alone, and at all gateways.", "fleet")
def test_below_the_line_nobody_is_enforced_and_above_it_the_largest_contributor_first() -> None:
    cluster = Cluster()
    assert all(cluster.bring("mallory", 600))
    assert all(cluster.bring("oscar", 60))
    assert all(cluster.bring("alice", 5))
    assert cluster.look() == []
    assert all(cluster.bring("oscar", 250))
    assert cluster.look() == ["mallory"]
    assert cluster.look(1_000) == ["mallory"], "its effect is awaited"
    assert cluster.bring("mallory", 3) == [False] * 3
    assert all(cluster.bring("oscar", 5))
    assert cluster.look() == ["mallory", "oscar"]
    assert cluster.look() == ["mallory", "oscar"]
    assert all(cluster.bring("alice", 5))
    assert all(cluster.bring("bob", RATE + 1)), "below its quota, as if it were enforced"


def test_one_id_on_many_partitions_contributes_as_many_states() -> None:
    cluster = Cluster()
    cluster.bring("mallory", RATE + 2, partitions=80)
    cluster.bring("oscar", 100)
    assert cluster.look() == ["mallory"]


def test_it_lets_go_below_the_lower_line_and_not_before() -> None:
    cluster = Cluster()
    cluster.bring("mallory", CAPACITY)
    assert cluster.look() == ["mallory"]
    day_ms = cluster.in_file.producer_ids.remember_ms
    for _ in range(4):
        assert cluster.look(HOLDS_MS // 2 + 1) == ["mallory"], "renewed while brokers hold the states"
    cluster.world.now_ms = day_ms * 5 // 4 - HOLDS_MS // 2
    cluster.changes = {
        target: replace(change, until_wall_ms=cluster.wall_ms + HOLDS_MS)
        for target, change in cluster.changes.items()
    }
    assert cluster.look(HOLDS_MS // 2) == ["mallory"], "it ends by itself"
    assert cluster.look(HOLDS_MS) == []
    assert all(cluster.bring("mallory", 20))


def test_between_the_lines_it_holds_and_takes_nobody_else() -> None:
    cluster = Cluster()
    cluster.bring("mallory", 900)
    assert cluster.look() == ["mallory"]
    cluster.in_file = replace(cluster.in_file, fuse=1_200)
    cluster._make([])
    cluster.bring("oscar", 20)
    assert cluster.look() == ["mallory"]
    assert cluster.look(HOLDS_MS - 2 * NEXT_AFTER_MS) == ["mallory"]
    assert cluster.look(HOLDS_MS - 2 * NEXT_AFTER_MS) == ["mallory"]


def test_what_somebody_has_set_stays() -> None:
    cluster = Cluster(exempted=UserQuota(exempt=True), unlimited=UserQuota.per_window(1_000_000))
    for user in ("mallory", "oscar", "exempted", "unlimited"):
        cluster.bring(user, 300)
    cluster.set_mode("mallory", Mode.OBSERVE)
    assert cluster.look() == ["oscar"]
    assert cluster.look() == ["oscar"]
    cluster.set_mode(None, Mode.OBSERVE)
    assert all(cluster.bring("oscar", 5)), "the emergency switch is above the fuse"
    cluster.changes = {target: one for target, one in cluster.changes.items() if not is_by_fuse(one)}
    assert cluster.look() == []


def test_a_mode_in_a_file_that_wins_stays() -> None:
    cluster = Cluster(file_wins=True, mallory=UserQuota(mode=Mode.OBSERVE))
    cluster.bring("mallory", 900)
    cluster.bring("oscar", 20)
    assert cluster.look() == ["oscar"]


def test_without_a_capacity_it_does_nothing() -> None:
    cluster = Cluster()
    cluster.in_file = replace(cluster.in_file, fuse=None)
    cluster._make([])
    cluster.bring("mallory", 5_000)
    assert cluster.look() == []


def test_a_forecast_that_counts_nothing_trips_nothing() -> None:
    cluster = Cluster()
    pair = pair_hash(1, b"t", 0)
    for _ in range(5_000):
        cluster.state.states.note("mallory", pair, (1,), 0)
    cluster.bring("mallory", 20)
    assert cluster.look() == []
