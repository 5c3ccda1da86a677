"""Ground truth for a fleet of habits: each user's patterns in its days."""

from __future__ import annotations

import numpy as np

from pidgate.findings.patterns import Pattern
from tools.history.cast import DAILY, Deployment, User
from tools.history.fleets import planned, rollouts
from tools.history.lives import Lives
from tools.history.loops import is_crashing
from tools.history.world import DAY_MS, World

HABIT_DAYS = 3
"""Fewest days of growth that count: an instance count that rarely follows the load is steady."""


def patterns(world: World, user: User) -> set[Pattern]:
    """Return the visible patterns of the user; a fleet without a roll-out is steady."""
    lives = planned(world, user)
    begun = lives[lives.start_ms >= world.begin_ms]
    return {
        found
        for deployment in user.deployments
        if (found := _pattern(world, deployment, begun[begun.deployment == deployment.number])) is not None
    } or {Pattern.UNKNOWN}


def _pattern(world: World, deployment: Deployment, begun: Lives) -> Pattern | None:
    """Return the visible pattern of a deployment from lives that begin in these days, or None."""
    if deployment.pattern is Pattern.ROLLING_DEPLOYMENT:
        # Stable transactional ids keep their producer ids, so a roll-out brings none.
        shows = len(rollouts(world, deployment)) and not deployment.is_transactional
        return Pattern.ROLLING_DEPLOYMENT if shows else Pattern.STEADY
    if deployment.pattern is Pattern.AUTOSCALING:
        grew = np.unique((begun.start_ms - world.begin_ms) // DAY_MS)
        return Pattern.AUTOSCALING if len(grew) >= min(HABIT_DAYS, world.days) else Pattern.STEADY
    if deployment.pattern is Pattern.RESTART_LOOP:
        days = range(world.days)
        return deployment.pattern if any(is_crashing(world, deployment, day) for day in days) else None
    if deployment.pattern in DAILY or deployment.pattern is Pattern.STEADY:
        return deployment.pattern
    if not len(begun) and deployment.is_harmful:
        return None
    return deployment.pattern if len(begun) else Pattern.STEADY
