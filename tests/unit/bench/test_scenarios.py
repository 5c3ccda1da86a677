"""The scenarios as they stand: plans that loads take, goals that can be judged, numbers that are not taken twice."""

from dataclasses import MISSING, fields

import pytest

from tools.bench.__main__ import SCENARIOS
from tools.bench.loads.process import KINDS
from tools.bench.scenario import Scenario
from tools.bench.scenarios.through_targets import MANY_IDLE as IDLE
from tools.bench.targets import BARE, BASELINE, TARGETS

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])


@every_scenario
@pytest.mark.parametrize("quick", [False, True])
def test_a_plan_is_what_its_load_takes(scenario: Scenario, quick: bool) -> None:
    plan, of_load = scenario.plan_for(quick), fields(KINDS[scenario.kind][0])
    assert set(plan) <= {field.name for field in of_load}
    assert set(plan) >= {field.name for field in of_load if field.default is MISSING}


@every_scenario
def test_what_goals_compare_is_measured(scenario: Scenario) -> None:
    assert set(scenario.targets) <= set(TARGETS)
    assert scenario.baseline in scenario.targets
    if scenario.baseline == BASELINE:
        assert {*BARE, "haproxy"} <= set(scenario.targets)
    assert {target for goal in scenario.goals for target in goal.needs} <= set(scenario.targets)


@every_scenario
def test_each_client_has_its_own_partitions(scenario: Scenario) -> None:
    plan = scenario.plan
    if "partitions_each" in plan:
        assert scenario.kind == "connect" or scenario.partitions == plan["clients"] * plan["partitions_each"]


def test_results_of_scenarios_are_kept_apart() -> None:
    assert len({(scenario.number, scenario.name) for scenario in SCENARIOS}) == len(SCENARIOS)


def test_a_proxy_needs_two_files_for_each_connection() -> None:
    assert 16_000 < IDLE.open_files(quick=False) <= 20_000
