"""The rules: which numbers make which pattern. The only place to change what is found (events/patterns.py: the words).

Two tables, each read from the top; the first rule that fits counts. SOURCES judges one source (a place, an address,
an application: places.py) by source_features; what none of them fits is calm, and APPS judges the calm producers of
an application together by app_features. Conditions are Spark SQL over the features' columns. A feature that is not
known is null, and a condition on it does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f

from pidgate.events.patterns import Pattern

FEWEST_IDS = 8
"""New ids before anything is found of a source."""
FEWEST_BURSTS = 6
"""Starts before they can have a beat: five intervals."""
BEAT = 0.6
"""Share of the intervals that equal the one before or doubled; by chance it is 0.26."""
NO_BEAT = 0.4
"""Below this there is none."""
SHORTEST_LOOP_MS = 2_000
"""No process starts, produces and dies faster again and again; what does is one process opening producers."""
SHORTEST_EMPTY_LOOP_MS = 10_000
"""The same for producers of a single request, which may as well be a producer per batch at a beat: the first step
of Kubernetes' back-off ..."""
LONGEST_FLUSH_MS = 120_000
"""... and if they live for a moment: what flushes by a timer does so every minute or two. Back-offs end at five, and
keep to the beat."""
LONGEST_LOOP_MS = 20 * 60_000
"""Kubernetes waits 5 minutes at most and calls what ran for 10 a success."""
CRASHES = 0.3
"""Of the connections that clients closed, so many were cut: their process died. Then no beat is needed ..."""
FEWEST_CRASHES = 12
LONGEST_CRASH_LOOP_MS = 90 * 60_000
"""... but more starts; and what runs for an hour before it dies is a loop, too."""
RESTARTS = 0.8
"""Of the pauses, so many are a supervisor's: the kernel closes the connections of most processes that die, so that
nothing was cut. No beat is needed either, if what comes is a process and no piece of work ..."""
SHORTEST_PROCESS_MS = 10_000
"""... by its life. Others are those of processes that died before they sent anything."""
OVERLAP = 0.2
"""Of the starts of one process after another, so many at most find the one before still in use."""
CLOCK = 0.8
"""Concentration of starts on the clock. Equal times give 1, times within half of the period 0.64, any times 0."""
CLOCK_JITTER_MS = 6 * 60_000
"""The same for periods of hours: what is started by the clock begins within minutes, people and load do not."""
CLOCK_NO_CHANCE = 5.5
"""Few starts lie close together on some clock: n R^2 exceeds this by chance once in 245 times (Rayleigh's test)."""
CRON_IDS = 20
"""Producers of one start of a job ..."""
BATCH_IDS = 5
"""... and at most so many if each is used for a moment: more are opened for each piece of its work."""
MOST = 0.5
NEARLY_ALL = 0.9
MADE_UP = 0.8
"""Of the ids, so many have a transactional id of their own ..."""
TURNOVER = 20
"""... and so many follow each other in the place of one: ten deployments in a month are no loop. Or fewer, ..."""
SHORT_TURNOVER = 5
SHORT_TERM_MS = 6 * 3_600_000
"""... if they are in use for less than this: what is deployed runs longer."""
ERROR_TURNOVER = 3
"""Producers that failed at their end, in the place of one; deployments during an outage look alike once or twice."""
SAME_BREATH_MS = 10_000
"""A producer that follows a failed one within this comes from the same process: Kubernetes' back-off begins here."""
BATCH_REQUESTS = 5
"""A batch, and what it was split into, where most is sent within a second; on average."""
CROWD = 8
"""Processes behind one address or one client id that are worth a word ..."""
AT_ONCE = 2
"""... if so many are in use at once on average, nights included: what is restarted under new names is one at a time."""
COME_AGAIN = 2
"""Lives at each of a crowd's addresses: machines that are switched on again; a pod that is added has a new one."""
DAY_RHYTHM = 0.4
"""Starts that follow a day's load. Spread over half of the day they give 0.64, over all of it 0 ..."""
NO_CHANCE = 8
"""... and few starts any number: n R^2 exceeds this by chance once in 3,000 times (Rayleigh's test)."""
RELEASED_LONG = 0.3
"""Of the producers of a service that is released several times a day, so many run over night."""
SHORTEST_INSTANCE_MS = 60_000
"""An instance that is added for load lives for minutes at least."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table. `condition`: Spark SQL; `evidence`: columns to show. The sentence: events/patterns.py."""

    pattern: Pattern
    condition: str
    evidence: tuple[str, ...]


_BY_THE_CLOCK = f"clock >= greatest({CLOCK}, exp(-2 * pow(pi() * {CLOCK_JITTER_MS} / clock_ms, 2)))"
_IN_TURN = f"bursts >= {FEWEST_BURSTS} and overlap_share <= {OVERLAP}"
_AT_A_BEAT = f"beat_share >= {BEAT} and interval_ms <= {LONGEST_LOOP_MS}"
_RESTARTED = (
    f"restart_share >= {RESTARTS} and life_ms >= {SHORTEST_PROCESS_MS} and requests > {BATCH_REQUESTS}"
    f" and failed < {MOST}"
)
_CRASHING = (
    f"(resets >= {CRASHES} or {_RESTARTED}) and bursts >= {FEWEST_CRASHES}"
    f" and interval_ms <= {LONGEST_CRASH_LOOP_MS}"
)
_NO_BATCHES = (
    f"(one_request < {MOST} and interval_ms >= {SHORTEST_LOOP_MS} or interval_ms >= {SHORTEST_EMPTY_LOOP_MS})"
    f" and (short_lived < {NEARLY_ALL} or requests > {BATCH_REQUESTS} or coalesce(resets, 0) >= {CRASHES}"
    f" or interval_ms >= {LONGEST_FLUSH_MS} and beat_share >= {NEARLY_ALL} and ids_per_burst <= {BATCH_IDS})"
)
_OTHER_PROCESS = f"(coalesce(failed, 0) < {MOST} or pause_ms >= {SAME_BREATH_MS})"
_SHORT = f"short_lived >= {MOST} and one_request >= {MOST} and two_requests >= {NEARLY_ALL}"
_AT_ONCE = f"short_lived >= {MOST} and requests <= {BATCH_REQUESTS}"
_FEW = (
    f"requests <= {BATCH_REQUESTS} and new_ids >= {TURNOVER} * alive"
    f" and (overlap_share > {OVERLAP} or beat_share < {NO_BEAT})"
)

SOURCES: tuple[Rule, ...] = (
    Rule(
        Pattern.RANDOM_TRANSACTIONAL_IDS,
        f"new_ids >= {FEWEST_IDS} and transactional >= {MADE_UP} and names >= {MADE_UP} * (new_ids + refused_ids)"
        f" and (new_ids >= {TURNOVER} * alive or new_ids >= {SHORT_TURNOVER} * alive and life_ms < {SHORT_TERM_MS})",
        ("names", "transactional", "alive"),
    ),
    Rule(
        Pattern.CRON_JOB,
        f"bursts >= {FEWEST_BURSTS} and ids_per_burst <= {CRON_IDS} and overlap_share <= {MOST}"
        f" and {_BY_THE_CLOCK} and bursts * clock * clock >= {CLOCK_NO_CHANCE}"
        f" and clock_periods >= {MOST} * bursts and beat_share >= {BEAT}"
        f" and not ({_AT_ONCE} and ids_per_burst > {BATCH_IDS})",
        ("bursts", "ids_per_burst", "interval_ms", "clock", "clock_ms"),
    ),
    Rule(
        Pattern.RESTART_LOOP,
        f"{_IN_TURN} and ({_AT_A_BEAT} or {_CRASHING}) and {_NO_BATCHES} and {_OTHER_PROCESS}",
        (
            "bursts",
            "interval_ms",
            "pause_ms",
            "beat_share",
            "grown",
            "restart_share",
            "overlap_share",
            "resets",
        ),
    ),
    Rule(
        Pattern.PRODUCER_PER_ERROR,
        f"new_ids >= {FEWEST_IDS} and failed >= {MOST} and new_ids >= {ERROR_TURNOVER} * alive",
        ("failed", "error_code", "pause_ms"),
    ),
    Rule(
        Pattern.PRODUCER_PER_BATCH,
        f"new_ids >= {FEWEST_IDS} and used >= {MOST} * new_ids and ({_SHORT} or {_AT_ONCE} or {_FEW})",
        ("requests", "one_request", "two_requests", "short_lived", "connections"),
    ),
)

_BY_DAY = (
    f"starts_rhythm >= {DAY_RHYTHM} and ends_rhythm >= {DAY_RHYTHM}"
    f" and late_ids * starts_rhythm * starts_rhythm >= {NO_CHANCE}"
)
_SHARED_CLIENT_ID = f"met_at_client_id >= {CROWD} and alive_at_client_id >= {AT_ONCE}"
_COME_AND_GO = f"late_long < {MOST} and long_ids >= 1 and over_life_ms >= {SHORTEST_INSTANCE_MS}"

APPS: tuple[Rule, ...] = (
    Rule(
        Pattern.ROLLING_DEPLOYMENT,
        f"replacements >= 1 and replaced_ids >= {MOST} * late_ids and late_long >= {RELEASED_LONG}",
        ("replacements", "instances", "replaced_ids", "sessions"),
    ),
    Rule(
        Pattern.SHARED_ADDRESS,
        f"met_at_address >= {CROWD} and alive_at_address >= {AT_ONCE}",
        ("met_at_address", "alive_at_address"),
    ),
    Rule(
        Pattern.SHARED_CLIENT_ID,
        f"{_SHARED_CLIENT_ID} and late_ids >= {COME_AGAIN} * met_at_client_id",
        ("met_at_client_id", "alive_at_client_id", "late_ids"),
    ),
    Rule(
        Pattern.AUTOSCALING,
        f"late_ids >= {FEWEST_IDS} and growths >= 3 and alive_most > alive_least and alive >= 1"
        f" and ({_BY_DAY} or {_COME_AND_GO})",
        ("alive_least", "alive_most", "starts_rhythm", "ends_rhythm", "growths"),
    ),
    Rule(
        Pattern.SHARED_CLIENT_ID,
        _SHARED_CLIENT_ID,
        ("met_at_client_id", "alive_at_client_id"),
    ),
    Rule(
        Pattern.STEADY,
        f"long_ids >= 1 and long_time >= {NEARLY_ALL}",
        ("long_ids", "late_ids", "alive"),
    ),
)


PATTERNS = frozenset((*(rule.pattern for rule in (*SOURCES, *APPS)), Pattern.UNKNOWN))
"""All that is found."""


def pattern_of(rules: tuple[Rule, ...]) -> Column:
    """Return the pattern of the first rule that fits; null: none does."""
    cases = " ".join(f"when {rule.condition} then '{rule.pattern.value}'" for rule in rules)
    return f.expr(f"case {cases} end")
