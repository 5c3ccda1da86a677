"""The rules that map numbers to patterns: the only place that decides findings (patterns.py has the words).
Pure.

There are three tables, each read from the top. SOURCES judges one source; the first matching rule counts.
Producers of sources without a matching rule are calm. APPS judges the calm producers of an application
together; the first matching rule counts. USERS judges a whole user; every matching rule counts. The
thresholds of SOURCES and APPS are validated by labelled histories (tools/bench/detector.py,
tests/pipeline/test_offenders.py).

Conditions have no `not`, so an unknown feature (NaN) never makes a rule match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, pi
from typing import Final, Generic

from pidgate.findings.cadence import CLOCK, FEWEST_BURSTS
from pidgate.findings.features import AppFeatures, F, SourceFeatures, UserFeatures
from pidgate.findings.patterns import Pattern

FEWEST_IDS: Final = 8
"""New ids needed for a finding about a source."""
BEAT: Final = 0.5
"""Share of the pauses (or intervals) that equal the one before or doubled; by chance it is 0.26."""
FEWEST_GROWN: Final = 3
BACK_OFF: Final = 0.1
"""Share of the starts after a pause that has grown, in a back-off: 10, 20, 40, 80, 160, then 300 s for half an hour
or so."""
NO_BEAT: Final = 0.4
"""Below this share there is no beat."""
SHORTEST_LOOP_MS: Final = 2_000
"""No process starts, produces and dies faster repeatedly; a single process that opens producers does."""
SHORTEST_EMPTY_LOOP_MS: Final = 10_000
"""The same for producers of a single request, which may as well be a producer per batch at a beat: the first step
of Kubernetes' back-off ..."""
LONGEST_FLUSH_MS: Final = 120_000
"""... and if they live for a moment: flushes by a timer come every minute or two. Back-offs end at five, and
keep to the beat."""
LONGEST_PAUSE_MS: Final = 6 * 60_000
"""Of a supervisor before it restarts a process: the five minutes that end Kubernetes' back-off, and the start."""
LOOP_MS: Final = 20 * 60_000
"""From start to start of a process: Kubernetes waits 5 minutes at most and resets the back-off after a run of 10."""
LONGEST_LOOP_MS: Final = 90 * 60_000
"""A process that runs for an hour before it dies is a loop too, after more starts: few look even by chance."""
CRASHES: Final = 0.3
"""Share of cut connections, of those closed by clients: their process died. Then neither beat nor pause matters, but
more starts are needed. The kernel closes the connections of most processes that die."""
FEWEST_CRASHES: Final = 12
OVERLAP: Final = 0.2
"""Above this share of starts that overlap with the one before, producers are opened side by side."""
CLOCK_JITTER_MS: Final = 6 * 60_000
"""CLOCK for periods of hours: jobs started by the clock begin within minutes, people and load do not."""
CLOCK_NO_CHANCE: Final = 5.5
"""Few starts lie close together on some clock: n R^2 exceeds this by chance once in 245 times (Rayleigh's test)."""
CRON_PERIODS: Final = 2
"""A late run may overlap with the next one; instances run longer."""
CRON_IDS: Final = 20
"""Producers of one start of a job ..."""
BATCH_IDS: Final = 5
"""... and at most this many if each is used for a moment: more are opened for each piece of its work."""
MOST: Final = 0.5
NEARLY_ALL: Final = 0.9
MADE_UP: Final = 0.8
"""Share of ids that have a transactional id of their own ..."""
TURNOVER: Final = 20
"""... and ids that follow each other in the place of one: ten deployments in a month are no loop. Or fewer,
..."""
SHORT_TURNOVER: Final = 5
SHORT_TERM_MS: Final = 6 * 3_600_000
"""... if they are in use for less than this: deployed services run longer."""
ERROR_TURNOVER: Final = 3
"""Producers that failed at their end, in the place of one; deployments during an outage look alike once or
twice."""
SAME_BREATH_MS: Final = 10_000
"""A producer that follows a failed one within this time is from the same process: Kubernetes' back-off begins
here."""
BATCH_REQUESTS: Final = 5
"""A batch and its splits, where most are sent within a second; on average."""
FEWEST_TASKS: Final = 20
"""New ids needed before short-lived producers without another matching rule are called a producer per task."""
LONGEST_TASK_MS: Final = 60_000
"""A producer with a shorter life was made for one task."""
CROWD: Final = 8
"""Processes behind one address or one client id that are worth mentioning ..."""
AT_ONCE: Final = 2
"""... if this many are in use at a time on average, nights included: restarts under new names are one at a
time."""
COME_AGAIN: Final = 2
"""Lives at each address of a crowd: machines that are switched on again; an added pod has a new address."""
DAY_RHYTHM: Final = 0.4
"""Starts that follow a day's load. Spread over half of the day they give 0.64, over all of it 0 ..."""
NO_CHANCE: Final = 10
"""... and few starts any number: the sum of n R^2 of starts and ends exceeds this by chance once in 2,000 times
(Rayleigh's test)."""
RELEASED_LONG: Final = 0.3
"""Share of producers that run overnight in a service released several times a day."""
FEWEST_GROWTHS: Final = 3
SHORTEST_INSTANCE_MS: Final = 60_000
"""An instance added for load lives for minutes at least."""
FEWEST_UNUSED: Final = 10
UNUSED: Final = 0.25
"""Share of allocated ids that were never used to produce."""
FEWEST_PARTITIONS: Final = 20
"""Partitions of an id, on average, from which on a user's states say more than its ids."""
FEWEST_STATES: Final = 10_000
"""About 4 MB at each broker that has them."""
TRANSACTIONAL: Final = 0.5
MOSTLY: Final = 0.5
"""A user with a smaller explained share of new ids is (also) unknown."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[F]):
    """One row of a table. `evidence`: names of the features to show."""

    pattern: Pattern
    fits: Callable[[F], bool]
    evidence: tuple[str, ...]


# ---- sources -------------------------------------------------------------------------------------------


def _makes_up_names(s: SourceFeatures) -> bool:
    follow = s.new_ids >= TURNOVER * s.alive or (
        s.new_ids >= SHORT_TURNOVER * s.alive and s.life_ms < SHORT_TERM_MS
    )
    return (
        s.new_ids >= FEWEST_IDS
        and s.transactional >= MADE_UP
        and s.names >= MADE_UP * (s.new_ids + s.refused_ids)
        and follow
    )


def _runs_by_the_clock(s: SourceFeatures) -> bool:
    concentrated = max(CLOCK, exp(-2 * (pi * CLOCK_JITTER_MS / s.clock_ms) ** 2))
    few_for_a_moment = s.short_lived < MOST or s.requests > BATCH_REQUESTS or s.ids_per_burst <= BATCH_IDS
    return (
        s.bursts >= FEWEST_BURSTS
        and s.ids_per_burst <= CRON_IDS
        and s.run_ms <= CRON_PERIODS * s.clock_ms
        and s.clock >= concentrated
        and s.bursts * s.clock * s.clock >= CLOCK_NO_CHANCE
        and s.clock_periods >= MOST * s.bursts
        and s.beat_share >= BEAT
        and few_for_a_moment
    )


def _is_restarted(s: SourceFeatures) -> bool:
    soon = s.bursts >= FEWEST_BURSTS * s.processes and _turn_ms(s) <= LOOP_MS
    often = s.bursts >= FEWEST_CRASHES * s.processes and _turn_ms(s) <= LONGEST_LOOP_MS
    supervised = (soon or often) and s.beat_share >= BEAT and s.pause_ms <= LONGEST_PAUSE_MS
    crashed = often and s.resets >= CRASHES
    return (supervised or crashed) and _is_no_batch(s) and _is_no_error(s)


def _turn_ms(s: SourceFeatures) -> float:
    """Return the time from a process' start to the next start of the same."""
    return s.run_ms + s.pause_ms


def _is_no_batch(s: SourceFeatures) -> bool:
    """Return whether each start is a process, not a producer for a batch."""
    slow = (s.one_request < MOST and _turn_ms(s) >= SHORTEST_LOOP_MS) or _turn_ms(s) >= SHORTEST_EMPTY_LOOP_MS
    flushed = _turn_ms(s) >= LONGEST_FLUSH_MS and s.beat_share >= NEARLY_ALL and s.ids_per_burst <= BATCH_IDS
    return slow and (
        s.short_lived < NEARLY_ALL or s.requests > BATCH_REQUESTS or s.resets >= CRASHES or flushed
    )


def _is_no_error(s: SourceFeatures) -> bool:
    """Return whether each start is a process, not a producer for an error. Unknown errors count as none."""
    return max(0.0, s.failed) < MOST or s.pause_ms >= SAME_BREATH_MS


def _follows_errors(s: SourceFeatures) -> bool:
    return s.new_ids >= FEWEST_IDS and s.failed >= MOST and s.new_ids >= ERROR_TURNOVER * s.alive


def _sends_one_batch(s: SourceFeatures) -> bool:
    short = s.short_lived >= MOST and s.one_request >= MOST and s.two_requests >= NEARLY_ALL
    at_once = s.short_lived >= MOST and s.requests <= BATCH_REQUESTS
    few = (
        s.requests <= BATCH_REQUESTS
        and s.new_ids >= TURNOVER * s.alive
        and (s.overlap_share > OVERLAP or s.beat_share < NO_BEAT)
    )
    return s.new_ids >= FEWEST_IDS and s.used >= MOST * s.new_ids and (short or at_once or few)


def _serves_one_task(s: SourceFeatures) -> bool:
    return s.new_ids >= FEWEST_TASKS and s.used >= MOST * s.new_ids and s.life_ms < LONGEST_TASK_MS


SOURCES: Final[tuple[Rule[SourceFeatures], ...]] = (
    Rule(Pattern.RANDOM_TRANSACTIONAL_IDS, _makes_up_names, ("names", "transactional", "alive")),
    Rule(
        Pattern.CRON_JOB,
        _runs_by_the_clock,
        ("bursts", "ids_per_burst", "interval_ms", "clock", "clock_ms"),
    ),
    Rule(
        Pattern.RESTART_LOOP,
        _is_restarted,
        (
            "bursts",
            "processes",
            "interval_ms",
            "run_ms",
            "pause_ms",
            "beat_share",
            "grown",
            "resets",
        ),
    ),
    Rule(Pattern.PRODUCER_PER_ERROR, _follows_errors, ("failed", "error_code", "pause_ms")),
    Rule(
        Pattern.PRODUCER_PER_BATCH,
        _sends_one_batch,
        ("requests", "one_request", "two_requests", "short_lived", "connections"),
    ),
    Rule(Pattern.PRODUCER_PER_TASK, _serves_one_task, ("requests", "life_ms", "connections")),
)


# ---- applications --------------------------------------------------------------------------------------


def _is_replaced(a: AppFeatures) -> bool:
    return a.replacements >= 1 and a.replaced_ids >= MOST * a.late_ids and a.late_long >= RELEASED_LONG


def _shares_address(a: AppFeatures) -> bool:
    return a.met_at_address >= CROWD and a.alive_at_address >= AT_ONCE


def _shares_client_id(a: AppFeatures) -> bool:
    return a.met_at_client_id >= CROWD and a.alive_at_client_id >= AT_ONCE


def _comes_again(a: AppFeatures) -> bool:
    return _shares_client_id(a) and a.late_ids >= COME_AGAIN * a.met_at_client_id


def _scales(a: AppFeatures) -> bool:
    by_day = (
        a.starts_rhythm >= DAY_RHYTHM
        and a.ends_rhythm >= DAY_RHYTHM
        and a.late_ids * (a.starts_rhythm**2 + a.ends_rhythm**2) >= NO_CHANCE
    )
    come_and_go = a.late_long < MOST and a.long_ids >= 1 and a.over_life_ms >= SHORTEST_INSTANCE_MS
    return (
        a.late_ids >= FEWEST_IDS
        and a.growths >= FEWEST_GROWTHS
        and a.alive_most > a.alive_least
        and a.alive >= 1
        and (by_day or come_and_go)
    )


def _is_steady(a: AppFeatures) -> bool:
    return a.long_ids >= 1 and a.long_time >= NEARLY_ALL


APPS: Final[tuple[Rule[AppFeatures], ...]] = (
    Rule(Pattern.ROLLING_DEPLOYMENT, _is_replaced, ("replacements", "instances", "replaced_ids", "sessions")),
    Rule(Pattern.SHARED_ADDRESS, _shares_address, ("met_at_address", "alive_at_address")),
    Rule(Pattern.SHARED_CLIENT_ID, _comes_again, ("met_at_client_id", "alive_at_client_id", "late_ids")),
    Rule(
        Pattern.AUTOSCALING,
        _scales,
        ("alive_least", "alive_most", "starts_rhythm", "ends_rhythm", "growths"),
    ),
    Rule(Pattern.SHARED_CLIENT_ID, _shares_client_id, ("met_at_client_id", "alive_at_client_id")),
    Rule(Pattern.STEADY, _is_steady, ("long_ids", "late_ids", "alive")),
)


# ---- users ---------------------------------------------------------------------------------------------


def _never_sends(u: UserFeatures) -> bool:
    return u.unused_ids >= FEWEST_UNUSED and u.unused_ids >= UNUSED * u.allocated_ids


def _takes_another_id(u: UserFeatures) -> bool:
    return u.after_refusal_ids >= FEWEST_IDS and u.after_refusal_ids >= MOST * u.new_ids


def _costs_states(u: UserFeatures) -> bool:
    return u.partitions >= FEWEST_PARTITIONS and u.states >= FEWEST_STATES


def _never_closes(u: UserFeatures) -> bool:
    return u.momentary_ids >= FEWEST_IDS and u.open_connections >= MOST * u.momentary_ids


def _keeps_transactional_ids(u: UserFeatures) -> bool:
    return u.transactional_ids >= max(1.0, TRANSACTIONAL * max(u.used_ids, u.allocated_ids))


USERS: Final[tuple[Rule[UserFeatures], ...]] = (
    Rule(Pattern.UNUSED_IDS, _never_sends, ("unused_ids", "allocated_ids")),
    Rule(Pattern.NEW_ID_AFTER_REFUSAL, _takes_another_id, ("after_refusal_ids",)),
    Rule(Pattern.MANY_PARTITIONS, _costs_states, ("used_ids", "partitions", "states")),
    Rule(Pattern.UNCLOSED, _never_closes, ("open_connections", "momentary_ids")),
    Rule(Pattern.TRANSACTIONAL, _keeps_transactional_ids, ("transactional_ids", "bumped_ids")),
)

PATTERNS: Final = frozenset(
    (
        *(rule.pattern for rule in SOURCES),
        *(rule.pattern for rule in APPS),
        Pattern.UNKNOWN,
    )
)
"""Patterns of sources and applications, which the pipeline finds."""
EVIDENCE: Final = (
    {rule.pattern: rule.evidence for rule in SOURCES}
    | {rule.pattern: rule.evidence for rule in APPS}
    | {rule.pattern: rule.evidence for rule in USERS}
)


def pattern_of(rules: Sequence[Rule[F]], features: F) -> Pattern | None:
    """Return the pattern of the first matching rule. None: no rule matches."""
    return next((rule.pattern for rule in rules if rule.fits(features)), None)


def is_unknown(unexplained_ids: float, all_ids: float) -> bool:
    """Return whether a user's unexplained new ids are worth a finding beside others."""
    return unexplained_ids > MOSTLY * all_ids and unexplained_ids >= FEWEST_IDS
