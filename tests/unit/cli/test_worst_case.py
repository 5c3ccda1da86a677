"""What quotas allow at most on the brokers, against numbers that were computed by hand."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.cli.worst_case import (
    Assumptions,
    Unbounded,
    WorstCase,
    as_json,
    ceiling_that_fits,
    ids_at_most,
    in_words,
    worst_case,
)
from pidgate.cli.worst_case import heap_warnings as warnings
from pidgate.gateway.config.loading import parse
from pidgate.quota.settings import ProducerIdSettings
from pidgate.quota.token_bucket import TokenBucket
from tests.support.command_line import typed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLUSTER = "cluster: {bootstrap_servers: [127.0.0.1:19092]}\n"


def of(quotas: str, *, grace: bool = False, **assumed: Any) -> WorstCase:
    settings = parse(CLUSTER + f"quotas: {{{quotas}}}")
    return worst_case(settings.to_quotas(), Assumptions(**assumed), cold_start_grace=grace)


def words(quotas: str, **assumed: Any) -> list[str]:
    ids = parse(CLUSTER + f"quotas: {{{quotas}}}").to_quotas().producer_ids
    return list(in_words(of(quotas, **assumed), ids, shares_quota=True))


@pytest.mark.parametrize(
    ("rate_milli", "window_ms", "burst", "expiry_ms", "ids"),
    [
        # 1 x 100 + 100 x 24 + 1
        (100_000, HOUR_MS, Fraction(1), DAY_MS, 2_501),
        # 3 x 100 + 100 x 24 + 1
        (100_000, HOUR_MS, Fraction(3), DAY_MS, 2_701),
        # a tenth of a window: 10 + 100 x 24 x 6 (10 minutes) + 1
        (100_000, HOUR_MS // 6, Fraction(1, 10), DAY_MS, 14_411),
        # 2.5 + 2.5 x 24 = 62.5: 62 whole ones and one more
        (2_500, HOUR_MS, Fraction(1), DAY_MS, 63),
        # half an id per window of a day: 0.5 + 0.5 = 1, and one more
        (500, DAY_MS, Fraction(1), DAY_MS, 2),
        (0, HOUR_MS, Fraction(1), DAY_MS, 0),
    ],
)
def test_ids_of_one_user(rate_milli: int, window_ms: int, burst: Fraction, expiry_ms: int, ids: int) -> None:
    assert ids_at_most(rate_milli, ProducerIdSettings(window_ms, burst), expiry_ms) == ids


@given(
    st.integers(1, 50_000),
    st.integers(100, 5_000),
    st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(7, 3), Fraction(5)]),
    st.integers(1, 20_000),
)
def test_a_real_bucket_lets_in_exactly_that_many(
    rate_milli: int, window_ms: int, burst: Fraction, expiry_ms: int
) -> None:
    """Full at the beginning, and asked for one more id at every moment at which it can have one."""
    bucket, now_ms, admitted = TokenBucket(rate_milli, window_ms, burst, 0), 0, 0
    while now_ms <= expiry_ms and admitted <= 3_000:
        bucket.charge(now_ms)
        admitted += 1
        now_ms += bucket.wait_ms(0, now_ms)
    most = ids_at_most(rate_milli, ProducerIdSettings(window_ms, burst, remember_ms=100), expiry_ms)

    # The bucket keeps whole units, the formula fractions: at the very edge they may be one id apart.
    assert admitted > 3_000 or most - 1 <= admitted <= most


def test_states_and_heap_of_one_user() -> None:
    # 2,501 ids x 200 partitions x 3 replicas = 1,500,600 states; a third on each of 3 brokers: 500,200 x 250 bytes.
    worst = of(
        "mode: enforce, users: {alice: {producer_ids_rate: 100}}", partitions_per_id=200, unnamed_users=0
    )

    assert (worst.ids, worst.states, worst.states_per_broker) == (2_501, 1_500_600, 500_200)
    assert worst.heap_bytes == 125_050_000


def test_replicas_are_no_more_than_brokers_and_shares_are_rounded_up() -> None:
    # 2,501 x 1 x 1 on one broker; 2,501 x 1 x 2 over 4 brokers = 1,250.5
    quotas = "mode: enforce, users: {alice: {producer_ids_rate: 100}}"
    one = of(quotas, partitions_per_id=1, brokers=1, unnamed_users=0)
    four = of(quotas, partitions_per_id=1, brokers=4, replication_factor=2, unnamed_users=0)

    assert (one.states, one.states_per_broker) == (2_501, 2_501)
    assert (four.states, four.states_per_broker) == (5_002, 1_251)


def test_users_that_are_not_named_count_as_often_as_they_are_expected() -> None:
    # alice 2,501; 20 others 1 x 1,000 + 1,000 x 24 + 1 = 25,001 each
    quotas = (
        "mode: enforce, default: {producer_ids_rate: 1000}, users: {alice: {producer_ids_rate: 100}, "
        "mallory: {producer_ids_rate: 0}}"
    )
    assert of(quotas, unnamed_users=20).ids == 2_501 + 20 * 25_001
    assert of(quotas).ids == 2_501 + 25_001
    assert of(quotas, unnamed_users=0).ids == 2_501


def test_those_without_a_readable_name_are_shown_as_everywhere() -> None:
    quotas = "mode: enforce, unidentified: {OAUTHBEARER: {producer_ids_rate: 100}}"

    assert "  (unidentified OAUTHBEARER): 1 x 100 + 100 x 24h / 1h + 1 = 2,501 ids" in words(quotas)
    assert not any("\0" in line for line in words(quotas))


def test_the_ceiling_holds_over_all_users() -> None:
    # 1 x 500 + 500 x 24 + 1 = 12,501 of what would be 10 x 25,001
    quotas = "mode: enforce, cluster_producer_ids_rate: 500, default: {producer_ids_rate: 1000}"
    worst = of(quotas, unnamed_users=10)

    assert (worst.ids_of_users, worst.ids_at_ceiling, worst.ids) == (250_010, 12_501, 12_501)
    assert of(quotas.replace("500", "50000"), unnamed_users=10).ids == 250_010


def test_the_ceiling_bounds_those_without_a_rate() -> None:
    worst = of("mode: enforce, cluster_producer_ids_rate: 500")

    assert (worst.ids_of_users, worst.ids, worst.unbounded) == (None, 12_501, [])


def test_nothing_bounds_those_who_are_observed_exempt_or_unlimited() -> None:
    worst = of(
        "mode: enforce, cluster_producer_ids_rate: 500, users: {a: {mode: observe, producer_ids_rate: 5}, "
        "b: {exempt: [producer_ids], producer_ids_rate: 5}}",
        unnamed_users=0,
    )
    alone = of("mode: enforce, users: {c: {}}", unnamed_users=0)

    assert [share.unbounded for share in worst.shares] == [Unbounded.OBSERVED, Unbounded.EXEMPT]
    assert worst.ids == 0
    assert [share.unbounded for share in alone.shares] == [Unbounded.NO_LIMIT]


def test_the_grace_of_a_cold_start_comes_on_top() -> None:
    quotas = "mode: enforce, default: {producer_ids_rate: 2.25}, users: {a: {producer_ids_rate: 0}}"
    # 10 x 2.25 = 22.5: the 23rd is let in while less than that is used up
    assert of(quotas, grace=True).grace_ids == 23
    assert of(quotas).grace_ids == 0
    assert of("mode: enforce, cluster_producer_ids_rate: 5", grace=True).grace_ids is None


def test_a_heap_that_is_too_small_is_warned_of_with_a_ceiling_that_fits() -> None:
    # 25,001 ids x 50 x 3 / 3 x 250 bytes = 312,512,500
    quotas = "mode: enforce, default: {producer_ids_rate: 1000}"
    small, large = of(quotas, heap_bytes=312_512_499), of(quotas, heap_bytes=312_512_500)
    ids = ProducerIdSettings()

    assert (small.heap_bytes, small.exceeds_heap, large.exceeds_heap) == (312_512_500, True, False)
    [told] = warnings(small, ids)
    assert "312.5 MB of producer states exceed the heap given" in told
    fits = ceiling_that_fits(small, ids)
    # (25,000 - 1) / 25 = 999.96
    assert fits == 999
    assert f"cluster_producer_ids_rate: {fits}" in told
    assert not of(quotas + f", cluster_producer_ids_rate: {fits}", heap_bytes=312_512_499).exceeds_heap
    assert list(warnings(large, ids)) == []
    assert list(warnings(of(quotas), ids)) == []


def test_no_heap_is_enough_for_whom_nothing_bounds() -> None:
    worst = of("mode: observe, default: {producer_ids_rate: 10}", heap_bytes=10**12)

    assert ["nothing bounds" in told for told in warnings(worst, ProducerIdSettings())] == [True]


def test_the_arithmetic_is_shown() -> None:
    lines = words(
        "mode: enforce, cluster_producer_ids_rate: 20000, default: {producer_ids_rate: 1000}, users: {"
        "alice: {producer_ids_rate: 100}, bob: {mode: observe}, mallory: {producer_ids_rate: 0}}",
        unnamed_users=3,
    )

    for line in (
        "Worst case on the brokers, within their producer.id.expiration.ms (24h):",
        "  users not named (3 assumed): 1 x 1,000 + 1,000 x 24h / 1h + 1 = 25,001 ids each, 75,003 ids",
        "  alice: 1 x 100 + 100 x 24h / 1h + 1 = 2,501 ids",
        "  mallory: blocked: 0 ids",
        "  Nothing bounds the ids of: bob (observed, not enforced).",
        "  These users together: 77,504 ids",
        "  cluster_producer_ids_rate, over all who are enforced: 500,001 ids at most",
        "  77,504 ids x 50 partitions x 3 replicas = 11,625,600 states; / 3 brokers = 3,875,200 on each",
        "  3,875,200 states x 250 bytes = 968.8 MB of heap on each broker",
        "  Assumed: --partitions-per-id 50, --replication-factor 3, --brokers 3, --expiry 24h, "
        "--bytes-per-state 250, --users 3",
    ):
        assert line in lines


def test_where_nothing_is_refused_no_number_is_made_up() -> None:
    lines = words("mode: observe, default: {producer_ids_rate: 1000}")

    assert lines[-1] == "  No number can be given: nothing is refused to anybody who brings producer ids."
    assert not any("of heap" in line for line in lines)


def test_many_users_are_summed_up() -> None:
    users = ", ".join(f"u{number:02}: {{producer_ids_rate: {100 + number}}}" for number in range(15))
    lines = words(f"mode: enforce, users: {{{users}}}", unnamed_users=0)

    # The five smallest: 100 to 104, 25 x rate + 1 each.
    assert f"  5 users more: {sum(25 * rate + 1 for rate in range(100, 105)):,} ids" in lines
    assert sum("24h / 1h" in line for line in lines) == 10


def test_the_same_for_programs() -> None:
    told = as_json(of("mode: enforce, users: {alice: {producer_ids_rate: 100}}", heap_bytes=1))

    assert told["ids"] == 2_501
    assert told["exceeds_heap"] is True
    assert told["users"] == [
        {"who": "alice", "users": 1, "rate_milli": 100_000, "ids_each": 2_501, "unbounded": None},
        {"who": "users not named", "users": 1, "rate_milli": None, "ids_each": None, "unbounded": "no limit"},
    ]


# ---- the command ---------------------------------------------------------------------------------------


def check(folder: Path, quotas: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "pidgate.yaml"
    file.write_text(CLUSTER + quotas)
    return typed("check", "--config", file, *options)


def test_the_command_takes_assumptions_and_warns(tmp_path: Path) -> None:
    quotas = "quotas: {mode: enforce, users: {alice: {producer_ids_rate: 100}}}\n"
    options = ["--partitions-per-id", "200", "--brokers", "6", "--expiry", "48h", "--users", "0", "--heap"]
    # 100 + 100 x 48 + 1 = 4,901 ids x 200 x 3 / 6 = 490,100 states of 250 bytes
    done = check(tmp_path, quotas, *options, "100MB")

    assert (done.returncode, done.stderr) == (0, "")
    assert "  490,100 states x 250 bytes = 122.5 MB of heap on each broker" in done.stdout.splitlines()
    assert "warning: 122.5 MB of producer states exceed the heap given (100MB)" in done.stdout
    assert "warning" not in check(tmp_path, quotas, *options, "122525000").stdout


def test_the_command_speaks_json(tmp_path: Path) -> None:
    good = check(tmp_path, "quotas: {mode: enforce, default: {producer_ids_rate: 1000}}\n", "--json")
    bad = check(tmp_path, "quotas: {mod: enforce}\n", "--json")

    told = json.loads(good.stdout)
    assert (good.returncode, told["valid"], told["warnings"]) == (0, True, [])
    assert told["worst_case"]["heap_bytes_per_broker"] == 312_512_500
    assert bad.returncode == 2
    [problem] = json.loads(bad.stdout)["problems"]
    assert problem["where"].endswith("pidgate.yaml:2")
    assert "did you mean mode?" in problem["text"]


@pytest.mark.parametrize(("option", "text"), [("--heap", "1XB"), ("--expiry", "24")])
def test_a_wrong_option_is_named(tmp_path: Path, option: str, text: str) -> None:
    done = check(tmp_path, "", option, text)

    assert done.returncode == 2
    assert done.stderr.startswith(f"{option}: ")
