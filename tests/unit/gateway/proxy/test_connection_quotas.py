"""Who may connect: in all, of a user, of an address; who comes too fast waits and is not closed."""

from collections import deque
from collections.abc import Callable

import pytest

from pidgate.gateway.metrics.counters import Counters
from pidgate.gateway.proxy import connection_quotas
from pidgate.gateway.proxy.connection_quotas import (
    BURST_MS,
    LEAST_STRANGERS,
    LONGEST_DELAY_MS,
    STRANGERS,
    UNDISTURBED_MS,
    ConnectionLimits,
    ConnectionQuotas,
    Pace,
    network_of,
)
from tests.support.rules import rule


def quotas_of(
    *,
    total: int = 100,
    per_s: int = 100,
    per_user: int | None = 10,
    per_user_per_s: int = 1,
    per_address: int | None = None,
) -> ConnectionQuotas:
    return ConnectionQuotas(ConnectionLimits(total, per_s, per_user, per_user_per_s, per_address), Counters())


def nothing(_key: object = None) -> None:
    pass


def opened(quotas: ConnectionQuotas, *keys: object, address: str = "a", now_ms: int = 0) -> list[bool]:
    for key in keys:
        quotas.opened(key, nothing, now_ms)
    return [quotas.addressed(key, address) for key in keys]


def test_a_pace_lets_its_burst_pass_and_then_its_rate() -> None:
    pace = Pace(10, 1_000)
    assert [pace.count(0) for _ in range(10)] == [0] * 10
    assert [pace.count(0) for _ in range(3)] == [100, 200, 300]
    assert pace.delay_ms(300) == 0
    assert pace.ahead(1_299)
    assert not pace.ahead(1_300)


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
    quotas.closed(5)
    after = [quotas.logged_in(key, "alice", 0) is not None for key in (12, 13)]
    return (outcomes, again, others, after) == ([True] * 10 + [False], True, True, [True, False])


@rule("A user has a bounded number of connections.", "connections")
def test_a_user_has_so_many_connections_and_no_more() -> None:
    assert no_user_has_more_than_he_may(quotas_of())


@rule("A user has a bounded number of connections.", "connections")
@pytest.mark.parametrize(("per_user", "left"), [(None, 13), (50, 0)])
def test_a_user_leaves_as_many_connections_as_it_has(per_user: int | None, left: int) -> None:
    """Three users take what they get. A fixed half, as before, leaves nothing after the second."""
    quotas = quotas_of(total=100, per_user=per_user)
    key, has = 0, []
    for user in ("alice", "bob", "carol"):
        for _ in range(60):
            if len(quotas._open) == 100:
                break
            quotas.opened(key, nothing, 0)
            if quotas.logged_in(key, user, 0) is None:
                quotas.closed(key)
            key += 1
        has.append(quotas._users[user].open if user in quotas._users else 0)
    assert 100 - sum(has) == left


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
        quotas.closed(key)
    quotas.sweep(50_000)
    opened(quotas, "again")
    assert quotas.logged_in("again", "alice", 50_000) != 0, "a crash loop is remembered between its lives"
    quotas.closed("again")
    quotas.sweep(200_000)
    assert quotas._users == {}


@rule("Where all connections are taken, the oldest without a login gives way.", "connections")
def test_where_all_are_taken_the_oldest_without_a_claim_gives_way() -> None:
    quotas, gone = quotas_of(total=3), list[str]()

    for key in ("first", "second", "third"):
        quotas.opened(key, gone.append, 0)
    quotas.keeps_its_place("first", "alice")
    assert quotas.pause_ms(UNDISTURBED_MS - 1) > 0
    assert gone == []
    assert quotas.pause_ms(UNDISTURBED_MS) > 0
    assert gone == ["second"]
    quotas.closed("second")
    assert quotas.pause_ms(UNDISTURBED_MS) == 0


def crowd(quotas: ConnectionQuotas, count: int, address: str, gone: list[str], now_ms: int = 0) -> None:
    """Open connections of strangers."""

    def give_way(key: str) -> None:
        gone.append(key)
        quotas.closed(key)

    for number in range(count):
        key = f"{address}/{number}"
        quotas.opened(key, give_way, now_ms)
        quotas.addressed(key, address)


@rule("Strangers hold a sixteenth of the connections, in turn by address.", "connections")
@pytest.mark.parametrize("has_share", [True, False])
def test_strangers_hold_their_share_of_connections(has_share: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """600 of them come, where there is room for 1,600 connections."""
    if not has_share:
        monkeypatch.setattr(connection_quotas, "STRANGERS", 1)
    quotas, gone, most = quotas_of(total=1_600, per_s=10_000), list[str](), 0
    for number in range(600):
        now_ms = 10 * number
        if not quotas.pause_ms(now_ms):
            crowd(quotas, 1, f"10.0.{number}.1", gone, now_ms)
        most = max(most, len(quotas._open))
    assert most == (1_600 // STRANGERS if has_share else 600)
    assert bool(gone) is has_share


def test_the_network_with_the_most_strangers_gives_its_oldest_up() -> None:
    quotas, gone = quotas_of(total=160, per_s=10_000), list[str]()
    crowd(quotas, 4, "10.0.0.1", gone)
    crowd(quotas, LEAST_STRANGERS, "10.0.0.66", gone)
    while quotas.pause_ms(UNDISTURBED_MS) and len(gone) < 5:
        pass
    assert gone[:5] == [f"10.0.0.66/{number}" for number in range(5)]


def test_a_host_of_ipv6_has_one_turn() -> None:
    one, other = "2001:db8::1", "2001:db8::ffff:2"
    assert network_of(one) == network_of(other) != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2")
    assert [network_of(odd) for odd in (None, "", "10.0.0.1", "fe80::1%eth0", "a:b")] == [
        "", "", "10.0.0.1", network_of("fe80::2"), "a:b",
    ]  # fmt: skip


SILENT, FLOODING, FLEET = 600, 100, 5_000
Arrival = tuple[str, int]


@rule("Strangers hold a sixteenth of the connections, in turn by address.", "connections")
@pytest.mark.parametrize(("login_ms", "spares"), [(50, True), (3_000, True), (3_000, False)])
def test_a_fleet_comes_back_beside_strangers_that_come_again(login_ms: int, spares: bool) -> None:
    """All arrive at once, from one address, in one queue; a stranger that is closed comes again.

    `spares`: a connection does not give way to others while its broker has to act.
    """
    quotas = quotas_of(total=20_000, per_s=1_000, per_user=None, per_user_per_s=200)
    kinds = ("silent", SILENT), ("flood", FLOODING), ("fleet", FLEET)
    queue = deque[Arrival]((kind, number) for kind, count in kinds for number in range(count))
    logins, users, now_ms, closed = deque[tuple[int, Arrival]](), 0, 0, 0

    def give_way(key: Arrival) -> None:
        nonlocal closed
        quotas.closed(key)
        closed += key[0] == "fleet"
        queue.append(key)

    while users < FLEET and now_ms < 60_000:
        while queue and not quotas.pause_ms(now_ms):
            key = queue.popleft()
            quotas.opened(key, give_way, now_ms, lambda key: spares and key[0] == "fleet")
            quotas.addressed(key, "10.0.0.1")
            if key[0] == "fleet":
                logins.append((now_ms + login_ms, key))
        while logins and logins[0][0] <= now_ms:
            _, key = logins.popleft()
            if quotas.logged_in(key, f"user-{key[1] % 100}", now_ms) is not None:
                users += quotas.keeps_its_place(key, None)
        now_ms += 100
    assert (users >= FLEET and not closed) is spares, (now_ms, users, closed)
    assert quotas._strangers_count <= 20_000 // STRANGERS


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
    quotas.closed("a")
    assert quotas.pause_ms(0) == 0


def test_addresses_are_bounded_only_where_that_is_written() -> None:
    assert all(opened(quotas_of(), *range(50)))
    bounded = quotas_of(per_address=2)
    assert opened(bounded, 1, 2, 3) == [True, True, False]
    assert opened(bounded, 4, address="b") == [True]
    bounded.closed(3)
    bounded.closed(1)
    assert opened(bounded, 5) == [True]
    for key in (2, 5, 4):
        bounded.closed(key)
    assert not bounded._addresses


def limited(quotas: ConnectionQuotas) -> dict[str, int]:
    return dict(+quotas._counters.connections_limited)


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
        +quotas._counters.connections_delayed == {"user": sum(delay != 0 for delay in delays)} == {"user": 3}
    )


@pytest.mark.parametrize("total", [64, 95])
def test_at_the_total_one_in_32_gives_way_and_accepting_pauses_for_a_tenth_of_a_second(
    total: int,
) -> None:
    quotas = quotas_of(total=total, per_s=1_000)
    opened(quotas, *range(total))
    assert quotas.pause_ms(UNDISTURBED_MS) == 100
    assert limited(quotas) == {"silent": 2}
    busy = bounded(1)
    busy.handshake_begins("a", nothing, 0)
    assert busy.pause_ms(0) == 100
