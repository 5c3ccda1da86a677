"""Makers of the two fleets. One that is made as the detector's author thinks proves little alone."""

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
    """`planned`: the lives that one plan for all days makes; `of_day`: those made up day by day; `patterns`: labels."""

    user: Callable[[World, int], User]
    planned: Callable[[World, User], Lives]
    of_day: Callable[[World, User, int], Lives]
    patterns: Callable[[World, User], set[Pattern]]


MAKERS = {
    Fleet.HABITS: Maker(cast, fleets.planned, loops.of_day, truth.patterns),
    Fleet.REPORTS: Maker(reports.user, reports.planned, reports.of_day, reports.patterns),
}
