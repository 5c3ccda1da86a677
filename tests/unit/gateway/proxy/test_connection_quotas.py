"""Who may connect: in all, of a user, of an address; who comes too fast waits and is not closed."""

from collections.abc import Callable

import pytest

from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy.connection_quotas import (
    BURST_MS,
    LONGEST_DELAY_MS,
    UNDISTURBED_MS,
    ConnectionLimits,
    ConnectionQuotas,
    Pace,
)
from tests.support.rules import rule


def quotas_of(
    *,
    total: int = 100,
    per_s: int = 100,
    per_user: int = 10,
    per_user_per_s: int = 1,
    per_address: int | None = None,
) -> ConnectionQuotas:
    return ConnectionQuotas(ConnectionLimits(total, per_s, per_user, per_user_per_s, per_address), Counters())


def nothing() -> None:
    pass


def opened(quotas: ConnectionQuotas, *keys: object, address: str = "a", now_ms: int = 0) -> list[bool]:
    for key in keys:
        quotas.opened(key, nothing, now_ms)
    return [quotas.addressed(address) for _ in keys]


def test_a_pace_lets_its_burst_pass_and_then_its_rate() -> None:
    pace = Pace(10, 1_000)
    assert [pace.count(0) for _ in range(10)] == [0] * 10
    assert [pace.count(0) for _ in range(3)] == [100, 200, 300]
    assert pace.delay_ms(300) == 0
    assert not pace.is_over(1_299)
    assert pace.is_over(1_300)


def everybody_of_a_fleet_gets_in(quotas: ConnectionQuotas, size: int) -> bool:
    """The rule: accepting pauses, and nobody is closed. A pause may come late, when a whole queue was accepted."""
    now_ms, accepted, times = 0, 0, list[int]()
    while accepted < size and now_ms < 600_000:
        for _ in range(min(50, size - accepted)):
            accepted += 1
            assert opened(quotas, accepted, now_ms=now_ms) == [True]
            times.append(now_ms)
        now_ms += max(1, quotas.pause_ms(now_ms))
    most_in_a_second = max(sum(at <= time < at + 1_000 for time in times) for at in times[:: size // 20])
    return accepted == size and most_in_a_second <= 100 * (BURST_MS // 1_000 + 1) + 50


@rule("Connection rates delay a client and close none.", "connections")
def test_a_fleet_that_comes_back_gets_in_and_not_at_once() -> None:
    assert everybody_of_a_fleet_gets_in(quotas_of(total=100_000), 2_000)


def no_user_has_more_than_he_may(quotas: ConnectionQuotas) -> bool:
    """The rule: connections of a user are counted while they are open, whatever becomes of them."""
    opened(quotas, *range(20))
    outcomes = [quotas.logged_in(key, "alice", 0) is not None for key in range(11)]
    again = quotas.logged_in(3, "alice", 0) is not None  # logs in anew
    others = quotas.logged_in(11, "bob", 0) == 0
    quotas.closed(5, "a")
    after = [quotas.logged_in(key, "alice", 0) is not None for key in (12, 13)]
    return (outcomes, again, others, after) == ([True] * 10 + [False], True, True, [True, False])


@rule("A user has a bounded number of connections.", "connections")
def test_a_user_has_so_many_connections_and_no_more() -> None:
    assert no_user_has_more_than_he_may(quotas_of())


@rule("Connection rates delay a client and close none.", "connections")
def test_a_user_whose_connections_come_too_fast_waits_for_a_while() -> None:
    quotas = quotas_of(per_user=1_000)
    opened(quotas, *range(100))
    delays = [quotas.logged_in(key, "alice", 0) for key in range(100)]
    assert delays[:10] == [0] * 10
    assert delays[10:13] == [1_000, 2_000, 3_000]
    assert delays[-1] == LONGEST_DELAY_MS
    assert quotas.logged_in(1_000, "alice", 0) == 0  # it is gone already
    for key in range(100):
        quotas.closed(key, "a")
    quotas.sweep(50_000)
    opened(quotas, "again")
    assert quotas.logged_in("again", "alice", 50_000) != 0, "a crash loop is remembered between its lives"
    quotas.closed("again", "a")
    quotas.sweep(200_000)
    assert quotas._users == {}


@rule("Where all connections are taken, the oldest without a login gives way.", "connections")
def test_where_all_are_taken_the_oldest_without_a_claim_gives_way() -> None:
    quotas, gone = quotas_of(total=3), list[str]()

    def give_way(key: str) -> Callable[[], None]:
        return lambda: gone.append(key)

    for key in ("first", "second", "third"):
        quotas.opened(key, give_way(key), 0)
    quotas.keeps_its_place("first")
    assert quotas.pause_ms(UNDISTURBED_MS - 1) > 0
    assert gone == []
    assert quotas.pause_ms(UNDISTURBED_MS) > 0
    assert gone == ["second"]
    quotas.closed("second", "a")
    assert quotas.pause_ms(UNDISTURBED_MS) == 0


def handshakes_are_bounded_and_never_lock_anybody_out(quotas: ConnectionQuotas) -> bool:
    """The rule: while all are under way nobody is accepted, and those that take long make room."""
    gone = list[str]()

    def give_way(key: str) -> Callable[[], None]:
        return lambda: gone.append(key)

    for key, now_ms in (("silent", 0), ("slow", 500), ("late", 900)):
        quotas.opened(key, nothing, now_ms)
        quotas.handshake_begins(key, give_way(key), now_ms)
    waits = quotas.pause_ms(900) > 0 and gone == []
    makes_room = quotas.pause_ms(500 + UNDISTURBED_MS) > 0 and gone == ["silent", "slow"]
    goes_on = quotas.pause_ms(500 + UNDISTURBED_MS) == 0
    quotas.handshake_over("late")
    return waits and makes_room and goes_on and not quotas._shaking


def bounded(handshakes: int) -> ConnectionQuotas:
    return ConnectionQuotas(ConnectionLimits(100, 100, 10, 1, handshakes=handshakes), Counters())


@rule("Connections count from their acceptance; TLS handshakes in progress are bounded.", "connections")
def test_handshakes_are_bounded_and_the_longest_give_way() -> None:
    assert handshakes_are_bounded_and_never_lock_anybody_out(bounded(3))


def test_a_connection_that_is_lost_in_its_handshake_is_forgotten() -> None:
    quotas = bounded(1)
    quotas.opened("a", nothing, 0)
    quotas.handshake_begins("a", nothing, 0)
    quotas.closed("a", "here")
    assert quotas.pause_ms(0) == 0


def test_addresses_are_bounded_only_where_that_is_written() -> None:
    assert all(opened(quotas_of(), *range(50)))
    bounded = quotas_of(per_address=2)
    assert opened(bounded, 1, 2, 3) == [True, True, False]
    assert opened(bounded, 4, address="b") == [True]
    bounded.closed(3, "a")
    bounded.closed(1, "a")
    assert opened(bounded, 5) == [True]
    for key, address in ((2, "a"), (5, "a"), (4, "b")):
        bounded.closed(key, address)
    assert not bounded._addresses


def limited(quotas: ConnectionQuotas) -> dict[str, int]:
    return dict(quotas._counters.connections_limited)


def test_every_connection_closed_above_a_limit_is_counted_by_the_limit() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(4, 100, 1, 1, per_address=2, handshakes=1), Counters())
    assert opened(quotas, 1, 2, 3, 4) == [True, True, False, False]
    assert [quotas.logged_in(key, "alice", 0) for key in (1, 2, 3)] == [0, None, None]
    assert limited(quotas) == {"address": 2, "user": 2}
    quotas.handshake_begins(4, nothing, 0)
    quotas.pause_ms(UNDISTURBED_MS)
    assert limited(quotas) == {"address": 2, "user": 2, "silent": 1, "handshake": 1}


def test_every_connection_delayed_after_its_login_is_counted() -> None:
    quotas = quotas_of(per_user=100)
    opened(quotas, *range(13))
    delays = [quotas.logged_in(key, "alice", 0) for key in range(13)]
    assert (
        quotas._counters.connections_delayed == {"user": sum(delay != 0 for delay in delays)} == {"user": 3}
    )


@pytest.mark.parametrize("total", [200, 299])
def test_at_the_total_one_in_a_hundred_gives_way_and_accepting_pauses_for_a_tenth_of_a_second(
    total: int,
) -> None:
    quotas = quotas_of(total=total, per_s=1_000)
    opened(quotas, *range(total))
    assert quotas.pause_ms(UNDISTURBED_MS) == 100
    assert limited(quotas) == {"silent": 2}
    busy = bounded(1)
    busy.handshake_begins("a", nothing, 0)
    assert busy.pause_ms(0) == 100
