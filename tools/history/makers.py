"""The two kinds of fleets. One designed by the detector's author alone would prove little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pidgate.findings.patterns import Pattern
from tools.history import fleets, loops, reports, truth
from tools.history.cast import User, cast
from tools.history.lives import Lives
from tools.history.world import Fleet, World


@dataclass(frozen=True)
class Maker:
    """`planned`: lives planned for all days; `of_day`: lives generated per day; `patterns`: labels."""

    user: Callable[[World, int], User]
    planned: Callable[[World, User], Lives]
    of_day: Callable[[World, User, int], Lives]
    patterns: Callable[[World, User], set[Pattern]]


MAKERS = {
    Fleet.HABITS: Maker(cast, fleets.planned, loops.of_day, truth.patterns),
    Fleet.REPORTS: Maker(reports.user, reports.planned, reports.of_day, reports.patterns),
}
