"""Which cluster is chosen, and that the reason is said."""

import pytest

from tests.support.clusters import Choice, Kind, choose, docker_refusal, running


def never_asked() -> str | None:
    raise AssertionError("the Docker engine was asked though a cluster was given")


def never_started() -> str:
    raise AssertionError("the embedded cluster was started though another one was chosen")


def test_a_given_cluster_wins_and_nobody_else_is_asked() -> None:
    choice = choose({"PIDGATE_TEST_BOOTSTRAP": " k1:9092,k2:9092 "}, never_asked)
    assert choice == Choice(Kind.GIVEN, "PIDGATE_TEST_BOOTSTRAP=k1:9092,k2:9092", "k1:9092,k2:9092")
    with running(choice, never_started) as bootstrap_servers:
        assert bootstrap_servers == "k1:9092,k2:9092"


@pytest.mark.parametrize("environment", [{}, {"PIDGATE_TEST_BOOTSTRAP": ""}])
def test_a_container_comes_next_when_an_engine_answers(environment: dict[str, str]) -> None:
    choice = choose(environment, lambda: None)
    assert choice.kind is Kind.CONTAINER
    assert str(choice).startswith(
        "container cluster (PIDGATE_TEST_BOOTSTRAP is not set, a Docker engine answers: "
    )


def test_else_the_embedded_cluster_with_the_reason() -> None:
    choice = choose({}, lambda: "no Docker engine answers: no such file")
    assert choice.kind is Kind.EMBEDDED
    assert (
        str(choice)
        == "embedded cluster (PIDGATE_TEST_BOOTSTRAP is not set; no Docker engine answers: no such file)"
    )
    with running(choice, lambda: "127.0.0.1:1") as bootstrap_servers:
        assert bootstrap_servers == "127.0.0.1:1"


def test_the_engine_is_really_asked() -> None:
    assert docker_refusal("pass") is None


@pytest.mark.parametrize(
    ("ping", "reason"),
    [
        ("raise OSError('no such file')", "no Docker engine answers: OSError: no such file"),
        ("import sys; sys.exit(1)", "no Docker engine answers: no reason given"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_refusal_carries_its_cause(ping: str, reason: str) -> None:
    refusal = docker_refusal(ping)
    assert refusal is not None
    assert reason in refusal


def test_the_header_says_which_cluster_serves(pytestconfig: pytest.Config, cluster_choice: Choice) -> None:
    headers = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=pytestconfig.rootpath)
    assert f"kafka: {cluster_choice}" in [line for header in headers for line in _lines(header)]


def _lines(header: str | list[str]) -> list[str]:
    return [header] if isinstance(header, str) else header
