"""Which quota holds for whom."""

from __future__ import annotations

import pytest

from pidgate.protocol.sasl import SaslExchange
from pidgate.quota.entities import EffectiveQuota, enforces, is_unidentified, resolve, shown, unidentified
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota

OBSERVE, ENFORCE = Mode.OBSERVE, Mode.ENFORCE
QUOTAS = Quotas(
    mode=OBSERVE,
    default=UserQuota(1_000_000),
    users={
        "alice": UserQuota(100_000, ENFORCE),
        "bob": UserQuota(None, ENFORCE),
        "mallory": UserQuota(0, ENFORCE),
        "mirror": UserQuota(exempt=True),
        unidentified("OAUTHBEARER"): UserQuota(5_000, ENFORCE),
    },
)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("alice", EffectiveQuota(100_000, ENFORCE, False)),
        ("bob", EffectiveQuota(1_000_000, ENFORCE, False)),
        ("mallory", EffectiveQuota(0, ENFORCE, False)),
        ("mirror", EffectiveQuota(1_000_000, OBSERVE, True)),
        ("somebody", EffectiveQuota(1_000_000, OBSERVE, False)),
        (unidentified("GSSAPI"), EffectiveQuota(1_000_000, OBSERVE, False)),
        (unidentified("OAUTHBEARER"), EffectiveQuota(5_000, ENFORCE, False)),
    ],
)
def test_what_is_said_of_a_user_goes_before_the_default_key_by_key(
    user: str, expected: EffectiveQuota
) -> None:
    assert resolve(QUOTAS, user) == expected


def test_the_defaults_mode_goes_before_the_global_one() -> None:
    quotas = Quotas(mode=OBSERVE, default=UserQuota(1_000, ENFORCE), users={"quiet": UserQuota(mode=OBSERVE)})
    assert resolve(quotas, "anyone").mode is ENFORCE
    assert resolve(quotas, "quiet").mode is OBSERVE


def test_only_bounded_users_under_enforcement_are_refused_anything() -> None:
    assert enforces(QUOTAS, "alice", transactional=False)
    assert not enforces(QUOTAS, "somebody", transactional=False)
    assert not enforces(QUOTAS, "mirror", transactional=False)
    assert enforces(QUOTAS, unidentified("OAUTHBEARER"), transactional=False)
    assert not enforces(Quotas(mode=ENFORCE), "unbounded", transactional=False)
    assert enforces(Quotas(mode=ENFORCE, cluster_rate_milli=1), "unbounded", transactional=False)


def test_nobody_is_named_as_those_who_cannot_be_identified() -> None:
    """PLAIN ends a name at a NUL, and SCRAM takes none in a name: no login makes somebody another one's entity."""
    entity = unidentified("OAUTHBEARER")
    for mechanism, token in (("PLAIN", f"\0{entity}\0pw"), ("SCRAM-SHA-256", f"n,,n={entity},r=abc")):
        exchange = SaslExchange()
        exchange.begin_exchange(mechanism)
        exchange.record_client_token(token.encode())
        identity = exchange.record_broker_answer(0, b"")
        assert identity is None or identity.user is None
    assert (shown(entity), shown("alice")) == ("(unidentified OAUTHBEARER)", "alice")
    assert is_unidentified(entity)
    assert not is_unidentified("OAUTHBEARER")


def test_transactional_requests_have_a_switch_of_their_own() -> None:
    assert not enforces(QUOTAS, "alice", transactional=True)
    switched = Quotas(
        mode=ENFORCE,
        default=UserQuota(1_000),
        producer_ids=ProducerIdSettings(transactional=ENFORCE),
    )
    assert enforces(switched, "alice", transactional=True)
