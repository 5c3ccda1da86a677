"""Each pattern is found in events written by hand, its look-alikes are told from it, and it is said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from pidgate.findings.features import Span
from pidgate.findings.patterns import Pattern
from pidgate.pipeline.offenders.findings import judged_sources, prepared
from pidgate.pipeline.passes import OFFENDERS, Pass
from tests.pipeline.made_events import DAY, results, rows_of_events, tables_of
from tests.pipeline.reference import sources
from tests.support.offender_events import Scenes
from tests.support.who_events import HOUR_MS, START_MS, Client

Found = dict[str, dict[str, dict[str, Any]]]
Places = dict[str, dict[tuple[str, str], str]]


def scenes() -> Scenes:
    made = Scenes()
    made.restart_loop(Client(user="loop", client_id="billing-7", address="10.0.3.4"))
    made.supervised(Client(user="supervised", client_id="feed", address="10.0.3.5"))
    made.crashing_beside(Client(user="crashing", client_id="feed", address="10.0.3.5"))
    made.pool(Client(user="pool", client_id="feed", address="10.0.3.5"))
    made.per_error(Client(user="error", client_id="import", address="10.0.3.6"))
    made.per_error(Client(user="no error", client_id="import", address="10.0.3.6"), told=False)
    made.per_batch(Client(user="batch", client_id="producer", address="10.0.3.7"))
    made.per_batch(Client(user="tasks", client_id="producer", address="10.0.3.7"), requests=30)
    made.random_transactional_ids(Client(user="transactional", client_id="tx", address="10.0.3.8"))
    made.steady("steady")
    made.rolling("rolling")
    made.autoscaling("autoscaling")
    made.cron_job("cron")
    made.shared_address("nat")
    made.shared_client_id("alike")
    made.now_and_then("notebook")
    made.one(Client(user="once", client_id="console"), START_MS + 5 * HOUR_MS, life_ms=4_000)
    made.steady("both")
    made.per_batch(Client(user="both", client_id="export", address="10.1.0.1"))
    made.steady("hosts")
    for host in range(3):
        made.per_batch(Client(user="hosts", client_id="load", address=f"10.2.0.{host}"), 40 + 10 * host)
    made.steady("pods")
    made.per_batch_in_pods("pods")
    made.steady("refused")
    made.per_batch(Client(user="refused", client_id="load", address="10.2.0.9"))
    for number in range(12):
        one_of_them = Client(user="refused", client_id="load-7", address="10.2.0.9")
        at_ms = START_MS + 48 * HOUR_MS + number * 5_000
        made.stream.decide(
            one_of_them, at_ms, made.stream.allocate(one_of_them, at_ms), "refuse", "first_seen"
        )
    made.shared_address("rogue in nat")
    made.restart_loop(Client(user="rogue in nat", client_id="shop3", address="192.0.2.1"))
    made.now_and_again(Client(user="cut", client_id="agent", address="10.0.3.9"), "reset")
    made.now_and_again(Client(user="closed", client_id="agent", address="10.0.3.9"), "client")
    made.now_and_again(Client(user="idle", client_id="agent", address="10.0.3.9"), "idle")
    made.flushes(Client(user="flushes", client_id="kafka", address="10.0.3.10"))
    made.kept_alive(Client(user="bridge", client_id="producer", address="10.0.3.11"))
    made.events_of_tasks(Client(user="lineage", client_id="rdkafka", address="10.0.3.12"))
    made.released("released")
    made.seldom_used("seldom")
    made.office("office", "desk-{}", "192.0.2.9")
    made.office("tills", "till", "10.6.0.{}")
    made.export("export")
    return made


@pytest.fixture(scope="module")
def judged() -> tuple[Found, Places]:
    tables = results(rows_of_events(scenes().stream.events()), OFFENDERS)
    found: Found = {}
    for row in tables["offenders"]:
        found.setdefault(row["user"], {})[row["pattern"]] = row
    places: Places = {}
    for row in tables["offenders_places"]:
        places.setdefault(row["user"], {})[row["client_id"], row["address"]] = row["pattern"]
    return found, places


@pytest.fixture(scope="module")
def found(judged: tuple[Found, Places]) -> Found:
    return judged[0]


@pytest.fixture(scope="module")
def places(judged: tuple[Found, Places]) -> Places:
    return judged[1]


def test_the_features_of_sources_are_those_of_the_reference() -> None:
    rows = rows_of_events(scenes().stream.events())
    todo = Pass((OFFENDERS,), remember_ms=DAY, expiry_ms=DAY)
    partial = todo.of_bucket(tables_of(rows, todo.by_id))
    with prepared(partial | tables_of(rows, todo.by_user), Span(START_MS, START_MS + DAY)) as kernel:
        kernel.run("offenders/sources")
        found = {
            (row["user"], row["client"], row["address"], row["new_ids"]): row
            for row in judged_sources(kernel)
        }
    expected = sources(rows, DAY)
    assert len(found) == len(expected) > 30
    for (user, _, _, client, address), features in expected.items():
        row = found[user, client, address, features["new_ids"]]
        for name, value in features.items():
            # Of two clocks that fit alike, rounding chooses; times are whole milliseconds in tables.
            if name not in {"clock_ms", "clock_periods"}:
                allowed = 1 if name.endswith("_ms") else 1e-6
                wanted = value if value is None else pytest.approx(value, rel=1e-6, abs=allowed)
                assert row.get(name) == wanted, (user, name)


@pytest.mark.parametrize(
    ("user", "patterns"),
    [
        ("loop", {Pattern.RESTART_LOOP}),
        ("supervised", {Pattern.RESTART_LOOP}),
        # Told apart by the ends of their connections; workers of a pool pause as long as there is no work.
        ("crashing", {Pattern.RESTART_LOOP}),
        ("pool", {Pattern.UNKNOWN}),
        ("error", {Pattern.PRODUCER_PER_ERROR}),
        ("batch", {Pattern.PRODUCER_PER_BATCH}),
        ("transactional", {Pattern.RANDOM_TRANSACTIONAL_IDS}),
        ("steady", {Pattern.STEADY}),
        ("rolling", {Pattern.ROLLING_DEPLOYMENT}),
        ("autoscaling", {Pattern.AUTOSCALING}),
        ("cron", {Pattern.CRON_JOB}),
        ("nat", {Pattern.SHARED_ADDRESS}),
        ("alike", {Pattern.SHARED_CLIENT_ID}),
        ("notebook", {Pattern.UNKNOWN}),
        # What a client cut is a process that died; what it closed, or what the gateway closed, is not.
        ("cut", {Pattern.RESTART_LOOP}),
        ("closed", {Pattern.UNKNOWN}),
        ("idle", {Pattern.UNKNOWN}),
        # At a beat, and no process starts for so little.
        ("flushes", {Pattern.PRODUCER_PER_BATCH}),
        ("bridge", {Pattern.PRODUCER_PER_BATCH}),
        # By the clock, and more producers than a job needs.
        ("lineage", {Pattern.PRODUCER_PER_BATCH}),
        ("released", {Pattern.ROLLING_DEPLOYMENT}),
        ("seldom", {Pattern.ROLLING_DEPLOYMENT}),
        # People come at about the same time each day, and that is neither a clock nor a load.
        ("office", {Pattern.SHARED_ADDRESS}),
        ("tills", {Pattern.SHARED_CLIENT_ID}),
        ("export", {Pattern.CRON_JOB}),
        ("once", {Pattern.UNKNOWN}),
        ("both", {Pattern.STEADY, Pattern.PRODUCER_PER_BATCH}),
        ("hosts", {Pattern.STEADY, Pattern.PRODUCER_PER_BATCH}),
        ("pods", {Pattern.STEADY, Pattern.PRODUCER_PER_BATCH}),
        ("rogue in nat", {Pattern.SHARED_ADDRESS, Pattern.RESTART_LOOP}),
        # Without the errors, nothing says that it was one: a process that opens producers one after another.
        ("no error", {Pattern.UNKNOWN}),
        # Thirty requests each: a producer per task, not per batch.
        ("tasks", {Pattern.PRODUCER_PER_TASK}),
    ],
)
def test_each_user_shows_what_was_written(found: Found, user: str, patterns: set[Pattern]) -> None:
    assert set(found[user]) == set(patterns)


def test_a_finding_says_who_where_how_many_and_for_how_long(found: Found) -> None:
    batch = found["both"][Pattern.PRODUCER_PER_BATCH]
    assert batch["sentence"] == (
        "both's clients export-* at 10.1.0.1 open a producer per batch: 200 new ids in 1.2 h, 100 % of them sent one "
        "request, 100 % lived under a second"
    )
    assert batch["harmful"]
    assert round(batch["share"], 3) == round(200 / 203, 3)
    assert (batch["client_id"], batch["address"], batch["new_ids"]) == ("export-*", "10.1.0.1", 200)
    assert batch["evidence"]["one_request"] == "1.0"
    loop = found["loop"][Pattern.RESTART_LOOP]
    assert loop["sentence"].startswith(
        "loop's client billing-7 at 10.0.3.4 is in a restart loop: 40 starts, one after the other, every 4 min, with "
        "growing pauses, 40 new ids in 3 h"
    )
    assert found["error"][Pattern.PRODUCER_PER_ERROR]["evidence"]["error_code"] == "10"
    assert not found["nat"][Pattern.SHARED_ADDRESS]["harmful"]


def test_every_user_is_told_of_and_no_sentence_lacks_a_word(found: Found) -> None:
    rows = [row for of_user in found.values() for row in of_user.values()]
    assert len(found) == 33
    assert not [row["sentence"] for row in rows if "?" in row["sentence"] or "{" in row["sentence"]]
    for of_user in found.values():
        assert 0.99 < sum(row["share"] for row in of_user.values()) < 1.01


def test_each_harmful_place_is_told_and_no_other(places: Places) -> None:
    """A finding names its largest source; the others are as harmful, and none of them makes a healthy place so."""
    batch = Pattern.PRODUCER_PER_BATCH
    assert places["hosts"] == {
        (f"load-{number}", f"10.2.0.{host}"): batch for host in range(3) for number in range(40 + 10 * host)
    }
    assert {address for _, address in places["pods"]} == {f"10.3.0.{number}" for number in range(200)}
    assert places["refused"] == {(f"load-{number}", "10.2.0.9"): batch for number in range(200)}
    assert set(places["rogue in nat"].items()) == {(("shop3", "192.0.2.1"), Pattern.RESTART_LOOP)}
    assert not {"steady", "rolling", "autoscaling", "nat", "closed"} & set(places)
