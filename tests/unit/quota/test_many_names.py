"""Names that clients choose: no number of them makes a table grow, and nobody's state is forgotten for them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from pidgate.quota import byte_quota, entities, restoring, sticky_entries
from pidgate.quota import users as users_module
from pidgate.quota.byte_quota import ByteQuota, Kind
from pidgate.quota.counters import UserCountersTable
from pidgate.quota.decisions import Client
from pidgate.quota.entities import OTHER_USERS, User, table_key
from pidgate.quota.fail_open import FailOpen
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import ByteEntity, ByteQuotas, ByteRates, Mode, Quotas, QuotasHolder, UserQuota
from pidgate.quota.sticky import StickyRefusals
from tests.support.questions import decide_name, question
from tests.support.rules import rule
from tests.unit.quota.world import batch, enforcing, seeds

MOST = 10
MANY = 50

Add = Callable[[User], object]
Table = tuple[Add, Callable[[], Collection[object]]]


def counted() -> Table:
    table = UserCountersTable()
    return lambda user: table.of(user, 0), table.users


def passed_undecided() -> Table:
    quotas = enforcing(1_000)
    nobody, state = FailOpen(), ProducerIdQuota(quotas, seeds(), 0, is_restored=False)
    return lambda user: nobody.decide(quotas, state, question(user, 1)[1], 0), lambda: nobody._admitted[
        False, False
    ]


def byte_buckets() -> Table:
    rates: dict[ByteEntity, ByteRates] = {
        ("", None): ByteRates(1_000, 1_000),
        ("alice", None): ByteRates(1, 1),
    }
    quotas = Quotas(mode=Mode.ENFORCE, bytes=ByteQuotas(rates=rates))
    quota = ByteQuota(QuotasHolder(quotas))

    def add(user: User) -> None:
        sensors = quota.sensors(Kind.PRODUCE, user, "app", 0)
        assert sensors is not None
        sensors.record(1, 0)

    return add, lambda: [name for _, name in quota._of_users]


def refused() -> Table:
    sticky = StickyRefusals(100)

    def add(user: User) -> None:
        if not sticky.would_overflow(user, 1, [batch(1)]):  # else the connection is closed
            sticky.record_refusal(user, batch(1), 1, 0)

    return add, lambda: sticky.watched


def refused_elsewhere() -> Table:
    sticky = StickyRefusals(100)

    def add(user: User) -> None:
        sticky.watch_refused_elsewhere(user, 1, 0)
        sticky.watch_held_ids(user, [2], 0)
        sticky.watch_new_id(user, 3, 0)

    return add, lambda: sticky.watched


TABLES = [counted, passed_undecided, byte_buckets, refused, refused_elsewhere]


def size_after_many(table: Callable[[], Table]) -> int:
    add, names = table()
    for number in range(MANY):
        add(f"user-{number}")
    add("alice")
    return len(names())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "MOST_USERS", MOST)
    monkeypatch.setattr(byte_quota, "MOST_USER_BUCKETS", MOST)
    monkeypatch.setattr(sticky_entries, "MOST_WATCHED_USERS", MOST)


@rule("Tables of names, watched ids, notes and held beginnings are bounded for each user.", "memory")
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_table_is_bounded(table: Callable[[], Table]) -> None:
    assert size_after_many(table) <= MOST + 2  # with one for all others, and one that the configuration names


def test_who_is_in_a_table_stays_himself() -> None:
    table = {f"user-{number}": 0 for number in range(MOST)}
    assert table_key("user-3", table) == "user-3"
    assert table_key("one more", table) == OTHER_USERS
    del table["user-0"]
    assert table_key("one more", table) == "one more"


def test_a_user_with_a_rate_of_its_own_shares_no_bucket() -> None:
    add, names = byte_buckets()
    for number in range(MANY):
        add(f"user-{number}")
    add("alice")
    assert ("alice", None) in names()
    assert (OTHER_USERS, None) in names()


def test_a_full_table_of_noted_ids_keeps_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "MOST_NOTED_IDS", MOST)
    state = ProducerIdQuota(enforcing(1_000), seeds(), 0, is_restored=False)
    for number in range(MANY):
        state.decide(*question(f"user-{number}", 1), 0)
    assert len(state.users()) == MOST
    assert state.noted.not_noted == MANY - MOST


def test_of_all_watched_ids_a_user_leaves_as_many_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_entries, "MOST_WATCHED", 20)
    sticky = StickyRefusals(100)
    held = 0
    while not sticky.would_overflow("mallory", 1, [batch(held)]):
        sticky.record_refusal("mallory", batch(held), 1, 0)
        held += 1
    assert held == 10
    assert not sticky.would_overflow("alice", 1, [batch(1)])
    assert not sticky.would_overflow("mallory", 1, [batch(0, 5)]), "what is watched goes on to be"
    sticky.connection_closed(1)
    sticky.sweep(300_000)
    assert sticky._room.ids == 0
    assert not sticky.would_overflow("mallory", 1, [batch(held)])


def test_filters_of_transactional_ids_are_counted() -> None:
    quotas = Quotas(Mode.ENFORCE, default=UserQuota(transactional_ids_rate_milli=1_000))
    state = ProducerIdQuota(quotas, lambda: 1, 0)
    before = state.table.filter_bytes
    decide_name(state, "alice", 7)
    live = state.table.find("alice")
    assert live is not None
    assert live.transactional_ids is not None
    assert state.table.filter_bytes - before == live.transactional_ids.filter.size_bytes > 0


def full_quota() -> ProducerIdQuota:
    """A state whose table is full, and a latecomer in it that has used id 7 in transactions."""
    state = ProducerIdQuota(enforcing(5), lambda: 1, 0)
    made_up("10.0.0.1", state, "neighbour")
    for number in range(MANY):
        state.insert_uncharged(f"user-{number}", 1, 0)
    state.insert_uncharged("late", 7, 0, transactional=True)
    return state


def test_who_came_late_is_looked_up_where_it_is_kept() -> None:
    state = full_quota()
    assert state.table.remembers("late", 7, 0, transactional=True)
    assert state.table.find("late") is state.table.find(OTHER_USERS) is not None
    assert state.status("late", 0) == state.status(OTHER_USERS, 0)


def test_the_id_that_a_latecomer_is_given_by_end_txn_is_inherited() -> None:
    state = full_quota()
    assert state.inherit("late", 7, 8, 0)
    answer = state.decide(*question("late", 8, transactional=True), 0)
    assert answer.decisions == (), "known, and free"


def made_up(address: str, state: ProducerIdQuota, prefix: str, users: int = MANY) -> None:
    for number in range(users):
        user = f"{prefix}-{number}"
        state.decide(Client(user, "app", address, 1), question(user, 1)[1], 0)


def _first_come(_alike: int, users: int) -> bool:
    """Mutant: the table has no shares."""
    return users < MOST


@rule("Users that are made up push no user of another address into the shared account.", "memory")
@pytest.mark.parametrize("shares", [True, False])
def test_made_up_users_push_nobody_of_another_address_into_the_shared_account(
    shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shares:
        monkeypatch.setattr(users_module, "has_room_for_user", _first_come)
    state = ProducerIdQuota(enforcing(5, users={"named": UserQuota.per_window(7)}), seeds(), 0)
    made_up("10.0.0.66", state, "made-up")
    shared = state.table.kept_under(OTHER_USERS)
    assert shared is not None, "the attack did not fill the table"
    state.decide(Client("alice", "app", "10.0.0.1", 2), question("alice", 1)[1], 0)
    assert (state.table.kept_under("alice") is not None) is shares
    made_up("10.0.0.67", state, "made-up-elsewhere")
    made_up("10.0.0.66", state, "named", 1)
    state.decide(Client("named", "app", "10.0.0.66", 2), question("named", 1)[1], 0)
    assert state.table.kept_under("named") is not None, (
        "a user that the quotas name has an account in any case"
    )
    assert len(state.table.users()) <= MOST + 2


def test_an_account_with_a_debt_is_never_dropped_for_another() -> None:
    state = ProducerIdQuota(enforcing(1), seeds(), 0)
    for number in range(3):
        state.decide(*question("debtor", number), 0)
    made_up("10.0.0.66", state, "made-up")
    assert state.status("debtor", 0).tokens == -1
    state.sweep(3_599_999)
    assert state.status("debtor", 0).tokens == pytest.approx(0, abs=0.001)


def test_origins_are_forgotten_with_their_users() -> None:
    state = ProducerIdQuota(enforcing(5), seeds(), 0)
    made_up("10.0.0.66", state, "made-up")
    state.sweep(10 * 86_400_000)
    assert state.users() == []
    assert not state.table._of_origin


def test_one_that_is_dropped_while_all_are_exported_is_not_exported_as_the_others() -> None:
    state = full_quota()
    exported = state.restorer.export_users(0)
    first = next(exported).user
    dropped = state.table.users()[1]
    del state.table._users[dropped]
    assert dropped not in {first, *(user.user for user in exported)}
