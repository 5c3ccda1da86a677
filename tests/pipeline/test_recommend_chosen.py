"""The rate that is chosen for a user, and what is said of it: of counts written by hand, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidgate.findings.patterns import Pattern
from pidgate.pipeline.recommend import chosen
from pidgate.pipeline.recommend.chosen import Action, choose
from pidgate.pipeline.recommend.evidence import Asked, Counts, Evidence, Need, Tried
from pidgate.pipeline.recommend.reasons import ONLY_OBSERVED, curve, reasons, remedies
from pidgate.pipeline.recommend.recommended import recommended

DAY_MS = 86_400_000
ASKED = Asked(begin_ms=0, end_ms=30 * DAY_MS)


def tried(*rows: tuple[float, tuple[int, int, int], tuple[int, int, int]]) -> list[Tried]:
    """(rate, learnt, judged); days are healthy ids refused, rogue ids admitted and refused. A wait for each refused."""
    return [
        Tried(rate, *(Counts(*days, longest_wait_ms=5_000 * (days[0] > 0)) for days in both))
        for rate, *both in rows
    ]


ROGUE_RESTS = Evidence(
    user="mixed",
    tried=tried((5, (9, 5, 95), (3, 2, 48)), (10, (0, 10, 90), (0, 5, 45)), (20, (0, 20, 80), (0, 10, 40))),
    train=Need(ids=120, rogue_ids=100, naive=90, healthy_peak=8),
    whole=Need(ids=180, rogue_ids=150, naive=90, healthy_peak=8),
    patterns=[Pattern.PRODUCER_PER_BATCH.value],
    rogues=["client etl-* at 10.0.0.7"],
)
"""It comes when the healthy do not: a rate holds it and refuses nobody."""
ROGUE_RUNS = replace(
    ROGUE_RESTS,
    tried=tried((5, (9, 5, 95), (3, 2, 48)), (80, (0, 90, 10), (0, 45, 5)), (120, (0, 100, 0), (0, 50, 0))),
)
"""It runs beside them: only what makes healthy ids wait holds it."""
HEALTHY = replace(
    ROGUE_RESTS,
    tried=tried((10, (2, 0, 0), (0, 0, 0)), (20, (0, 0, 0), (0, 0, 0)), (30, (0, 0, 0), (0, 0, 0))),
    train=Need(ids=120, naive=15, healthy_peak=15),
    whole=Need(ids=180, naive=15, healthy_peak=15),
    patterns=[],
    rogues=[],
)


def test_the_least_rate_with_headroom_that_holds() -> None:
    choice = choose(ROGUE_RESTS, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, 20)
    said = reasons(ROGUE_RESTS, choice, ASKED)
    assert "10 is the lowest rate tried that refuses none" in said[0]
    assert any("in all these days 20 admits 30 of 150 of them" in one for one in said)
    assert any(
        "judged on the held-out days: 20 (learnt from the days before) admits 10 of 50" in one for one in said
    )
    assert remedies(ROGUE_RESTS, choice, ASKED) == []


def test_where_no_rate_tells_them_apart_there_is_none_but_what_would_help() -> None:
    """80 refuses no id and admits 90 %: a quota that holds little is no recommendation."""
    choice = choose(ROGUE_RUNS, ASKED)
    assert (choice.action, choice.rate) == (Action.NO_RATE, None)
    said, help_ = reasons(ROGUE_RUNS, choice, ASKED), remedies(ROGUE_RUNS, choice, ASKED)
    assert said[0].startswith("no rate separates the rogue from the healthy ids: 120, ")
    assert help_[0].startswith("fix the client: Open one producer when the process starts")
    assert help_[1].startswith("give client etl-* at 10.0.0.7 a principal of its own")
    assert help_[2].startswith(
        "set 5 (--longest-wait 5): it admits 7 of 150 rogue ids; 12 healthy ids would have waited"
    )
    assert "refuse_init_producer_id" in help_[3]
    test = choice.test(ROGUE_RUNS)
    assert test is not None
    assert (test.rogue_admitted, test.rogue_ids) == (50, 50), "it is let in"


def test_a_rule_that_sets_whatever_refuses_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "separates", lambda *_: True)
    choice = choose(ROGUE_RUNS, ASKED)
    assert choice.action is Action.SET
    assert choice.fit is not None
    assert not choice.fit.pick.whole.holds


def test_no_rate_is_set_that_held_little_in_the_judged_days() -> None:
    changed = replace(
        ROGUE_RESTS, tried=tried((10, (0, 10, 990), (0, 50, 0)), (20, (0, 20, 980), (0, 50, 0)))
    )
    choice = choose(changed, ASKED)
    assert choice.action is Action.NO_RATE
    assert "admits 50 of 50 of its ids in the judged days" in reasons(changed, choice, ASKED)[0]


def test_healthy_ids_may_wait_if_that_is_asked_for() -> None:
    choice = choose(ROGUE_RUNS, replace(ASKED, longest_wait_ms=60_000))
    assert (choice.action, choice.rate) == (Action.SET, 5)
    assert any(
        "12 healthy ids would have had to wait, the longest for 5 s" in one
        for one in reasons(ROGUE_RUNS, choice, ASKED)
    )


def test_a_rate_in_force_that_refuses_the_healthy_is_raised_and_said_to_hold_nobody() -> None:
    user = replace(ROGUE_RUNS, current_rate=5.0)
    choice = choose(user, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, 120)
    assert any("does not hold the rogue" in one for one in reasons(user, choice, ASKED))
    assert remedies(user, choice, ASKED)


@pytest.mark.parametrize(
    "user", [HEALTHY, ROGUE_RESTS, replace(HEALTHY, current_rate=30.0, whole=HEALTHY.train)]
)
def test_where_refusals_kept_arrivals_away_no_first_and_no_lower_rate_is_recommended(user: Evidence) -> None:
    wanted = choose(user, ASKED)
    refused = replace(user, healthy_refusals=7)
    choice = choose(refused, ASKED)
    if wanted.action is Action.SET:
        assert (choice.action, choice.rate, choice.lacks) == (Action.NONE, None, "arrivals")
        assert reasons(refused, choice, ASKED)[0].startswith(
            "7 refusals of healthy ids kept an unknown number"
        )
    else:
        assert choice == wanted


def test_where_refusals_made_the_healthy_wait_the_rate_is_raised() -> None:
    user = replace(HEALTHY, current_rate=10.0, healthy_refusals=7)
    choice = choose(user, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, choose(HEALTHY, ASKED).rate)
    assert any(one.startswith("censored: 7 refusals") for one in reasons(user, choice, ASKED))


def test_what_does_all_that_is_left_as_it_is() -> None:
    user = replace(ROGUE_RESTS, current_rate=10.0)
    assert choose(user, ASKED).action is Action.KEEP
    assert choose(replace(user, current_rate=0.0), ASKED).action is Action.KEEP
    assert choose(replace(user, exempt=True), ASKED).action is Action.NONE


def test_a_quota_that_is_only_observed_is_not_said_to_hold_anything() -> None:
    observed = replace(ROGUE_RESTS, current_rate=10.0)
    said = reasons(observed, choose(observed, ASKED), ASKED)
    assert said[0] == ONLY_OBSERVED
    assert any("(the observed rate, if it were enforced) admits 5 of 50" in one for one in said)
    enforced = replace(observed, mode="enforce")
    said = reasons(enforced, choose(enforced, ASKED), ASKED)
    assert ONLY_OBSERVED not in said
    assert any("(the rate in force) admits 5 of 50" in one for one in said)


@pytest.mark.parametrize(
    ("words", "let_in"), [({"current_rate": 0.0}, 0), ({"current_rate": 10.0}, 5), ({"exempt": True}, 50)]
)
def test_judged_is_what_is_in_force_where_nothing_is_set(words: dict[str, float], let_in: int) -> None:
    user = replace(ROGUE_RESTS, **words)  # type: ignore[arg-type]
    test = choose(user, ASKED).test(user)
    assert test is not None
    assert (test.rogue_admitted, test.rogue_ids) == (let_in, 50)


def test_a_few_ids_of_a_rogue_that_was_mended_judge_nothing() -> None:
    mended = replace(
        ROGUE_RESTS,
        tried=tried((10, (0, 10, 990), (0, 3, 0)), (20, (0, 20, 980), (0, 3, 0))),
        whole=replace(ROGUE_RESTS.whole, rogue_ids=1_003),
        train=replace(ROGUE_RESTS.train, rogue_ids=1_000),
    )
    assert (choose(mended, ASKED).action, choose(mended, ASKED).rate) == (Action.SET, 20)


def test_a_rogue_of_the_judged_days_is_held_by_the_rate_for_all_days() -> None:
    """Learnt from the days before it, the rate would have been another; and that is not called judged."""
    late = replace(
        ROGUE_RESTS,
        tried=tried(
            (1, (0, 0, 0), (0, 10, 490)), (2, (0, 0, 0), (0, 20, 480)), (50, (0, 0, 0), (0, 300, 200))
        ),
        train=Need(ids=30, naive=1, healthy_peak=1, alive=30),
        whole=Need(ids=530, rogue_ids=500, naive=300, healthy_peak=1, alive=1),
    )
    choice = choose(late, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, 2)
    assert choice.judged is not None
    assert choice.judged.pick.rate == 50
    said = reasons(late, choice, ASKED)
    assert "the rogue came in the held-out days only, so holding it is not judged" in said
    # Alone, and with nothing before.
    new = replace(late, train=Need(), first_ms=25 * DAY_MS, tried=tried((1, (0, 0, 0), (0, 10, 490))))
    new = replace(new, whole=replace(new.whole, healthy_peak=0, alive=0))
    choice = choose(new, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, 1)
    assert "not judged: it brought no id in the days learnt from" in reasons(new, choice, ASKED)
    row = recommended(new, ASKED)
    unjudged = [name for name, value in row.items() if name.endswith("_test") and value is None]
    assert len(unjudged) == 5, (
        "its rogue was not held, nor let in by the maximum: it was not there to be judged"
    )
    assert (row["rogue_ids"], row["rogue_ids_admitted"]) == (500, 10)


@pytest.mark.parametrize(
    ("user", "asked", "word"),
    [
        (HEALTHY, replace(ASKED, end_ms=DAY_MS // 24), "1 h of history are too little"),
        (replace(HEALTHY, first_ms=30 * DAY_MS - 3_600_000), ASKED, "seen for 1 h only"),
        (replace(HEALTHY, whole=Need(ids=3, healthy_peak=3)), ASKED, "3 new ids in 30 d are too few"),
        (replace(HEALTHY, whole=Need()), ASKED, "no new ids in these days"),
    ],
)
def test_there_is_a_least_of_evidence(user: Evidence, asked: Asked, word: str) -> None:
    choice = choose(user, asked)
    assert (choice.action, choice.rate) == (Action.NONE, None)
    assert reasons(user, choice, asked)[0].startswith(word)
    enough = replace(asked, least_history_ms=0, least_ids=1)
    assert choose(user, enough).action is (Action.SET if user.whole.ids else Action.NONE), (
        "if it is asked for"
    )


def test_a_healthy_user_gets_room() -> None:
    choice = choose(HEALTHY, ASKED)
    assert (choice.action, choice.rate) == (Action.SET, 30)
    assert reasons(HEALTHY, choice, ASKED)[1] == "no rate is in force"


def test_the_curve_has_both_ends_and_no_more_points_than_can_be_read() -> None:
    many = tried(*((float(rate), (100 - rate, rate, 100 - rate), (0, 0, 0)) for rate in range(1, 101)))
    points = curve(many).split("; ")
    assert points[0] == "1 holds 99 % of the rogue's ids and lets 99 healthy ids wait"
    assert points[-1] == "100 holds 0 % of the rogue's ids and lets 0 healthy ids wait"
    assert len(points) <= 9
