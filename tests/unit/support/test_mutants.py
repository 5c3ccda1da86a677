"""Each mutant of the table breaks a rule that some test holds, and its test notices."""

from __future__ import annotations

import pytest

from tests.support.breaking import FAILED, failed_in, run
from tests.support.mutants import BY_SCHEDULE, BY_TEST, CONTROLS
from tests.support.rules_page import marks


def test_every_mutant_breaks_a_rule_of_the_page() -> None:
    broken = {mutant.rule for table in (BY_SCHEDULE, CONTROLS, BY_TEST) for mutant in table.values()}
    assert broken <= {mark.sentence for mark in marks()}


@pytest.mark.parametrize("name", BY_TEST)
def test_a_broken_rule_is_noticed(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = BY_TEST[name]
    with monkeypatch.context() as patch:
        mutant.breaks(patch)
        with pytest.raises(FAILED) as noticed:
            run(mutant.test, mutant.given, request.getfixturevalue)
    assert mutant.at in failed_in(noticed.value, mutant.test)
