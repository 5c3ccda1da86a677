"""Which of Kafka's eight levels wins, for each kind, and who then shares a bucket."""

from __future__ import annotations

from itertools import combinations

import pytest

from pidgate.names import bounded
from pidgate.quota.byte_quota import Bound, Kind, rate_of_bucket, resolve_rate, throttles_bytes
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import ByteEntity, ByteQuotas, ByteRates, Mode, Quotas, UserQuota

LEVELS: dict[int, tuple[ByteEntity, tuple[str | None, str | None]]] = {
    1: (("alice", "app"), ("alice", "app")),
    2: (("alice", ""), ("alice", "app")),
    3: (("alice", None), ("alice", None)),
    4: (("", "app"), ("alice", "app")),
    5: (("", ""), ("alice", "app")),
    6: (("", None), ("alice", None)),
    7: ((None, "app"), (None, "app")),
    8: ((None, ""), (None, "app")),
}
"""Level: what is set, and the bucket that alice's client app is then counted in."""


def quotas_of(*levels: int) -> ByteQuotas:
    return ByteQuotas(rates={LEVELS[level][0]: ByteRates(level * 100, level * 1_000) for level in levels})


@pytest.mark.parametrize("kind", Kind)
def test_the_first_level_that_is_set_wins_whatever_else_is(kind: Kind) -> None:
    factor = 100 if kind is Kind.PRODUCE else 1_000
    for count in range(1, 9):
        for levels in combinations(LEVELS, count):
            first = min(levels)
            expected = Bound(first * factor, LEVELS[first][1], first)
            assert resolve_rate(quotas_of(*levels), kind, "alice", "app") == expected


@pytest.mark.parametrize(
    ("user", "client_id", "level"),
    [
        ("alice", "other", 2),
        ("alice", "", 2),
        ("alice", None, 2),
        ("bob", "app", 4),
        ("bob", "other", 5),
        ("bob", None, 5),
        (unidentified("GSSAPI"), "app", 4),
    ],
)
def test_others_fall_to_the_level_that_is_about_them(user: str, client_id: str | None, level: int) -> None:
    bound = resolve_rate(quotas_of(*LEVELS), Kind.PRODUCE, user, client_id)

    assert bound == Bound(level * 100, (user, client_id or ""), level)


def test_a_level_that_says_nothing_of_the_kind_is_passed_over() -> None:
    quotas = ByteQuotas(
        rates={
            ("alice", "app"): ByteRates(None, 5),
            ("alice", None): ByteRates(6, 7),
            ("", None): ByteRates(8),
        }
    )

    assert resolve_rate(quotas, Kind.PRODUCE, "alice", "app") == Bound(6, ("alice", None), 3)
    assert resolve_rate(quotas, Kind.FETCH, "alice", "app") == Bound(5, ("alice", "app"), 1)
    assert resolve_rate(quotas, Kind.PRODUCE, "bob", "app") == Bound(8, ("bob", None), 6)
    assert resolve_rate(quotas, Kind.FETCH, "bob", "app") is None


def test_clients_that_nobody_named_are_told_apart_by_what_is_kept_of_their_ids() -> None:
    long = bounded("x" * 30_000)
    quotas = ByteQuotas(rates={("", ""): ByteRates(5), ("bob", long): ByteRates(6)})

    assert resolve_rate(quotas, Kind.PRODUCE, "alice", long) == Bound(5, ("alice", long), 5)
    assert resolve_rate(quotas, Kind.PRODUCE, "bob", long) == Bound(6, ("bob", long), 1)


def test_who_is_unidentified_has_what_its_mechanism_has() -> None:
    quotas = ByteQuotas(rates={(unidentified("GSSAPI"), None): ByteRates(5), ("", None): ByteRates(7)})
    for mechanism, rate, level in (("GSSAPI", 5, 3), ("OAUTHBEARER", 7, 6)):
        entity = unidentified(mechanism)
        bound = Bound(rate, (entity, None), level)
        assert resolve_rate(quotas, Kind.PRODUCE, entity, "app") == bound


@pytest.mark.parametrize("kind", Kind)
def test_a_buckets_rate_is_that_of_the_levels_that_lead_to_it(kind: Kind) -> None:
    """So that a bucket which nobody is led to any more is held to nothing, and not to somebody else's rate."""
    for count in range(1, 9):
        for levels in combinations(LEVELS, count):
            quotas = quotas_of(*levels)
            factor = 100 if kind is Kind.PRODUCE else 1_000
            for bucket, leading in (
                (("alice", "app"), {1, 2, 4, 5}),
                (("alice", None), {3, 6}),
                ((None, "app"), {7, 8}),
            ):
                expected = min(leading & set(levels), default=None)
                assert rate_of_bucket(quotas, kind, bucket) == (expected and expected * factor)


@pytest.mark.parametrize(
    ("quotas", "throttled"),
    [
        (Quotas(mode=Mode.ENFORCE), True),
        (Quotas(mode=Mode.OBSERVE), False),
        (Quotas(mode=Mode.OBSERVE, users={"alice": UserQuota(mode=Mode.ENFORCE)}), True),
        (Quotas(mode=Mode.ENFORCE, users={"alice": UserQuota(mode=Mode.OBSERVE)}), False),
        (Quotas(mode=Mode.ENFORCE, users={"alice": UserQuota(exempt_from_bytes=True)}), False),
        (Quotas(mode=Mode.ENFORCE, users={"alice": UserQuota(exempt=True)}), True),
        (Quotas(mode=Mode.ENFORCE, default=UserQuota(mode=Mode.OBSERVE)), False),
        (Quotas(mode=Mode.ENFORCE, default=UserQuota(exempt_from_bytes=True)), False),
    ],
)
def test_who_is_throttled_at_all(quotas: Quotas, throttled: bool) -> None:
    assert throttles_bytes(quotas, "alice") is throttled
