"""The page of the detector is what its script writes, and both front ends judge the same users."""

from __future__ import annotations

import json

from pidgate.findings.rules import PATTERNS
from tools.bench import detector
from tools.history.world import Fleet, World


def test_the_page_has_what_was_measured() -> None:
    text = detector.PAGE.read_text()
    assert detector.with_part(text, detector.page(json.loads(detector.RESULT.read_text()))) == text
    assert "| is \\ found |" in text


def test_both_front_ends_judge_every_user_of_a_history() -> None:
    world = World(seed=5, users=12, days=2, begin_ms=detector.BEGIN_MS, scale=0.1, fleet=Fleet.HABITS)
    labels, found = detector.judged(world)
    users = {user for user, _ in labels}
    assert len(users) == 12
    for pairs in found.values():
        assert {user for user, _ in pairs} <= users
        assert {pattern for _, pattern in pairs} <= set(PATTERNS)
        # Two days are short, and yet most is found.
        assert len(pairs & labels) >= len(labels) / 2
