"""Redacted names cannot be read, stay the same everywhere, and the shared state still finds its users."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.events.definitions import ConfigEvent, Event, QuotaInForce
from pidgate.events.redaction import MOST_MET, REDACTABLE, UserNames, pseudonym, redacted
from pidgate.events.writing import key_of, to_json
from tests.unit.events.made_up import a_decision, any_event

some_fields = st.sets(st.sampled_from(REDACTABLE))
names = st.text(max_size=8)


def test_the_hash_of_a_name_is_the_same_in_every_gateway_and_version() -> None:
    # Recorded: other hashes would make two people of each user while a cluster is upgraded.
    assert pseudonym("user", "alice") == "h:b19bb072bbac31e2"
    assert pseudonym("client_id", "alice") == "h:37499b176a98af48"


@given(any_event, some_fields)
def test_only_the_named_fields_change(event: Event, fields: set[str]) -> None:
    before, after = json.loads(to_json(event)), json.loads(to_json(redacted(event, fields)))
    for name, value in before.items():
        if name in fields:
            assert after[name] == pseudonym(name, value)
        elif name != "quotas":
            assert after[name] == value


def test_events_of_one_user_keep_one_key() -> None:
    keys = {key_of(redacted(a_decision(seq=seq), ["user"])) for seq in range(5)}
    assert keys == {pseudonym("user", "etl")}
    assert key_of(redacted(a_decision(user=""), ["user"])) == "gw-1"


def a_config() -> ConfigEvent:
    given: dict[str, Any] = {
        "cluster": "c",
        "gateway_id": "gw-1",
        "incarnation": "a",
        "seq": 1,
        "wall_time_ms": 0,
        "decision_time_ms": 0,
        "quota_version": 1,
        "mode": "enforce",
        "transactional": "observe",
        "window_ms": 3_600_000,
        "burst": 1.0,
        "remember_ms": 86_400_000,
        "layers": 4,
        "false_positive_rate": 0.001,
        "max_throttle_ms": 10_000,
        "max_live_ids": 10_000_000,
        "queue": 1_000,
        "sticky_entries": 20_000,
        "quotas": [
            QuotaInForce(user="alice", rate_milli=100_000, owner="alice@example.org", note="Alice's jobs"),
            QuotaInForce(user="bob", rate_milli=5_000, source="run_time", set_by="alice", set_wall_ms=3),
        ],
    }
    return ConfigEvent(**given)


def test_users_are_hidden_in_config_events_too() -> None:
    config = a_config()
    hidden = redacted(config, ["user"])
    assert config == a_config()
    assert b"alice" not in to_json(hidden).lower()
    assert b"bob" not in to_json(hidden)
    assert [quota.rate_milli for quota in hidden.quotas] == [100_000, 5_000]
    assert hidden.quotas[1].set_by == hidden.quotas[0].user == pseudonym("user", "alice")
    assert redacted(config, ["address"]).quotas == config.quotas


def test_other_fields_cannot_be_redacted() -> None:
    with pytest.raises(ValueError, match="seq cannot be redacted: user, client_id, address can"):
        redacted(a_decision(), ["seq"])


@given(st.sets(names), names)
def test_a_user_that_is_known_is_found_by_its_hash(known: set[str], other: str) -> None:
    users = UserNames(["user"], known)
    for user in known - {""}:
        assert users.in_events(user) == pseudonym("user", user)
        assert users.user_of(users.in_events(user)) == user
    if other not in known and other:
        assert users.user_of(users.in_events(other)) == pseudonym("user", other)


def test_state_under_a_hash_is_handed_over_once() -> None:
    users = UserNames(["user"])
    hidden = pseudonym("user", "alice")
    assert users.user_of(hidden) == hidden
    assert users.meet("alice") == hidden
    assert users.meet("alice") is None
    assert users.user_of(hidden) == "alice"


@pytest.mark.parametrize("redact", [[], ["user"]])
def test_the_empty_name_of_old_events_stays_what_it_is(redact: list[str]) -> None:
    users = UserNames(redact)
    assert users.in_events("") == ""
    assert users.user_of("") == ""
    assert users.meet("") is None


def test_beyond_its_room_a_user_is_not_kept_and_its_events_are_redacted_all_the_same() -> None:
    users = UserNames(["user"], map(str, range(MOST_MET)))
    assert users.meet("late") == pseudonym("user", "late") == users.in_events("late")
    assert users.user_of(pseudonym("user", "0")) == "0"
    assert users.user_of(pseudonym("user", "late")) == pseudonym("user", "late")
