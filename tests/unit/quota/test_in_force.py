"""Which quotas hold: temporary over standing over file, and one switch above all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.changes import (
    BYTE_RATES,
    Action,
    Change,
    Setting,
    Target,
    deciding,
    has_ended,
    is_set_in_file,
    merged,
    next_end,
    rates_of,
    value_in_force,
)
from pidgate.quota.entities import resolve
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas, UserQuota

NOW_MS = 1_000_000
RATE, MODE = Setting.PRODUCER_IDS_RATE, Setting.MODE
FILE = Quotas(
    mode=Mode.OBSERVE,
    default=UserQuota(50_000),
    users={
        "alice": UserQuota(100_000, Mode.ENFORCE),
        "bob": UserQuota(None, None, exempt=True, exempt_from_bytes=True),
    },
    cluster_rate_milli=7_000,
    help_url="https://help",
    bytes=ByteQuotas(rates={("alice", None): ByteRates(5, 6)}),
)


def setting(
    setting: Setting, user: str | None, value: int | Mode, *, until_ms: int | None = None, by: str = "op"
) -> Change:
    target = Target(setting, user, temporary=until_ms is not None)
    return Change(target=target, action=Action.SET, value=value, until_wall_ms=until_ms, set_by=by)


def other(setting: Setting, user: str | None, action: Action, *, until_ms: int | None = None) -> Change:
    target = Target(setting, user, temporary=until_ms is not None)
    return Change(target=target, action=action, until_wall_ms=until_ms)


def in_force(*changes: Change, file: Quotas = FILE, file_wins: bool = False) -> Quotas:
    return merged(file, changes, file_wins=file_wins, wall_ms=NOW_MS)


def test_without_changes_the_file_holds() -> None:
    assert in_force() == FILE


def test_a_change_takes_the_place_of_what_the_file_says_and_of_nothing_else() -> None:
    quotas = in_force(setting(RATE, "alice", 0), setting(MODE, "bob", Mode.ENFORCE), setting(RATE, None, 9))

    assert quotas.users["alice"] == UserQuota(0, Mode.ENFORCE)
    assert quotas.users["bob"] == UserQuota(None, Mode.ENFORCE, exempt=True, exempt_from_bytes=True)
    assert quotas.default == UserQuota(9)
    assert replace(quotas, users=FILE.users, default=FILE.default) == FILE


def test_a_user_whom_only_a_change_names_gets_a_quota_of_its_own() -> None:
    assert in_force(setting(RATE, "carol", 3)).users["carol"] == UserQuota(3)
    assert in_force(setting(MODE, "carol", Mode.ENFORCE)).users["carol"] == UserQuota(None, Mode.ENFORCE)


def test_what_is_removed_falls_back_to_the_default_although_the_file_says_something() -> None:
    quotas = in_force(other(RATE, "alice", Action.REMOVE), other(MODE, "alice", Action.REMOVE))

    assert quotas.users["alice"] == UserQuota()
    assert resolve(quotas, "alice").rate_milli == 50_000
    assert in_force(other(RATE, None, Action.REMOVE)).default == UserQuota()
    assert "carol" not in in_force(other(RATE, "carol", Action.REMOVE)).users


def test_what_is_reset_is_the_file_again() -> None:
    standing, temporary = setting(RATE, "alice", 1), setting(RATE, "alice", 2, until_ms=NOW_MS + 1)
    reset = other(RATE, "alice", Action.RESET)

    assert in_force(standing, reset) == FILE
    assert in_force(standing, temporary, reset).users["alice"].producer_ids_rate_milli == 2
    end = Change(target=temporary.target, action=Action.RESET)
    assert in_force(standing, temporary, end).users["alice"].producer_ids_rate_milli == 1


def test_each_setting_changes_itself_and_no_other() -> None:
    of_names = Setting.TRANSACTIONAL_IDS_RATE
    quotas = in_force(
        setting(of_names, "alice", 4), setting(of_names, None, 5), setting(of_names, "carol", 6)
    )

    assert quotas.users["alice"] == replace(FILE.users["alice"], transactional_ids_rate_milli=4)
    assert quotas.default == replace(FILE.default, transactional_ids_rate_milli=5)
    assert quotas.users["carol"] == UserQuota(transactional_ids_rate_milli=6)
    assert resolve(quotas, "bob").transactional_ids_rate_milli == 5
    assert value_in_force(quotas, of_names, None) == 5
    assert not is_set_in_file(FILE, of_names, "alice")
    assert is_set_in_file(quotas, of_names, None)
    assert in_force(setting(of_names, "alice", 4), file=quotas, file_wins=True) == quotas


def test_a_byte_rate_and_a_grace_change_themselves_and_no_other() -> None:
    produced, fetched = BYTE_RATES
    quotas = in_force(setting(produced, "alice", 8_001), setting(fetched, None, 2_000))
    assert quotas.bytes.rates == {
        ("alice", None): ByteRates(9, 6),  # rounded up: 0 is no rate
        ("", None): ByteRates(None, 2),
    }
    assert replace(quotas, bytes=FILE.bytes) == FILE
    assert (value_in_force(quotas, produced, "alice"), value_in_force(quotas, fetched, None)) == (
        9_000,
        2_000,
    )
    removed = in_force(other(produced, "alice", Action.REMOVE), other(fetched, "alice", Action.REMOVE))
    assert removed.bytes.rates == {}
    assert in_force(setting(produced, "alice", 1_000), file_wins=True) == FILE

    of_all = setting(Setting.GRACE, None, 10_000, until_ms=NOW_MS + 1)
    ended = setting(Setting.GRACE, "alice", 0, until_ms=NOW_MS + 1)
    quotas = in_force(of_all, ended)
    assert [resolve(quotas, user).grace_milli for user in ("alice", "bob")] == [0, 10_000]


@pytest.mark.parametrize("order", [1, -1])
def test_a_temporary_change_holds_until_its_end_then_the_standing_one_does(order: int) -> None:
    changes = [setting(RATE, "alice", 1), setting(RATE, "alice", 2, until_ms=NOW_MS + 10)][::order]

    def rate(wall_ms: int) -> int | None:
        quotas = merged(FILE, changes, file_wins=False, wall_ms=wall_ms)
        return quotas.users["alice"].producer_ids_rate_milli

    assert [rate(NOW_MS), rate(NOW_MS + 9), rate(NOW_MS + 10), rate(NOW_MS + 11)] == [2, 2, 1, 1]
    removed = other(RATE, "alice", Action.REMOVE, until_ms=NOW_MS + 10)
    assert in_force(changes[0], changes[1], removed).users["alice"].producer_ids_rate_milli is None


def test_the_last_change_of_a_target_counts_whatever_its_clock_says() -> None:
    early = replace(setting(RATE, "alice", 1), set_wall_ms=5)
    late = replace(setting(RATE, "alice", 2), set_wall_ms=4)

    assert in_force(early, late).users["alice"].producer_ids_rate_milli == 2
    assert in_force(late, early).users["alice"].producer_ids_rate_milli == 1


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("until_ms", [None, NOW_MS + 1])
@pytest.mark.parametrize("file_wins", [False, True])
def test_the_mode_of_all_users_is_above_everything_but_exemption(
    mode: Mode, until_ms: int | None, file_wins: bool
) -> None:
    quotas = in_force(
        setting(MODE, "carol", Mode.ENFORCE),
        setting(MODE, "dave", Mode.OBSERVE),
        setting(MODE, None, mode, until_ms=until_ms),
        file=replace(FILE, default=UserQuota(1, Mode.ENFORCE)),
        file_wins=file_wins,
    )
    users = ["alice", "bob", "carol", "dave", "somebody"]

    assert [resolve(quotas, user).mode for user in users] == [mode] * 5
    assert resolve(quotas, "bob").exempt
    assert not resolve(quotas, "bob").enforces


def test_the_mode_of_all_users_ends_and_leaves_everybody_as_before() -> None:
    switch = setting(MODE, None, Mode.OBSERVE, until_ms=NOW_MS + 5)

    assert not resolve(in_force(switch), "alice").enforces
    assert merged(FILE, [switch], file_wins=False, wall_ms=NOW_MS + 5) == FILE


def test_where_the_file_wins_a_change_stands_only_where_the_file_is_silent() -> None:
    quotas = in_force(
        setting(RATE, "alice", 1),
        setting(RATE, "bob", 2),
        setting(MODE, "bob", Mode.ENFORCE),
        setting(RATE, None, 3),
        other(MODE, "alice", Action.REMOVE),
        file_wins=True,
    )

    assert quotas.users["alice"] == FILE.users["alice"]
    assert quotas.default == FILE.default
    assert (quotas.users["bob"].producer_ids_rate_milli, quotas.users["bob"].mode) == (2, Mode.ENFORCE)


def test_which_change_decides_is_told() -> None:
    standing = setting(RATE, "alice", 1, by="standing")
    temporary = setting(RATE, "alice", 2, until_ms=NOW_MS + 1, by="temporary")
    found = deciding(FILE, [temporary, standing], file_wins=False, wall_ms=NOW_MS)
    assert found == {(RATE, "alice"): temporary}
    assert deciding(FILE, [standing], file_wins=True, wall_ms=NOW_MS) == {}


def test_the_next_end_is_the_earliest_that_has_not_come() -> None:
    ends = [setting(RATE, name, 1, until_ms=NOW_MS + at) for name, at in [("a", -1), ("b", 7), ("c", 3)]]
    assert next_end([setting(RATE, "alice", 1), *ends], NOW_MS) == NOW_MS + 3
    assert next_end([setting(RATE, "alice", 1)], NOW_MS) is None


# Against a second, plain reading of the rules

USERS = ("alice", "bob", "carol")
modes = st.sampled_from(list(Mode))
rates = st.integers(0, 5)
quotas_of_user = st.builds(UserQuota, st.none() | rates, st.none() | modes, st.booleans())
files = st.builds(
    Quotas,
    mode=modes,
    default=st.builds(UserQuota, st.none() | rates),
    users=st.dictionaries(st.sampled_from(USERS), quotas_of_user),
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    of, user = draw(st.sampled_from(list(Setting))), draw(st.none() | st.sampled_from(USERS))
    temporary, action = draw(st.booleans()), draw(st.sampled_from(list(Action)))
    if of is MODE and user is None and action is Action.REMOVE:
        action = Action.RESET
    value: int | Mode | None = None
    if action is Action.SET:
        value = draw(modes) if of is MODE else draw(rates) + (of in BYTE_RATES)
    until = NOW_MS + draw(st.integers(-2, 2)) if temporary else None
    return Change(target=Target(of, user, temporary), action=action, value=value, until_wall_ms=until)


def said_plainly(
    file: Quotas, told: list[Change], file_wins: bool, of: Setting, user: str | None
) -> int | Mode | None:
    in_file = file.default if user is None else file.users.get(user, UserQuota())
    own: int | Mode | None = in_file.mode if of is MODE else in_file.producer_ids_rate_milli
    if of is MODE and user is None:
        own = None  # what the file says of all is asked last
    if file_wins and own is not None:
        return own
    for temporary in (True, False):
        of_target = [change for change in told if change.target == Target(of, user, temporary)]
        last = of_target[-1] if of_target else None
        if last is None or last.action is Action.RESET:
            continue
        if last.until_wall_ms is not None and last.until_wall_ms <= NOW_MS:
            continue
        return last.value
    return own


@given(files, st.lists(changes(), max_size=12), st.booleans())
def test_as_the_rules_read(file: Quotas, told: list[Change], file_wins: bool) -> None:
    quotas = merged(file, told, file_wins=file_wins, wall_ms=NOW_MS)

    def said(of: Setting, user: str | None) -> int | Mode | None:
        return said_plainly(file, told, file_wins, of, user)

    for user in (*USERS, "somebody"):
        found = resolve(quotas, user)
        rate = said(RATE, user)
        assert found.rate_milli == (said(RATE, None) if rate is None else rate)
        assert found.mode == (said(MODE, None) or said(MODE, user) or file.mode)
        assert found.exempt == file.users.get(user, UserQuota()).exempt
        assert value_in_force(quotas, RATE, user) == rate
    assert {change.target for change in told if has_ended(change, NOW_MS)} <= {
        change.target for change in told if change.target.temporary
    }
    assert not is_set_in_file(file, MODE, None)


@pytest.mark.parametrize(
    ("target", "action", "value", "until_wall_ms", "problem"),
    [
        (Target(RATE, "alice"), Action.SET, None, None, "does not go with"),
        (Target(RATE, "alice"), Action.RESET, 1_000, None, "does not go with"),
        (Target(MODE, "alice"), Action.SET, 1_000, None, "does not go with"),
        (Target(RATE, "alice", temporary=True), Action.SET, 1_000, None, "has an end"),
        (Target(RATE, "alice"), Action.SET, 1_000, NOW_MS, "has an end"),
        (Target(RATE, "alice"), Action.SET, -1, None, "negative"),
    ],
)
def test_an_impossible_change_is_refused(
    target: Target, action: Action, value: int | None, until_wall_ms: int | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Change(target=target, action=action, value=value, until_wall_ms=until_wall_ms)


def test_rates_are_listed_in_the_order_of_their_settings() -> None:
    assert rates_of(UserQuota(1_000, transactional_ids_rate_milli=2_000)) == (1_000, 2_000, None)
