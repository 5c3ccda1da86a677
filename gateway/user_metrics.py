"""KIP-936's metrics per user, and what an operator needs beside them, from the quota's snapshots.

User names come from clients, so their number is bounded: the first LABELLED_USERS seen keep a label of their
own for the life of the process (a series that comes and goes would look like a counter reset), the rest are
summed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gateway.metric_families import PREFIX

LABELLED_USERS: Final = 1_000
OTHER_USERS: Final = "(other)"
UNIDENTIFIED: Final = "(unidentified)"


class UserSnapshot(Protocol):
    """What the quota says of one user at one moment (quota.admission.Admission.user_snapshots)."""

    @property
    def user(self) -> str | None: ...
    @property
    def admitted_per_s(self) -> float: ...
    @property
    def tokens(self) -> float | None: ...
    @property
    def throttle_time_ms(self) -> float: ...
    @property
    def waiting(self) -> int: ...
    @property
    def oldest_waiting_ms(self) -> int: ...
    @property
    def live_ids(self) -> int: ...
    @property
    def admitted(self) -> Mapping[str, int]: ...
    @property
    def refused(self) -> Mapping[str, int]: ...
    @property
    def outcomes(self) -> Mapping[str, int]: ...
    @property
    def waited_ms_buckets(self) -> Mapping[int, int]: ...
    @property
    def waited_ms_sum(self) -> int: ...


@dataclass(slots=True)
class _Row:
    """One label value: a user, or the sum of many."""

    rate: float = 0.0
    tokens: float | None = None
    throttle_time_ms: float = 0.0
    waiting: int = 0
    oldest_waiting_ms: int = 0
    live_ids: int = 0
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    waited_ms_buckets: Counter[int] = field(default_factory=Counter)
    waited_ms_sum: int = 0

    def add(self, snapshot: UserSnapshot) -> None:
        self.rate += snapshot.admitted_per_s
        self.throttle_time_ms = max(self.throttle_time_ms, snapshot.throttle_time_ms)
        self.waiting += snapshot.waiting
        self.oldest_waiting_ms = max(self.oldest_waiting_ms, snapshot.oldest_waiting_ms)
        self.live_ids += snapshot.live_ids
        self.admitted.update(snapshot.admitted)
        self.refused.update(snapshot.refused)
        self.outcomes.update(snapshot.outcomes)
        self.waited_ms_buckets.update(snapshot.waited_ms_buckets)
        self.waited_ms_sum += snapshot.waited_ms_sum


class UserFamilies:
    """Makes the families; remembers which users have a label of their own."""

    def __init__(self, labelled_users: int = LABELLED_USERS) -> None:
        self._room = labelled_users
        self._labelled: set[str] = set()

    def collect(self, snapshots: Iterable[UserSnapshot]) -> Iterator[Metric]:
        rows = self._rows(snapshots)
        yield from _levels(rows)
        yield _by_label(rows, "admitted", "Producer ids let in.", "reason", lambda row: row.admitted)
        yield _by_label(rows, "refused", "Refusals of producer ids.", "reason", lambda row: row.refused)
        yield _by_label(rows, "outcomes", "What became of refused ids.", "outcome", lambda row: row.outcomes)
        yield _waited(rows)

    def _rows(self, snapshots: Iterable[UserSnapshot]) -> dict[str, _Row]:
        rows: dict[str, _Row] = {}
        for snapshot in snapshots:
            label = self._label(snapshot.user)
            row = rows.setdefault(label, _Row())
            row.add(snapshot)
            if label != OTHER_USERS:
                # The balances of many buckets have no sum that says anything.
                row.tokens = snapshot.tokens
        return rows

    def _label(self, user: str | None) -> str:
        if user is None:
            return UNIDENTIFIED
        if user not in self._labelled:
            if len(self._labelled) >= self._room:
                return OTHER_USERS
            self._labelled.add(user)
        return user


_LEVELS: Final[tuple[tuple[str, str, Callable[[_Row], float | None]], ...]] = (
    ("rate", "New producer ids admitted per second (KIP-936).", lambda row: row.rate),
    ("tokens", "New producer ids the user may bring now; below 0: throttled.", lambda row: row.tokens),
    ("throttle_time_ms", "Average of the throttles above 0 (KIP-936).", lambda row: row.throttle_time_ms),
    ("waiting", "Refused producer ids that came back and wait.", lambda row: row.waiting),
    (
        "oldest_waiting_seconds",
        "How long the first of them has waited; above 60 a client is about to lose sends.",
        lambda row: row.oldest_waiting_ms / 1_000,
    ),
    ("live", "Producer ids remembered (an estimate).", lambda row: row.live_ids),
)


def _levels(rows: Mapping[str, _Row]) -> Iterator[Metric]:
    for name, text, value_of in _LEVELS:
        family = GaugeMetricFamily(f"{PREFIX}producer_ids_{name}", text, labels=["user"])
        for user, row in rows.items():
            value = value_of(row)
            if value is not None:
                family.add_metric([user], value)
        yield family


def _by_label(
    rows: Mapping[str, _Row], name: str, text: str, label: str, counts_of: Callable[[_Row], Counter[str]]
) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}producer_ids_{name}", text, labels=["user", label])
    for user, row in rows.items():
        for value, count in counts_of(row).items():
            family.add_metric([user, value], count)
    return family


def _waited(rows: Mapping[str, _Row]) -> Metric:
    """Snapshots count per bucket, by its upper bound in ms; Prometheus wants running sums in seconds."""
    text = "How long refused producer ids waited for their admission."
    family = HistogramMetricFamily(f"{PREFIX}producer_ids_waited_seconds", text, labels=["user"])
    for user, row in rows.items():
        if not row.waited_ms_buckets:
            continue
        buckets, total = [], 0
        for bound_ms, count in sorted(row.waited_ms_buckets.items()):
            total += count
            buckets.append((_bound(bound_ms), float(total)))
        if buckets[-1][0] != "+Inf":
            buckets.append(("+Inf", float(total)))
        family.add_metric([user], buckets, sum_value=row.waited_ms_sum / 1_000)
    return family


def _bound(bound_ms: float) -> str:
    return "+Inf" if bound_ms == float("inf") else str(bound_ms / 1_000)
