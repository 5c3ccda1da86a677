"""Work that is done once a second goes through a large table in portions, and misses nobody for good."""

from pidgate.quota.admission import Admission
from pidgate.quota.decisions import Client
from pidgate.quota.entities import PORTION, Portions
from pidgate.quota.settings import Mode, Quotas, UserQuota

HOUR_MS = 3_600_000


def test_a_small_table_is_one_portion_each_time() -> None:
    portions = Portions[str](3)
    table = {"a": 1, "b": 2}
    assert portions.of(table) == portions.of(table) == [("a", 1), ("b", 2)]
    assert portions.of({}) == []


def test_a_round_goes_through_all_in_order_whatever_changes_meanwhile() -> None:
    portions = Portions[int](3)
    table = dict.fromkeys(range(7), "x")
    assert portions.of(table) == [(0, "x"), (1, "x"), (2, "x")]
    del table[3]
    table[9] = "new"
    table[4] = "y"
    assert portions.of(table) == [(4, "y"), (5, "x")]
    assert portions.of(table) == [(6, "x")]
    assert [key for key, _ in portions.of(table)] == [0, 1, 2]
    assert [key for _ in range(2) for key, _ in portions.of(table)] == [4, 5, 6, 9]


def test_users_without_state_are_forgotten_a_portion_with_each_sweep() -> None:
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(5))
    admission, users = Admission(quotas, lambda: 1, 0), 2 * PORTION + 10
    for number in range(users):
        client = Client(f"user-{number}", "app", "10.0.0.1", number)
        admission.judge(client, [(number, 0, 0, b"t", 0)], transactional=False, now_ms=1_000)
    left = []
    for second in range(4):
        admission.sweep(1_000 * HOUR_MS + 1_000 * second)
        left.append((len(admission.state.users()), len(admission.counters.users())))
    assert left == [(users - PORTION, users - PORTION), (10, 10), (0, 0), (0, 0)]
