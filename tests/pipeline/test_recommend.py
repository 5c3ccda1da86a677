"""Recommendations through the commands, of users whose right rates are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pidgate.gateway.config.loading import parse
from pidgate.pipeline.cli import app
from pidgate.pipeline.commands.common import heap_of, pass_over
from pidgate.pipeline.commands.recommend import BY_FINDINGS, rates_of, write_recommendations
from pidgate.pipeline.days import Days
from pidgate.pipeline.errors import BadOption, HistoryEmpty
from pidgate.pipeline.passes import OFFENDERS
from pidgate.pipeline.runs import replacing
from pidgate.pipeline.tables import Tables
from tests.pipeline.jobs import commanded
from tests.pipeline.made_events import DAY, MONDAY, event, land, write_events
from tests.pipeline.recommend_cases import DAYS, Cases

if TYPE_CHECKING:
    pass

THINNER = 10


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """`run --only offenders --only recommend` over all cases."""
    tables = Tables(None, str(tmp_path_factory.mktemp("recommend")))
    Cases(thinner=THINNER).all().write(tables.root)
    only = ("--only", "offenders", "--only", "recommend")
    made = CliRunner().invoke(
        app, ["run", "--tables", tables.root, *only, "--heap", "6GiB", "--engine", "local"]
    )
    assert made.exit_code == 0, made.output
    return tables


@pytest.fixture(scope="module")
def rows(done: Tables) -> dict[str, dict[str, Any]]:
    return {row["user"]: row for row in done.query("recommendations")}


Rows = dict[str, dict[str, Any]]


@pytest.mark.parametrize(
    ("user", "pattern", "mended"),
    [
        ("rogue only", "producer_per_batch", 10),
        ("bridge", "producer_per_batch", 10),
        ("random ids", "random_transactional_ids", 10),
        ("mixed", "restart_loop", 20),
    ],
)
def test_a_rogue_is_found_and_has_two_rates_with_their_price(
    rows: Rows, user: str, pattern: str, mended: float
) -> None:
    row = rows[user]
    assert (row["patterns"], row["action"], row["mended_rate"]) == ([pattern], "set", mended)
    assert row["recommended_rate"] == row["cap_rate"] >= 1.5 * row["least_rate"]
    assert row["cap"]["refused_ids"] == 0
    price = row["mended"]
    assert 0 < price["refused_requests"] < row["requests"]
    assert 0 < price["refused_records"] == 10 * price["refused_requests"]
    assert price["longest_wait_ms"] > 60_000
    assert 0 < row["mended_states"] < row["cap_states"]
    assert any("of the room in 6GiB of heap" in sentence for sentence in row["reasons"])
    assert row["remedies"][0].startswith("fix the client: ")


def test_beside_a_loop_the_cap_refuses_nobody_and_says_what_it_bounds(rows: Rows) -> None:
    row = rows["mixed"]
    assert (row["least_rate"], row["cap_rate"]) == (120, 180)
    assert row["rogue_ids"] / row["ids"] > 0.95
    allows = "the cap for now (180) allows 9,062 producer states on a broker, 0.0"
    assert allows in " ".join(row["reasons"])


@pytest.mark.parametrize("user", ["weekly", "fleet", "autoscaler", "censored"])
def test_a_healthy_user_is_not_accused_and_gets_one_rate(rows: Rows, user: str) -> None:
    row = rows[user]
    assert (row["patterns"], row["rogue_ids"], row["action"]) == ([], 0, "set")
    assert row["cap_rate"] == row["mended_rate"] >= 2 * row["instances"]
    assert row["judged_cap_refused"] == 0


def test_the_rate_of_a_censored_history_is_a_lower_bound(rows: Rows) -> None:
    row = rows["censored"]
    assert (row["ids"], row["lower_bound"], row["recommended_rate"]) == (480, True, 57)
    assert any(one.startswith("a lower bound: 4,176 refusals of healthy ids") for one in row["reasons"])


def test_the_rate_covers_the_batch_day(rows: Rows) -> None:
    assert rows["weekly"]["recommended_rate"] >= 300
    assert "its fullest day is Thursday, seen in 2 weeks" in rows["weekly"]["reasons"]


def test_ids_seen_by_two_gateways_count_once(rows: Rows) -> None:
    assert rows["fleet"]["ids"] == 20 * DAYS


@pytest.mark.parametrize("user", ["gapped", "young"])
def test_too_little_evidence_gives_no_rate_and_says_so(rows: Rows, user: str) -> None:
    assert (rows[user]["action"], rows[user]["recommended_rate"]) == ("none", None)
    assert rows[user]["reasons"] == [
        "too little evidence: data on 2 of 12 days; a rate needs 5 (--least-history)"
    ]


def test_each_rate_tried_has_its_price(done: Tables, rows: Rows) -> None:
    tried = done.query("recommend_candidates", "from found where \"user\" = 'mixed'")
    by_rate = {one["candidate_rate"]: one for one in tried}
    assert len(by_rate) == len(tried) >= 4
    for name in ("cap", "mended"):
        of_rate = by_rate[rows["mixed"][f"{name}_rate"]]
        assert {column: of_rate[column] for column in rows["mixed"][name]} == rows["mixed"][name]


def test_the_default_is_enough_for_today_and_all_rates_together_are_counted(done: Tables) -> None:
    totals = done.query("recommend_totals")[0]
    assert (totals["default_rate"], totals["default_users"], totals["default_covers"]) == (450, 4, 4)
    assert totals["unlimited"] == 2, "the two without enough evidence"
    assert totals["history_days"] == DAYS
    assert totals["healthy_by"] == BY_FINDINGS
    # Thinned, the loop beside the ten pods of `mixed` begins in the held-out days: no cap could have been learnt.
    assert (totals["judged_cap_refused_healthy"], totals["judged_healthy_ids"] > 500) == (10, True)


def test_the_file_is_loaded_by_the_gateway(done: Tables, rows: Rows) -> None:
    folder = Path(done.path("recommended"))
    found = parse(f"cluster:\n  bootstrap_servers: [a:1]\n{(folder / 'quotas.yaml').read_text()}").to_quotas()
    wanted = {user: row["recommended_rate"] for user, row in rows.items() if row["action"] == "set"}
    assert {user: quota.producer_ids_rate_milli for user, quota in found.users.items()} == {
        user: rate * 1000 for user, rate in wanted.items()
    }
    assert found.default.producer_ids_rate_milli == 450_000
    assert found.users["mixed"].mode == "observe", "nobody asked for enforcing"
    assert found.users["censored"].mode == "enforce", "it was before"
    assert "+      producer_ids_rate: 57" in (folder / "changes.diff").read_text()


def test_through_ingest_they_are_the_same(rows: Rows, tables: Tables, tmp_path: Path) -> None:
    land(tmp_path / "landed", Cases(thinner=THINNER).all().events())
    commanded("ingest", tables.root, "--landed", str(tmp_path / "landed"))
    only = ("--only", "offenders", "--only", "recommend")
    commanded("run", tables.root, *only, "--heap", "6GiB", "--engine", "local")
    found = {row["user"]: row for row in Tables(None, tables.root).query("recommendations")}
    assert found.keys() == rows.keys()
    for user, row in rows.items():
        for name in (
            "patterns",
            "action",
            "cap_rate",
            "mended_rate",
            "least_rate",
            "ids",
            "rogue_ids",
            "requests",
        ):
            assert found[user][name] == row[name], (user, name)


def test_only_the_days_that_are_asked_for_count(done: Tables) -> None:
    with pytest.raises(HistoryEmpty, match=r"from 2026-12-22 under .*--since"), replacing(done) as run:
        write_recommendations(run, quiet, days=Days(since="2026-12-22"))
    with pytest.raises(HistoryEmpty, match="to 2026-08-20"):
        pass_over(done, Days(until="2026-08-20"), OFFENDERS)


def test_the_command_recommends_nothing_on_a_short_history_and_writes_rates_for_mended_clients(
    tmp_path: Path,
) -> None:
    cases = Cases()
    cases.mixed()
    until_ms = min(row["wall_time_ms"] for row in cases.of["decision"]) + 6 * 3_600_000
    cases.of["decision"] = [row for row in cases.of["decision"] if row["wall_time_ms"] < until_ms]
    cases.write(str(tmp_path))

    def recommend(*options: str) -> dict[str, Any]:
        done = CliRunner().invoke(
            app, ["recommend", "--engine", "local", "--tables", str(tmp_path), "--json", *options]
        )
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.stdout))

    found = recommend()
    assert found["action"] == "none"
    assert found["reasons"] == [
        "too little evidence: 6 h of history with data; a rate needs 7 d (--least-history)"
    ]
    shorter = ("--least-history", "1h", "--candidates", "33")
    assert recommend(*shorter)["recommended_rate"] == found["cap_rate"]
    assert recommend(*shorter, "--after-mending")["recommended_rate"] == found["mended_rate"]
    (row,) = Tables(None, str(tmp_path)).query("recommend_candidates", "from found where candidate_rate = 33")
    assert row["refused_ids"] > 0


def test_findings_or_labels_say_who_is_a_rogue(tmp_path: Path) -> None:
    tables = Tables(None, str(tmp_path))
    places = [
        ("mixed", "rogue-7", "a"),
        ("mixed", "rogue-7", "b"),
        ("mixed", "orders", "a"),
        ("calm", "rogue-7", "a"),
    ]
    write_events(tables.root, "decision", [
        event("decision", user=user, client_id=client_id, address=address, producer_id=number, decision="admit",
              reason="observe", wall_time_ms=MONDAY + number * DAY)
        for number, (user, client_id, address) in enumerate(places, 1)
    ])  # fmt: skip

    def rogues() -> dict[str, int]:
        with replacing(tables) as run:
            write_recommendations(run, quiet)
        return {row["user"]: row["rogue_ids"] for row in tables.query("recommendations")}

    assert rogues() == {"mixed": 0, "calm": 0}
    with replacing(tables) as run:
        harmful = [("mixed", "rogue-7", "a", "restart_loop"), ("other", "orders", "a", "restart_loop")]
        names = ("user", "client_id", "address", "pattern")
        run.write(
            "offenders_places", pa.Table.from_pylist([dict(zip(names, one, strict=True)) for one in harmful])
        )
    assert rogues() == {"mixed": 1, "calm": 0}
    labels = {"user": ["calm"], "producer_id": [4], "healthy": [False], "pattern": ["x"]}
    Path(tables.path("labels_ids")).mkdir()
    pq.write_table(pa.table(labels), tables.path("labels_ids", "part.parquet"))
    assert rogues() == {"mixed": 0, "calm": 1}


@pytest.mark.parametrize("text", ["10;20", "0", "-3", "nan"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(BadOption):
        rates_of(text)


@pytest.mark.parametrize("text", ["6", "20MB", "much"])
def test_heaps_that_are_none(text: str) -> None:
    with pytest.raises(BadOption, match="--heap"):
        heap_of(text)
