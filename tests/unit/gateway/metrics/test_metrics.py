"""What /metrics shows: counters by label, and KIP-936's metrics of real admissions."""

import ast
import asyncio
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pidgate.gateway.metrics import registry
from pidgate.gateway.metrics.byte_rates import ByteCollector
from pidgate.gateway.metrics.counters import CLOSE_CAUSES, NAMES, Counters
from pidgate.gateway.metrics.families import LABELLED_ROWS
from pidgate.gateway.metrics.registry import GatewayCollector, MetricsRegistry
from pidgate.gateway.metrics.turns import ROWS_PER_TURN
from pidgate.gateway.metrics.users import OTHER_USERS, UserFamilies
from pidgate.quota.admission import Admission
from pidgate.quota.byte_quota import ByteQuota, Kind
from pidgate.quota.counters import WAITED_BUCKETS_MS, UserSnapshot
from pidgate.quota.decisions import Client
from pidgate.quota.entities import unidentified
from pidgate.quota.settings import ByteQuotas, ByteRates, Mode, Quotas, QuotasHolder, UserQuota

GATEWAY = Path(registry.__file__).parents[1]
Samples = dict[str, float]


def scraped(counters: Counters, users: Iterable[UserSnapshot] = (), *, ready: bool = True) -> Samples:
    collector = GatewayCollector(counters, lambda: users, lambda: ready, "1.2.3")
    return {
        "|".join([sample.name, *_label_values(sample.labels)]): sample.value
        for family in text_string_to_metric_families(
            generate_latest(MetricsRegistry(collector, ProcessCollector(registry=None))).decode()
        )
        for sample in family.samples
    }


def _label_values(labels: Mapping[str, str]) -> list[str]:
    return [labels[name] for name in sorted(labels, key=lambda name: (name != "user", name))]


def snapshot(user: str, **changes: object) -> UserSnapshot:
    values: dict[str, object] = {
        "user": user,
        "enforces": True,
        "exempt": False,
        "rate_milli": 100_000,
        "tokens": 40.5,
        "admitted_per_s": 0.25,
        "throttle_time_ms": 900.0,
        "waiting": 2,
        "oldest_waiting_ms": 61_000,
        "live_ids": 60,
        "sticky_entries": 3,
        "admitted": {"first_seen": 60},
        "refused": {"first_seen": 4, "sticky": 9},
        "closed": {},
        "would_refuse": 0,
        "outcomes": {"gave_up": 1, "admitted_after_waiting": 3},
        "waited_ms_buckets": {1_000: 1, 5_000: 2},
        "waited_ms_sum": 7_500,
        "unused_ids": 5,
        "inits_refused": 12,
        "inits_would_refuse": 13,
        "bytes": {"from_client": 4_000, "to_client": 600},
    }
    return UserSnapshot(**{**values, **changes})  # type: ignore[arg-type]


def test_counters_become_families_with_kafkas_names_for_apis() -> None:
    counters = Counters()
    counters.requests[0] = 7
    counters.requests[3] = 2
    counters.requests_refused["first_seen"] = 5
    counters.requests_refused["established"] = 7
    counters.connections_total, counters.connections_open = 9, 4
    counters.connections_closed["idle"] = 1
    counters.gateway_topic_refused["DeleteTopics"] = 2
    counters.upstream_failures["refused"] = 3
    counters.bytes_from_clients, counters.bytes_to_clients = 100, 200
    samples = scraped(counters)

    assert samples["pidgate_requests_total|Produce"] == 7
    assert samples["pidgate_requests_total|Metadata"] == 2
    assert samples["pidgate_requests_refused_total|first_seen"] == 5
    assert samples["pidgate_requests_kept_in_order_total|established"] == 7
    assert "pidgate_requests_refused_total|established" not in samples
    assert (samples["pidgate_connections_total"], samples["pidgate_connections"]) == (9, 4)
    assert samples["pidgate_connections_closed_total|idle"] == 1
    assert samples["pidgate_gateway_topic_refused_total|DeleteTopics"] == 2
    assert samples["pidgate_upstream_failures_total|refused"] == 3
    assert samples["pidgate_bytes_total|from_clients"] == 100
    assert samples["pidgate_bytes_total|to_clients"] == 200
    assert samples["pidgate_build_info|1.2.3"] == 1
    assert samples["process_open_fds"] > 0


def test_a_user_has_the_metrics_of_the_kip_and_of_its_waiting_ids() -> None:
    samples = scraped(Counters(), [snapshot("alice")])

    assert samples["pidgate_producer_ids_rate|alice"] == 0.25
    assert samples["pidgate_producer_ids_tokens|alice"] == 40.5
    assert samples["pidgate_producer_ids_throttle_time_seconds|alice"] == 0.9
    assert samples["pidgate_producer_ids_quota|alice"] == 100
    assert samples["pidgate_producer_ids_waiting|alice"] == 2
    assert samples["pidgate_producer_ids_oldest_waiting_seconds|alice"] == 61
    assert samples["pidgate_producer_ids_admitted_total|alice|first_seen"] == 60
    assert samples["pidgate_producer_ids_init_refused_total|alice"] == 12
    assert samples["pidgate_producer_ids_init_would_refuse_total|alice"] == 13
    assert samples["pidgate_producer_ids_kept_in_order_total|alice|sticky"] == 9
    assert "pidgate_producer_ids_refused_total|alice|sticky" not in samples
    assert samples["pidgate_producer_ids_outcomes_total|alice|gave_up"] == 1
    assert samples["pidgate_producer_ids_unused_total|alice"] == 5
    assert samples["pidgate_user_bytes_total|alice|from_client"] == 4_000
    assert samples["pidgate_user_bytes_total|alice|to_client"] == 600


def test_counters_with_labels_exist_before_the_first_event() -> None:
    """Prometheus sees no increase in a series that begins with its first event."""
    samples = scraped(Counters(), [snapshot("alice", admitted={}, refused={}, outcomes={}, bytes={})])

    for name in (
        "pidgate_requests_total|Produce",
        "pidgate_requests_refused_total|first_seen",
        "pidgate_requests_refused_total|init_producer_id",
        "pidgate_requests_kept_in_order_total|sticky",
        "pidgate_gateway_topic_refused_total|DeleteTopics",
        "pidgate_connections_closed_total|limit",
        "pidgate_connections_delayed_total|user",
        "pidgate_connections_limited_total|silent",
        "pidgate_upstream_failures_total|timeout",
        "pidgate_producer_ids_admitted_total|alice|first_seen",
        "pidgate_producer_ids_refused_total|alice|queue",
        "pidgate_producer_ids_kept_in_order_total|alice|established",
        "pidgate_producer_ids_connections_closed_total|alice|sticky_table_full",
        "pidgate_producer_ids_outcomes_total|alice|gave_up",
        "pidgate_user_bytes_total|alice|from_client",
    ):
        assert samples[name] == 0


def test_the_causes_in_the_code_are_those_that_exist_from_the_start() -> None:
    calls = [
        (node.func.attr, node.args[0])
        for folder in ("proxy", "process")
        for file in (GATEWAY / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2
    ]
    causes = {
        first.value
        for called, first in calls
        if called in ("close", "close_now") and isinstance(first, ast.Constant)
    }

    assert len(causes) > 10
    assert causes <= set(CLOSE_CAUSES)


def test_the_histogram_of_waits_is_cumulative_and_in_seconds() -> None:
    samples = scraped(Counters(), [snapshot("alice")])
    name = "pidgate_producer_ids_waited_seconds"

    assert samples[f"{name}_bucket|alice|0.5"] == 0
    assert samples[f"{name}_bucket|alice|1.0"] == 1
    assert samples[f"{name}_bucket|alice|5.0"] == 3
    assert samples[f"{name}_bucket|alice|+Inf"] == 3
    assert samples[f"{name}_count|alice"] == 3
    assert samples[f"{name}_sum|alice"] == 7.5
    assert len([key for key in samples if key.startswith(f"{name}_bucket")]) == len(WAITED_BUCKETS_MS) + 1


def test_users_beyond_the_bound_are_summed_and_labels_stay_with_whom_they_were_given() -> None:
    families = UserFamilies(labelled_users=2)

    def waiting(*users: str) -> dict[str, float]:
        rows = families.rows()
        for user in users:
            rows.add(snapshot(user))
        found = families.collect(rows)
        family = next(family for family in found if family.name == "pidgate_producer_ids_waiting")
        return {sample.labels["user"]: sample.value for sample in family.samples}

    assert waiting("a", "b", "c", "d") == {"a": 2, "b": 2, OTHER_USERS: 4}
    assert waiting("d", "c", "b") == {OTHER_USERS: 4, "b": 2}


def test_what_cannot_be_identified_has_a_name_of_its_own() -> None:
    assert (
        scraped(Counters(), [snapshot(unidentified("GSSAPI"))])[
            "pidgate_producer_ids_waiting|(unidentified GSSAPI)"
        ]
        == 2
    )


def test_snapshots_of_a_real_admission_are_shown() -> None:
    quotas = Quotas(mode=Mode.ENFORCE, users={"mallory": UserQuota.per_window(1)})
    admission = Admission(quotas, secret_source=lambda: 1, now_ms=0)
    client = Client(connection_id=1, user="mallory", client_id="c", address="10.0.0.1")
    for producer_id in range(5):
        admission.judge(client, [(producer_id, 0, 0, b"t", 0)], transactional=False, now_ms=1_000)
    samples = scraped(Counters(), admission.user_snapshots(1_000))

    # One window's worth at once, and the balance may end just below 0: 2 of the 5.
    assert samples["pidgate_producer_ids_admitted_total|mallory|first_seen"] == 2
    assert samples["pidgate_producer_ids_refused_total|mallory|first_seen"] == 3
    assert samples["pidgate_producer_ids_tokens|mallory"] == -1
    assert samples["pidgate_producer_ids_throttle_time_seconds|mallory"] == 10
    assert samples["pidgate_producer_ids_live|mallory"] == 2


def test_every_counter_is_shown_and_counted_somewhere() -> None:
    def attributes(*files: Path) -> set[str]:
        nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
        return {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    shown = GATEWAY / "metrics" / "registry.py"
    others = [
        file for file in GATEWAY.rglob("*.py") if file not in (shown, GATEWAY / "metrics" / "counters.py")
    ]

    assert set(NAMES) - attributes(shown) == set()
    assert set(NAMES) - attributes(*others) == set()


def turns_of_a_look(users: int) -> int:
    """Times that the event loop came round while the rows of so many users were taken."""
    quotas = Quotas(mode=Mode.ENFORCE, default=UserQuota.per_window(5))
    admission = Admission(quotas, lambda: 1, 0)
    for number in range(users):
        admission.counters.of(f"user-{number}", 1_000).would_refuse += 1
    collector = GatewayCollector(Counters(), lambda: admission.user_snapshots(1_000), lambda: True, "1.2.3")

    async def counted() -> int:
        looking, times = asyncio.ensure_future(collector.collect_rows()), 0
        while not looking.done():
            times += 1
            admission.counters.of(f"more-{times}", 1_000)  # it is counted meanwhile
            await asyncio.sleep(0)
        return times

    times = asyncio.run(counted())
    shown = MetricsRegistry(collector, ProcessCollector(registry=None))
    shown_users = shown.get_sample_value("pidgate_producer_ids_would_refuse_total", {"user": "(other)"})
    assert shown_users == users - LABELLED_ROWS
    return times


def test_the_rows_of_many_users_are_taken_in_turns() -> None:
    assert turns_of_a_look(3_000) >= 3_000 // ROWS_PER_TURN


def test_the_overview_has_few_series_whatever_users_there_are_and_names_those_with_most() -> None:
    users = [snapshot(f"user-{n}", new_1h=n, refused_1h=2 * n if n < 5 else 0) for n in range(500)]
    collector = GatewayCollector(Counters(), lambda: users, lambda: True, "1.2.3", labelled_users=0)
    families = list(MetricsRegistry(collector).collect())
    assert sum(len(family.samples) for family in families) < 500
    top = {
        (family.name, sample.labels["user"]): sample.value
        for family in families
        if family.name.startswith("pidgate_top_")
        for sample in family.samples
    }
    assert len(top) == 11 + 5
    assert (top["pidgate_top_new_ids", "user-499"], top["pidgate_top_refusals", "user-4"]) == (499, 8)
    assert top["pidgate_top_new_ids", OTHER_USERS] == sum(range(490))
    assert top["pidgate_top_refusals", OTHER_USERS] == 0
    named = {sample.labels.get("user") for family in families for sample in family.samples}
    assert len(named - {None, OTHER_USERS}) == 10 + 4


def test_a_histogram_has_twelve_buckets_at_most() -> None:
    counters = Counters()
    counters.forward_times.observe(0.000_03)
    text = generate_latest(MetricsRegistry(GatewayCollector(counters, list, lambda: True, "1")))
    samples = scraped(counters)
    assert samples["pidgate_forward_seconds_bucket|2e-05"] == 0
    assert samples["pidgate_forward_seconds_bucket|5e-05"] == 1
    assert samples["pidgate_forward_seconds_sum"] == pytest.approx(0.000_03)
    for family in text_string_to_metric_families(text.decode()):
        if family.type == "histogram":
            rows: dict[str, int] = {}
            for sample in family.samples:
                if "le" in sample.labels:
                    rest = str({name: sample.labels[name] for name in sample.labels if name != "le"})
                    rows[rest] = rows.get(rest, 0) + 1
            assert all(2 <= count <= 12 for count in rows.values()), family.name
    assert len(WAITED_BUCKETS_MS) < 12


def page_of_all() -> str:
    """What a scrape shows of a gateway with a user and a byte rate."""
    rates = ByteQuotas(rates={("alice", None): ByteRates(500, 700)})
    byte_quota = ByteQuota(QuotasHolder(Quotas(bytes=rates)))
    sensors = byte_quota.sensors(Kind.PRODUCE, "alice", "app", 0)
    assert sensors is not None
    sensors.record(5_500, 0)
    users = GatewayCollector(Counters(), lambda: [snapshot("alice")], lambda: True, "1.2.3")
    return generate_latest(MetricsRegistry(users, ByteCollector(byte_quota, lambda: 0))).decode()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian's package prometheus)")
def test_promtool_finds_no_fault() -> None:
    command = ("promtool", "check", "metrics")
    done = subprocess.run(
        command, input=page_of_all(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_names_follow_prometheus_conventions() -> None:
    """As `promtool check metrics` does: a help for each, base units, `_total` for counters and nothing else."""
    for family in text_string_to_metric_families(page_of_all()):
        assert family.documentation
        assert not family.name.endswith(
            ("_ms", "_milliseconds", "_minutes", "_hours", "_kb", "_mb", "_count", "_sum")
        )
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
