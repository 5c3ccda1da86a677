"""Metrics are of the gateway: sums over workers that report, and over those that are gone. No total ever falls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.gateway.metrics import reports as reports_module
from pidgate.gateway.metrics.counters import NAMES, Counters
from pidgate.gateway.metrics.reports import LEVELS, ByteState, Report, Reports, UserReports, report_of
from pidgate.gateway.process.wire import Decoder, Kind, encoded
from pidgate.quota.admission import Admission
from pidgate.quota.byte_bucket import ByteSnapshot
from pidgate.quota.byte_rates import Kind as ByteKind
from pidgate.quota.counters import COUNTERS_KEPT_MS, UserCounters, UserSnapshot
from pidgate.quota.entities import resolve
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, ProducerIdSettings, Quotas, UserQuota
from pidgate.quota.verdicts import Session

QUOTAS = Quotas(Mode.ENFORCE, ProducerIdSettings(), default=UserQuota.per_window(2))


def carried(report: Report) -> Report:
    """As it comes out of the socket."""
    (message,) = Decoder().feed(encoded(Kind.REPORT, report))
    assert isinstance(message.body, Report)
    return message.body


def told(admission: Admission | None = None, *, is_reached: bool = True, **counted: Any) -> Report:
    counters = Counters()
    for name, value in counted.items():
        setattr(counters, name, value)
    users = [] if admission is None else admission.user_snapshots(1_000)
    return carried(report_of(counters, users, is_reached=is_reached, failure="nobody answers"))


def worked(*producer_ids: int) -> Admission:
    admission = Admission(QUOTAS, lambda: 1, 0)
    for producer_id in producer_ids:
        session = Session("alice", "app", "10.0.0.1", producer_id)
        admission.judge(session, [(producer_id, 0, 0, b"t", 0)], transactional=False, now_ms=1_000)
    return admission


def alice(reports: Reports) -> UserSnapshot:
    state = ProducerIdQuota(QUOTAS, lambda: 1, 0)

    def of_state(user: str) -> UserSnapshot:
        counters, status = UserCounters(gave_up=3), state.status(user, 1_000)
        return counters.snapshot(user, resolve(QUOTAS, user), status, 0, 1_000)

    (found,) = reports.users(of_state, [])
    return found


def test_every_counter_is_summed() -> None:
    """All of them, by name: one that is added later and forgotten here is found."""
    reports = Reports()
    for process, times in ((11, 1), (12, 2)):
        counters = Counters()
        for name in NAMES:
            if isinstance(getattr(counters, name), list):
                getattr(counters, name)[3] = times
            elif isinstance(getattr(counters, name), dict):
                getattr(counters, name).update({"why": times})
            else:
                setattr(counters, name, times)
        reports.take(process, carried(report_of(counters, [], is_reached=True, failure="")), 0)
    for name in NAMES:
        value = getattr(reports.counters, name)
        if isinstance(value, list):
            fresh = getattr(Counters(), name)
            assert value == [3 if at == 3 else 0 for at in range(len(fresh))], name
        else:
            assert (value["why"] if isinstance(value, dict) else value) == 3, name


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.booleans()), max_size=30))
def test_totals_never_fall_whoever_dies_and_levels_end_with_their_process(
    steps: list[tuple[int, int, bool]],
) -> None:
    reports, counted, before = Reports(), dict.fromkeys((1, 2, 3), 0), 0
    process_of = {1: 1, 2: 2, 3: 3}
    expected = 0
    for worker, more, dies in steps:
        counted[worker] += more
        expected += more
        reports.take(process_of[worker], told(connections_total=counted[worker], connections_open=1), 0)
        assert reports.counters.connections_total == expected
        if dies:
            reports.retire(process_of[worker])
            process_of[worker] += 10
            counted[worker] = 0
        assert reports.counters.connections_total >= before
        before = reports.counters.connections_total
        assert reports.counters.connections_open <= len(process_of)
    for process in process_of.values():
        reports.retire(process)
    assert reports.counters.connections_total == expected
    assert [getattr(reports.counters, level) for level in LEVELS] == [0] * len(LEVELS)


def test_a_user_is_the_sum_of_what_its_workers_counted_and_what_the_state_knows() -> None:
    reports = Reports()
    reports.take(11, told(worked(1, 2, 3, 4)), 0)  # three pass, one is refused
    reports.take(12, told(worked(5)), 0)
    user = alice(reports)
    assert (sum(user.admitted.values()), sum(user.refused.values())) == (4, 1)
    assert user.outcomes["gave_up"] == 3
    assert user.sticky_entries == 1
    reports.retire(11)
    user = alice(reports)
    assert (sum(user.admitted.values()), sum(user.refused.values())) == (4, 1)
    assert user.sticky_entries == 0, "the table of a process ends with it"


def test_of_many_users_the_longest_silent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_module, "MOST_REPORTED_USERS", 3)
    reports = UserReports()
    (seen,) = worked(1).user_snapshots(1_000)
    for number in range(10):
        reports.take(
            11 + number % 2, [replace(seen, user=name) for name in ("alice", f"user-{number}")], number
        )
    assert list(reports) == ["user-8", "alice", "user-9"]
    assert sum(map(len, reports._tables())) == 4, "alice in both"
    assert sum(reports.added_to(seen).admitted.values()) == 3
    reports.retire(11)
    reports.take(12, [], 9 + COUNTERS_KEPT_MS)
    assert not list(reports)
    assert not any(reports._tables())


def test_what_the_state_owner_itself_let_pass_stays_in_the_sum() -> None:
    reports = Reports()
    reports.take(11, told(quota_failed_open=2), 0)
    reports.failed_open(3)
    assert reports.counters.quota_failed_open == 5
    reports.take(11, told(quota_failed_open=2), 0)
    assert reports.counters.quota_failed_open == 5, "the next report takes nothing back"


def test_the_gateway_is_reached_when_one_worker_has_reached_the_cluster() -> None:
    reports = Reports()
    assert not reports.is_reached
    assert reports.failure == "no worker process is connected yet"
    reports.take(11, told(is_reached=False), 0)
    assert not reports.is_reached
    assert reports.failure == "nobody answers"
    reports.take(12, told(is_reached=True), 0)
    assert reports.is_reached


def a_worker_that_comes_again_is_counted_once(reports: Reports) -> bool:
    """The rule: totals are a process's, however often its connection ends; another of its number adds its own."""
    byte_state = ByteState([ByteSnapshot("alice", None, ByteKind.PRODUCE, 1_000, 0.0, 3, 0, 0.0, 100)], 2, 1)
    counters = Counters()
    counters.connections_total, counters.connections_open = 7, 4
    report = report_of(
        counters, list(worked(1, 2).user_snapshots(1_000)), byte_state, is_reached=True, failure=""
    )
    for _ in range(3):
        reports.take(11, report, 0)
        reports.retire(11)
        reports.take(12, report, 0)
        reports.retire(12)
    quotas = ByteQuotas(rates={("alice", None): ByteRates(1_000)})
    (row,) = reports.bytes.state(quotas, 0).rows
    return (
        reports.counters.connections_total == 14
        and reports.counters.connections_open == 0
        and sum(alice(reports).admitted.values()) == 4
        and row.total_bytes == 200
        and reports.bytes.state(quotas, 0).no_room == 4
    )


def test_a_worker_that_comes_again_is_counted_once() -> None:
    assert a_worker_that_comes_again_is_counted_once(Reports())


def test_a_mutant_that_settles_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_module, "MOST_ENDED", 0)
    assert not a_worker_that_comes_again_is_counted_once(Reports())


def test_of_ended_workers_only_the_last_are_kept_apart() -> None:
    reports = Reports()
    for process in range(100):
        reports.take(process, told(worked(1), connections_total=1), 0)
        reports.retire(process)
    assert reports.counters.connections_total == 100
    assert sum(alice(reports).admitted.values()) == 100
    assert len(reports._users._tables()) == reports_module.MOST_ENDED + 1
