"""KIP-936's metrics per user, and what an operator needs beside them, from the quota's snapshots.

User names come from clients, so their number is bounded: the first LABELLED_USERS seen keep a label of their
own for the life of the process (a series that comes and goes would look like a counter reset), the rest are
summed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pidgate.gateway.metrics.families import PREFIX
from pidgate.quota.counters import WAITED_BUCKETS_MS, UserSnapshot

LABELLED_USERS: Final = 1_000
OTHER_USERS: Final = "(other)"
UNIDENTIFIED: Final = "(unidentified)"


@dataclass(slots=True)
class _Sum:
    """The users without a label of their own, under the names of a snapshot."""

    admitted_per_s: float = 0.0
    tokens: float | None = None
    """Balances and quotas of many users have no sum that says anything."""
    rate_milli: int | None = None
    throttle_time_ms: float = 0.0
    waiting: int = 0
    oldest_waiting_ms: int = 0
    live_ids: int = 0
    sticky_entries: int = 0
    would_refuse: int = 0
    unused_ids: int = 0
    inits_refused: int = 0
    inits_would_refuse: int = 0
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    waited_ms_buckets: Counter[int] = field(default_factory=Counter)
    waited_ms_sum: int = 0

    def add(self, snapshot: UserSnapshot) -> None:
        self.admitted_per_s += snapshot.admitted_per_s
        self.throttle_time_ms = max(self.throttle_time_ms, snapshot.throttle_time_ms)
        self.waiting += snapshot.waiting
        self.oldest_waiting_ms = max(self.oldest_waiting_ms, snapshot.oldest_waiting_ms)
        self.live_ids += snapshot.live_ids
        self.sticky_entries += snapshot.sticky_entries
        self.would_refuse += snapshot.would_refuse
        self.unused_ids += snapshot.unused_ids
        self.inits_refused += snapshot.inits_refused
        self.inits_would_refuse += snapshot.inits_would_refuse
        self.admitted.update(snapshot.admitted)
        self.refused.update(snapshot.refused)
        self.closed.update(snapshot.closed)
        self.outcomes.update(snapshot.outcomes)
        self.waited_ms_buckets.update(snapshot.waited_ms_buckets)
        self.waited_ms_sum += snapshot.waited_ms_sum


_Row = UserSnapshot | _Sum


class UserFamilies:
    """Makes the families; remembers which users have a label of their own."""

    def __init__(self, labelled_users: int = LABELLED_USERS) -> None:
        self._room = labelled_users
        self._labelled: set[str] = set()

    def collect(self, snapshots: Iterable[UserSnapshot]) -> Iterator[Metric]:
        rows = self._rows(snapshots)
        yield from _numbers(rows)
        yield _by_label(rows, "admitted", "Producer ids let in.", "reason", lambda row: row.admitted)
        yield _by_label(rows, "refused", "Requests refused.", "reason", lambda row: row.refused)
        yield _by_label(rows, "outcomes", "What became of refused ids.", "outcome", lambda row: row.outcomes)
        closed = "Connections closed to keep what was acknowledged true."
        yield _by_label(rows, "connections_closed", closed, "reason", lambda row: row.closed)
        yield _waited(rows)

    def _rows(self, snapshots: Iterable[UserSnapshot]) -> dict[str, _Row]:
        rows: dict[str, _Row] = {}
        others = _Sum()
        for snapshot in snapshots:
            label = self._label(snapshot.user)
            if label == OTHER_USERS:
                others.add(snapshot)
                rows[OTHER_USERS] = others
            else:
                rows[label] = snapshot
        return rows

    def _label(self, user: str | None) -> str:
        if user is None:
            return UNIDENTIFIED
        if user not in self._labelled:
            if len(self._labelled) >= self._room:
                return OTHER_USERS
            self._labelled.add(user)
        return user


GAUGE: Final = GaugeMetricFamily
COUNTER: Final = CounterMetricFamily
_NUMBERS: Final[
    tuple[
        tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str, str, Callable[[_Row], float | None]],
        ...,
    ]
] = (
    (GAUGE, "rate", "New producer ids admitted per second (KIP-936).", lambda row: row.admitted_per_s),
    (
        GAUGE,
        "tokens",
        "New producer ids the user may bring now (KIP-936); below 0: throttled.",
        lambda row: row.tokens,
    ),
    (
        GAUGE,
        "throttle_time_ms",
        "Average of the throttles above 0, in ms (KIP-936).",
        lambda row: row.throttle_time_ms,
    ),
    (GAUGE, "quota", "producer_ids_rate of the user, ids a window.", lambda row: _thousandth(row.rate_milli)),
    (GAUGE, "waiting", "Refused producer ids that came back and wait.", lambda row: row.waiting),
    (
        GAUGE,
        "oldest_waiting_seconds",
        "How long the first of them has waited; above 60 a client is about to lose sends.",
        lambda row: row.oldest_waiting_ms / 1_000,
    ),
    (GAUGE, "live", "Producer ids remembered (an estimate).", lambda row: row.live_ids),
    (
        GAUGE,
        "sticky_entries",
        "Partitions on which a refused sequence has to come first.",
        lambda row: row.sticky_entries,
    ),
    (COUNTER, "would_refuse", "Ids let in that enforce would have refused.", lambda row: row.would_refuse),
    (
        COUNTER,
        "unused",
        "Ids allocated and never produced with by their connection.",
        lambda row: row.unused_ids,
    ),
    (
        COUNTER,
        "init_refused",
        "InitProducerId requests refused (refuse_init_producer_id).",
        lambda row: row.inits_refused,
    ),
    (
        COUNTER,
        "init_would_refuse",
        "InitProducerId requests let pass that enforce would have refused.",
        lambda row: row.inits_would_refuse,
    ),
)


def _thousandth(thousandths: int | None) -> float | None:
    return None if thousandths is None else thousandths / 1_000


def _numbers(rows: Mapping[str, _Row]) -> Iterator[Metric]:
    for kind, name, text, value_of in _NUMBERS:
        family = kind(f"{PREFIX}producer_ids_{name}", text, labels=["user"])
        for user, row in rows.items():
            value = value_of(row)
            if value is not None:
                family.add_metric([user], value)
        yield family


def _by_label(
    rows: Mapping[str, _Row], name: str, text: str, label: str, counts_of: Callable[[_Row], Mapping[str, int]]
) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}producer_ids_{name}", text, labels=["user", label])
    for user, row in rows.items():
        for value, count in counts_of(row).items():
            family.add_metric([user, str(value)], count)
    return family


def _waited(rows: Mapping[str, _Row]) -> Metric:
    """Snapshots count per bucket, bounds in ms; Prometheus wants running sums, bounds in seconds."""
    text = "How long refused producer ids waited for their admission."
    family = HistogramMetricFamily(f"{PREFIX}producer_ids_waited_seconds", text, labels=["user"])
    for user, row in rows.items():
        if not row.waited_ms_buckets:
            # Most users never wait, and a histogram is a third of all their series.
            continue
        # All bounds from then on: a bound that comes later would break the rates computed over it.
        bounds_ms = sorted({*WAITED_BUCKETS_MS, *row.waited_ms_buckets})
        sums = [
            float(total) for total in accumulate(row.waited_ms_buckets.get(bound, 0) for bound in bounds_ms)
        ]
        buckets = [*zip(map(_seconds, bounds_ms), sums, strict=True), ("+Inf", sums[-1])]
        family.add_metric([user], buckets, sum_value=row.waited_ms_sum / 1_000)
    return family


def _seconds(bound_ms: int) -> str:
    return str(bound_ms / 1_000)
