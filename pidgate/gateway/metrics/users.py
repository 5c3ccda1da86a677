"""KIP-936's metrics per user and further ones, from the quota's snapshots.

Clients choose user names, so their number is bounded. The first LABELLED_ROWS seen keep their own label for
the life of the process (a series that comes and goes would look like a counter reset); the rest are summed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily as counter
from prometheus_client.core import GaugeMetricFamily as gauge
from prometheus_client.core import HistogramMetricFamily, Metric

from pidgate.gateway.metrics.families import LABELLED_ROWS, PREFIX
from pidgate.quota.counters import CLOSES, DIRECTIONS, OUTCOMES, WAITED_BUCKETS_MS, UserSnapshot
from pidgate.quota.decisions import ADMISSIONS, KEEPS_ORDER, REFUSALS
from pidgate.quota.entities import User, is_unidentified, shown

TOP_USERS: Final = 10
OTHER_USERS: Final = "(other)"


class _Sum:
    """Sum of the users without their own label, with the field names of a snapshot."""

    tokens = states_tokens = rate_milli = None
    """Balances and quotas of many users have no meaningful sum."""
    waited_ms_sum: int
    waited_ms_buckets: Counter[int]

    def __init__(self) -> None:
        self.throttle_time_ms: float = 0
        self.oldest_waiting_ms = 0
        for name in _ADDED:
            setattr(self, name, 0)
        for name in COUNTED_FIELDS:
            setattr(self, name, Counter())

    def add(self, snapshot: UserSnapshot) -> None:
        self.throttle_time_ms = max(self.throttle_time_ms, snapshot.throttle_time_ms)
        self.oldest_waiting_ms = max(self.oldest_waiting_ms, snapshot.oldest_waiting_ms)
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(snapshot, name))
        for name in COUNTED_FIELDS:
            if counted := getattr(snapshot, name):  # most users have none
                getattr(self, name).update(counted)


_ADDED: Final = (
    "admitted_per_s", "sticky_entries", "would_refuse", "unused_ids", "inits_refused", "inits_would_refuse",
    "inits_failed_open", "waited_ms_sum", "waiting", "live_ids",
)  # fmt: skip
COUNTED_FIELDS: Final = ("admitted", "refused", "closed", "outcomes", "waited_ms_buckets", "bytes")
_Row = UserSnapshot | _Sum


class UserRows:
    """Rows by label: one per labelled user, and one for all others."""

    def __init__(self, label_of: Callable[[User], str]) -> None:
        self.by_label: dict[str, _Row] = {}
        self._label_of = label_of
        self._others = _Sum()
        self.of_hour: list[tuple[User, int, int]] = []
        """Users with new ids or refusals in the last hour, and how many."""

    def add(self, snapshot: UserSnapshot) -> None:
        if snapshot.new_1h or snapshot.refused_1h:
            self.of_hour.append((snapshot.user, snapshot.new_1h, snapshot.refused_1h))
        label = self._label_of(snapshot.user)
        if label == OTHER_USERS:
            self._others.add(snapshot)
            self.by_label[OTHER_USERS] = self._others
        else:
            self.by_label[label] = snapshot


class UserFamilies:
    """Builds the families at each scrape and keeps the labelled users."""

    def __init__(self, labelled_users: int = LABELLED_ROWS) -> None:
        self._room = labelled_users
        self._labelled: set[str] = set()

    def rows(self) -> UserRows:
        """Return rows to add users to."""
        return UserRows(self._label)

    def collect(self, seen: UserRows) -> Iterator[Metric]:
        rows = seen.by_label
        yield from _top(seen.of_hour)
        yield from _numbers(rows)
        yield _by_label(
            rows, "producer_ids_admitted", "Producer ids admitted.", "reason", "admitted", ADMISSIONS
        )
        text, of_quota = "Requests refused by the quota.", [one for one in REFUSALS if one not in KEEPS_ORDER]
        yield _by_label(rows, "producer_ids_refused", text, "reason", "refused", of_quota)
        text = "Requests refused to keep batches in order, whatever the quota."
        yield _by_label(rows, "producer_ids_kept_in_order", text, "reason", "refused", sorted(KEEPS_ORDER))
        text = "Outcomes of refused ids."
        yield _by_label(rows, "producer_ids_outcomes", text, "outcome", "outcomes", OUTCOMES)
        text = "Connections closed to protect acknowledged records."
        yield _by_label(rows, "producer_ids_connections_closed", text, "reason", "closed", CLOSES)
        yield _waited(rows)
        text = "Bytes of the user's connections after the login."
        yield _by_label(rows, "user_bytes", text, "direction", "bytes", DIRECTIONS)

    def _label(self, user: User) -> str:
        if is_unidentified(user):
            return shown(user)  # few rows, of many people each
        if user not in self._labelled:
            if len(self._labelled) >= self._room:
                return OTHER_USERS
            self._labelled.add(user)
        return shown(user)


def _top(seen: Sequence[tuple[User, int, int]]) -> Iterator[Metric]:
    """Yield gauges whose users change: a counter with such rows would look as if it was reset."""
    text = "of the last hour: the ten users with the most, and all others together."
    new_ids = {user: count for user, count, _ in seen if count}
    refusals = {user: count for user, _, count in seen if count}
    for name, what, counts in (
        ("top_new_ids", "New producer ids", new_ids),
        ("top_refusals", "Requests refused by the quota", refusals),
    ):
        family = gauge(PREFIX + name, f"{what} {text}", labels=["user"])
        users = sorted(counts, key=counts.__getitem__, reverse=True)
        for user in users[:TOP_USERS]:
            family.add_metric([shown(user)], counts[user])
        family.add_metric([OTHER_USERS], sum(counts[user] for user in users[TOP_USERS:]))
        yield family


_NUMBERS: Final = (
    (gauge, "rate", "admitted_per_s", 1, "New producer ids admitted per second (KIP-936)."),
    (gauge, "tokens", "tokens", 1, "New producer ids the user may create now (KIP-936); below 0: throttled."),
    (
        gauge,
        "states_tokens",
        "states_tokens",
        1,
        "Tokens of producer_states_rate; below 0: new ids are throttled.",
    ),
    (
        gauge,
        "throttle_time_seconds",
        "throttle_time_ms",
        1_000,
        "Average of the throttles above 0 (KIP-936).",
    ),
    (gauge, "quota", "rate_milli", 1_000, "producer_ids_rate of the user, ids a window."),
    (gauge, "waiting", "waiting", 1, "Refused producer ids that were retried and wait."),
    (
        gauge,
        "oldest_waiting_seconds",
        "oldest_waiting_ms",
        1_000,
        "How long the refused id has waited that waits longest; above 60 a client is about to lose sends.",
    ),
    (gauge, "live", "live_ids", 1, "Producer ids remembered (an estimate)."),
    (
        gauge,
        "sticky_entries",
        "sticky_entries",
        1,
        "Partitions on which a refused sequence has to come first.",
    ),
    (counter, "would_refuse", "would_refuse", 1, "Ids admitted that enforce would have refused."),
    (counter, "unused", "unused_ids", 1, "Ids allocated and never produced with by their connection."),
    (
        counter,
        "init_refused",
        "inits_refused",
        1,
        "InitProducerId requests refused (refuse_init_producer_id).",
    ),
    (
        counter,
        "init_would_refuse",
        "inits_would_refuse",
        1,
        "InitProducerId requests admitted that enforce would have refused.",
    ),
    (
        counter,
        "init_failed_open",
        "inits_failed_open",
        1,
        "InitProducerId requests admitted because the quota code failed.",
    ),
)
"""Kind, name, snapshot field, its units per unit of the metric, text."""


def _numbers(rows: Mapping[str, _Row]) -> Iterator[Metric]:
    for kind, name, field_name, units, text in _NUMBERS:
        family = kind(f"{PREFIX}producer_ids_{name}", text, labels=["user"])
        for user, row in rows.items():
            value = getattr(row, field_name)
            if value is not None:
                family.add_metric([user], value / units)
        yield family


def _by_label(
    rows: Mapping[str, _Row],
    name: str,
    text: str,
    label: str,
    field_name: str,
    values: Iterable[str],
) -> Metric:
    """Return a counter that has all `values` of the label from the user's first scrape on."""
    family = counter(PREFIX + name, text, labels=["user", label])
    for user, row in rows.items():
        counts = getattr(row, field_name)
        for value in values:
            family.add_metric([user, str(value)], counts.get(value, 0))
    return family


def _waited(rows: Mapping[str, _Row]) -> Metric:
    """Convert counts per bucket in ms to running sums in seconds, as Prometheus needs them."""
    text = "How long refused producer ids waited for their admission."
    family = HistogramMetricFamily(f"{PREFIX}producer_ids_waited_seconds", text, labels=["user"])
    for user, row in rows.items():
        if not row.waited_ms_buckets:
            # Most users never wait, and a histogram is a third of all their series.
            continue
        # All bounds from the first value on: a bound added later would break rates computed over it.
        bounds_ms = sorted({*WAITED_BUCKETS_MS, *row.waited_ms_buckets})
        sums = [
            float(total) for total in accumulate(row.waited_ms_buckets.get(bound, 0) for bound in bounds_ms)
        ]
        bounds_s = [str(bound_ms / 1_000) for bound_ms in bounds_ms]
        buckets = [*zip(bounds_s, sums, strict=True), ("+Inf", sums[-1])]
        family.add_metric([user], buckets, sum_value=row.waited_ms_sum / 1_000)
    return family
