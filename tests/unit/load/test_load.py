"""`pidgate load` but for its connections: the command line, the schedule, the report, the login."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from typer.testing import CliRunner

from pidgate.cli.app import app
from pidgate.cli.load import plan_of
from pidgate.cli.options import LoadOptions
from pidgate.gateway.config.loading import ConfigError
from pidgate.load.pacing import schedule
from pidgate.load.plan import Clients, Kind, Login, Plan
from pidgate.load.report import notes, report
from pidgate.load.running import Result
from pidgate.load.tally import Latency, Tally
from pidgate.protocol.logins import LoginRefused, tokens

# The command line


def asked(*clients: str, **given: Any) -> LoadOptions:
    return LoadOptions(
        **{"topic": "t", "bootstrap_servers": "gateway:9292", "clients": list(clients) or None, **given}
    )


def test_the_gateway_of_a_file_is_the_one_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "pidgate.yaml"
    file.write_text(
        "cluster: {bootstrap_servers: ['kafka:9092']}\nlisteners: [{bind: '0.0.0.0:7000', advertise: gw}]"
    )
    assert plan_of(asked(bootstrap_servers=None, config=file)).bootstrap == (("127.0.0.1", 7000),)


def kafka_config(folder: Path, *lines: str) -> Path:
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize(
    "lines",
    [
        ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=alice", "sasl.password=s3cret, word"),
        (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=SCRAM-SHA-512",
            'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
            'password="s3cret, word";',
        ),
    ],
)
def test_the_login_comes_from_the_properties_of_a_kafka_client(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    plan = plan_of(asked(kafka_config=kafka_config(tmp_path, *lines)))
    assert plan.login == Login("alice", "s3cret, word", "SCRAM-SHA-512")
    assert plan.tls is None
    assert "s3cret" not in repr(plan)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"bootstrap_servers": None}, "--bootstrap-servers: is missing"),
        ({"bootstrap_servers": "gateway"}, "--bootstrap-servers"),
        ({"config": Path("f.yaml")}, "--bootstrap-servers: does not go with --config"),
        ({"topic": "a topic"}, "--topic"),
        ({"clients": ["bad=1"]}, "--clients: 'bad=1'; write KIND=N"),
        ({"clients": ["steady"]}, "--clients"),
        ({"clients": ["fetch=1"]}, "--clients"),
        ({"clients": ["steady=1@fast"]}, "--clients"),
        ({"clients": ["steady=1@0"]}, "--clients: 'steady=1@0': the rate is 0"),
        ({"clients": ["steady=0"]}, "--clients: 'steady=0': there are none"),
        ({"clients": ["steady=1", "steady=2"]}, "--clients: 'steady=2': a kind is given once"),
        ({"duration": "10"}, "--duration"),
        ({"duration": "0s"}, "--duration"),
        ({"batch": "many"}, "--batch"),
        ({"batch": "0x1"}, "--batch"),
        ({"batch": "2x60MiB"}, "--batch: '2x60MiB' is above 64MiB"),
        ({"kafka_config": Path("/nowhere/p")}, "--kafka-config: /nowhere/p cannot be read"),
        ({"delivery_timeout": "soon"}, "--delivery-timeout"),
        ({"drain": "-1s"}, "--drain"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(LoadOptions(**{"topic": "t", "bootstrap_servers": "gateway:9292", **given}))
    assert str(caught.value).startswith(option)


def test_other_mechanisms_are_refused(tmp_path: Path) -> None:
    lines = ("sasl.mechanism=GSSAPI", "sasl.username=alice", "sasl.password=p")
    with pytest.raises(ConfigError, match=r"--kafka-config: sasl\.mechanism=GSSAPI; use PLAIN"):
        plan_of(asked(kafka_config=kafka_config(tmp_path, *lines)))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--topic", "t"], 2),
        (["--bootstrap-servers", "127.0.0.1:1"], 2),
        (["--topic", "t", "--bootstrap-servers", "127.0.0.1:1", "--create-topic", "-1"], 2),
        (["--topic", "t", "--bootstrap-servers", "127.0.0.1:1"], 1),
    ],
)
def test_exit_codes_without_a_broker(arguments: list[str], code: int) -> None:
    answer = CliRunner().invoke(app, ["load", *arguments])
    assert answer.exit_code == code
    assert answer.stdout == ""
    assert answer.stderr


def test_the_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["load", "--help"]).stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert len(fields(LoadOptions)) <= 12


# The schedule


def test_the_seed_says_when_each_kind_begins() -> None:
    rates = dict.fromkeys(map(str, Kind), 10.0)
    assert list(schedule(rates, 1.0, seed=1)) == list(schedule(rates, 1.0, seed=1))
    assert list(schedule(rates, 1.0, seed=1)) != list(schedule(rates, 1.0, seed=2))
    firsts = {kind: due for due, kind, number in schedule(rates, 1.0, seed=1) if number == 0}
    assert len(set(firsts.values())) == len(Kind)


# The report


def result_of(tallies: dict[str, Tally], seconds: float = 4.0, own_delay_s: float = 0.0001) -> Result:
    plan = Plan(
        bootstrap=(("127.0.0.1", 9292),),
        topic="orders",
        clients={Kind(kind): Clients(2, 5.0) for kind in tallies},
        login=Login("alice", "s3cret"),
    )
    own_delay = Latency()
    own_delay.record(own_delay_s)
    return Result(plan, tallies, seconds, own_delay, 0, was_stopped=False)


def good(latencies_ms: range) -> Tally:
    tally = Tally()
    for latency_ms in latencies_ms:
        tally.due += 1
        tally.requests += 1
        tally.count_first_send(1.0, 1.0)
        tally.count_acknowledged(1.0, 1.0 + latency_ms / 1_000, 3, 300)
    return tally


def bad() -> Tally:
    tally = Tally(due=8, requests=10, resent=2, lost=4, possibly_doubled=1, ids=9, connections=11)
    tally.count_first_send(0.0, 0.011)
    for throttle_time_ms, code in ((500, 19), (0, 19), (0, 6)):
        tally.count_throttle(throttle_time_ms)
        tally.count_refusal(code, has_throttle=throttle_time_ms > 0)
    tally.ids_refused[14] += 2
    tally.count_unfinished(2.0, 7.0)
    return tally


def test_the_report_adds_up() -> None:
    told = report(result_of({Kind.STEADY: good(range(1, 101)), Kind.CRASH_LOOP: bad()}))
    assert json.loads(json.dumps(told)) == told
    both, well, crash = told["total"], told["kinds"]["steady"], told["kinds"]["crash-loop"]
    for name, value in both.items():
        if isinstance(value, int) and name != "bytes_per_s":
            assert value == well[name] + crash[name], name
    assert (well["acknowledged"], well["records"], well["bytes"]) == (100, 300, 30_000)
    assert (well["acknowledged_per_s"], well["bytes_per_s"]) == (25.0, 7_500)
    assert crash["refused"] == {"6": 1, "19": 2}
    assert crash["refused_with_throttle"] == 1
    assert (crash["ids_refused"], crash["ids"], crash["throttle_s"]) == ({"14": 2}, 9, 0.5)
    assert crash["sent_late_ms"]["max"] == pytest.approx(11, rel=0.002)
    assert crash["unfinished"] == 1


def test_percentiles_are_those_of_all_that_was_due() -> None:
    told = report(result_of({Kind.STEADY: good(range(1, 101)), Kind.CRASH_LOOP: bad()}))
    well = told["kinds"]["steady"]["latency_ms"]
    assert well["count"] == 100
    assert [well[name] for name in ("p50", "p90", "p99", "max")] == pytest.approx(
        [50, 90, 99, 100], rel=0.002
    )
    assert told["total"]["latency_ms"]["max"] == pytest.approx(5_000, rel=0.002)
    read = HdrHistogram.decode(told["kinds"]["steady"]["latency_hdr"])
    assert read.get_total_count() == 100
    assert read.get_value_at_percentile(50) == pytest.approx(50_000, rel=0.002)


def test_nothing_of_the_warm_up_is_counted() -> None:
    tally = good(range(1, 11))
    tally.restart(2.0)
    for due_s in (1.9, 2.0):
        tally.count_due(due_s)
        tally.count_first_send(due_s, due_s)
        tally.count_acknowledged(due_s, 3.0, 1, 10)
        tally.count_lost(due_s)
        tally.count_unfinished(due_s, 3.0)
    assert (tally.due, tally.acknowledged, tally.bytes, tally.lost, tally.unfinished) == (1, 1, 10, 1, 1)
    assert (tally.latency.count, tally.sent_late.count) == (2, 1)


def test_nothing_acknowledged_has_no_latency() -> None:
    told = report(result_of({Kind.STEADY: Tally()}, seconds=0.0))
    assert told["total"]["latency_ms"] == {
        "count": 0,
        "p50": None,
        "p90": None,
        "p99": None,
        "p99_9": None,
        "max": None,
    }
    assert told["total"]["acknowledged_per_s"] == 0


def test_a_generator_that_is_late_itself_says_so() -> None:
    assert notes(result_of({Kind.STEADY: good(range(1, 2))})) == []
    (note,) = notes(result_of({Kind.STEADY: good(range(1, 2))}, own_delay_s=0.02))
    assert note.startswith("The generator itself was 20.0 ms late")


# The login


def test_scram_as_in_rfc_7677() -> None:
    exchange = tokens("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server_first = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.send(server_first) == f"c=biws,r={nonce},p={proof}".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "answers",
    [
        [b"e=other-error"],
        [b"r=somebody,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"],
        [b"r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=16385"],
        [b"r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\xff"],
        [b"r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"v=" + base64.b64encode(bytes(32))],
        [b"r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"v=\xff"],
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(answers: list[bytes]) -> None:
    exchange = tokens("SCRAM-SHA-512", "us=er,", "pencil", "mine")
    assert next(exchange) == b"n,,n=us=3Der=2C,r=mine"
    for answer in answers[:-1]:
        exchange.send(answer)
    with pytest.raises(LoginRefused):
        exchange.send(answers[-1])
