"""Which cluster is chosen, and that the reason is said."""

from tests.support.clusters import Choice, Kind, choose, running


def never_asked() -> str | None:
    raise AssertionError("the Docker engine was asked though a cluster was given")


def never_started() -> str:
    raise AssertionError("the embedded cluster was started though another one was chosen")


def test_a_given_cluster_wins_and_nobody_else_is_asked() -> None:
    choice = choose({"PIDGATE_TEST_BOOTSTRAP": " k1:9092,k2:9092 "}, never_asked)
    assert choice == Choice(Kind.GIVEN, "PIDGATE_TEST_BOOTSTRAP=k1:9092,k2:9092", "k1:9092,k2:9092")
    with running(choice, never_started) as bootstrap_servers:
        assert bootstrap_servers == "k1:9092,k2:9092"


def test_else_the_embedded_cluster_with_the_reason() -> None:
    choice = choose({}, lambda: "no Docker engine answers: no such file")
    assert choice.kind is Kind.EMBEDDED
    assert (
        str(choice)
        == "embedded cluster (PIDGATE_TEST_BOOTSTRAP is not set; no Docker engine answers: no such file)"
    )
    with running(choice, lambda: "127.0.0.1:1") as bootstrap_servers:
        assert bootstrap_servers == "127.0.0.1:1"


def _lines(header: str | list[str]) -> list[str]:
    return [header] if isinstance(header, str) else header
