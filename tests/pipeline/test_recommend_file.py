"""The file that is recommended: the gateway loads it as it is, and it changes what it says and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pidgate.gateway.config.loading import parse
from pidgate.gateway.recording.config_event import config_event
from pidgate.pipeline.in_force import settings
from pidgate.pipeline.recommend.quotas_file import NewRate, changes_diff, mode_of, quotas_yaml
from pidgate.quota.entities import is_unidentified, unidentified
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.recommend_events import config

SERVERS = ["127.0.0.1:19092"]


def test_what_is_in_force_is_all_there_and_only_a_new_rate_differs() -> None:
    change = NewRate("batches", 43.0, None, ["it lets in 3 of 900"])
    text = quotas_yaml(config(), [change], head=["why"], cluster="paper", bootstrap_servers=SERVERS)
    found, before = parse(text), parse(quotas_yaml(config(), [], bootstrap_servers=SERVERS))
    users = found.to_quotas().users
    assert users["batches"].producer_ids_rate_milli == 43_000
    assert users["batches"].mode is Mode.ENFORCE, "it was enforced before"
    assert users["gone"].exempt
    assert users["gone"].producer_ids_rate_milli == 1_500
    assert found.quotas.users["batches"].owner == "team-etl"
    assert found.to_quotas().producer_ids == before.to_quotas().producer_ids
    assert found.to_quotas().default == before.to_quotas().default
    assert "    # it lets in 3 of 900\n" in text


def test_the_difference_is_one_rate_and_its_reasons() -> None:
    diff = changes_diff(config(), [NewRate("batches", 43.0, None, ["why"])])
    changed = [line for line in diff.splitlines() if line[0] in "+-" and not line.startswith(("+++", "---"))]
    assert changed == ["+    # why", "-      producer_ids_rate: 100", "+      producer_ids_rate: 43"]
    assert changes_diff(config(), []) == ""


def test_rates_without_a_recommendation_are_carried_over() -> None:
    """The file must not turn them off."""
    named = config()["quotas"]
    named[0] |= {"transactional_ids_rate_milli": 50_000, "producer_states_rate_milli": 900_000}
    now = config(default_transactional_ids_rate_milli=2_500, default_rate_milli=None, quotas=named)
    found = parse(quotas_yaml(now, [NewRate("batches", 43.0)], bootstrap_servers=SERVERS)).to_quotas()
    assert found.users["batches"].transactional_ids_rate_milli == 50_000
    assert found.users["batches"].producer_states_rate_milli == 900_000
    assert found.users["batches"].producer_ids_rate_milli == 43_000
    assert found.default == UserQuota(transactional_ids_rate_milli=2_500)


def test_the_shape_of_the_quota_is_carried_over_whole() -> None:
    """Where ids are refused at InitProducerId, taking the file over must not end it."""
    other = ProducerIdSettings(
        window_ms=60_000,
        burst=Fraction(5, 2),
        remember_ms=7_200_000,
        transactional=Mode.ENFORCE,
        max_throttle_ms=5_000,
        max_live_ids=1_000_000,
        refuse_init=True,
    )
    defaults = asdict(ProducerIdSettings())
    constant = {"layers", "false_positive_rate", "queue", "sticky_entries"}
    assert all(value != defaults[name] for name, value in asdict(other).items() if name not in constant)
    stamp = {name: config()[name] for name in ("cluster", "gateway_id", "incarnation", "seq", "wall_time_ms")}
    told = config_event({**stamp, "decision_time_ms": 1}, Quotas(producer_ids=other), 1, {})
    text = quotas_yaml(asdict(told), [], bootstrap_servers=SERVERS)
    assert parse(text).to_quotas().producer_ids == other
    assert settings(asdict(told)) == other


def test_who_cannot_be_identified_is_named_by_the_mechanism() -> None:
    """As the gateway reads it: a name with a NUL is refused with the whole file."""
    named = [{**config()["quotas"][0], "user": unidentified("GSSAPI"), "rate_milli": 100_000}]
    changes = [NewRate(unidentified("GSSAPI"), 7.0), NewRate(unidentified("SSL"), 9.0), NewRate("a", 3.0)]
    text = quotas_yaml({**config(), "quotas": named}, changes, bootstrap_servers=SERVERS)
    users = parse(text).to_quotas().users
    assert {user: quota.producer_ids_rate_milli for user, quota in users.items()} == {
        unidentified("GSSAPI"): 7_000,
        unidentified("SSL"): 9_000,
        "a": 3_000,
    }


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(_names.filter(lambda name: not is_unidentified(name)), _names, _names)
@example("yes", "~", "a: b #c")
@example('CN=Jörg, OU="x"\n', "*x", "- 1")
@example("1e3", "0x1f", "\x85\u2028")
def test_any_name_comes_back(user: str, owner: str, reason: str) -> None:
    """Principals may be any text; a comment must not end in the middle of one."""
    named = [{"user": user, "rate_milli": None, "mode": None, "exempt": False, "owner": owner}]
    text = quotas_yaml({**config(), "quotas": named}, [NewRate(user, 2.5, "observe", [reason])])
    users = yaml.safe_load(text)["quotas"]["users"]
    assert users == {user: {"mode": "observe", "producer_ids_rate": 2.5, "owner": owner}}


def test_without_a_config_event_there_is_a_file_all_the_same() -> None:
    text = quotas_yaml(None, [NewRate("a", 7.0, "observe")], bootstrap_servers=SERVERS)
    assert parse(text).to_quotas().users["a"].producer_ids_rate_milli == 7_000


@pytest.mark.parametrize(
    ("mode", "in_force_milli", "written"),
    [("observe", None, 40_000), ("enforce", None, None), ("observe", 500_000, 500_000)],
)
def test_a_default_is_written_where_none_is_in_force_and_none_is_enforced_by_it(
    mode: str, in_force_milli: int | None, written: int | None
) -> None:
    now = config(default_rate_milli=in_force_milli, mode=mode)
    found = parse(quotas_yaml(now, [], bootstrap_servers=SERVERS, default_rate=40.0)).to_quotas()
    assert found.default.producer_ids_rate_milli == written
    assert ("+  default:" in changes_diff(now, [], 40.0)) is (written == 40_000)
    alone = quotas_yaml(None, [], bootstrap_servers=SERVERS, default_rate=40.0)
    assert parse(alone).to_quotas().default.producer_ids_rate_milli == 40_000


@pytest.mark.parametrize(
    ("in_force", "current_rate", "enforce", "written"),
    [
        ("observe", 5.0, False, "observe"),
        ("enforce", 5.0, False, None),
        ("enforce", None, False, "observe"),
        ("observe", 5.0, True, "enforce"),
    ],
)
def test_nobody_is_enforced_who_was_not(
    in_force: str, current_rate: float | None, enforce: bool, written: str | None
) -> None:
    """A user under enforcement whom no rate bounds would be refused for the first time."""
    assert mode_of(in_force, current_rate, enforce=enforce) == written
