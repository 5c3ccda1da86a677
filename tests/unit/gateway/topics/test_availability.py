"""aiokafka: not loaded before it is needed, quiet, its last complaint remembered; causes in words; credentials."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pidgate.gateway.config import loading
from pidgate.gateway.config.password_file import CredentialsUnreadable
from pidgate.gateway.config.settings import SaslSettings
from pidgate.gateway.topics import availability
from pidgate.gateway.topics.availability import (
    FIRST_RETRY_S,
    LONGEST_RETRY_S,
    Availability,
    Cause,
    explain_error,
    quieten_aiokafka,
)
from pidgate.gateway.topics.own_client import OwnClient


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(availability, "monotonic_s", made.monotonic)
    return made


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """What reaches the gateway's log; aiokafka's loggers as they were afterwards."""
    library, root = logging.getLogger("aiokafka"), logging.getLogger()
    before = list(library.handlers), library.propagate, library.level
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)
    library.handlers[:], library.propagate = before[0], before[1]
    library.setLevel(before[2])


def test_the_gateway_loads_without_aiokafka() -> None:
    script = (
        "import sys, pidgate.gateway.process.server, pidgate.gateway.state.publisher, pidgate.gateway.topics.follower,"
        " pidgate.gateway.state.event_applier, pidgate.gateway.state.fleet;"
        "sys.exit('aiokafka' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


class TestLibraryLog:
    def test_a_fault_in_the_library_is_passed_on_now_and_then(
        self, clock: Clock, root_log: io.StringIO
    ) -> None:
        quieten_aiokafka()
        for _ in range(3):
            try:
                raise ZeroDivisionError
            except ZeroDivisionError:
                logging.getLogger("aiokafka.producer.sender").exception("unexpected")
        assert root_log.getvalue().count("unexpected\nTraceback") == 1
        clock.now_s += availability.UNEXPECTED_EVERY_S + 1
        logging.getLogger("aiokafka").error("again", exc_info=ZeroDivisionError())
        assert root_log.getvalue().splitlines()[-2:] == ["again", "ZeroDivisionError"]


class TestAvailability:
    def test_attempts_come_less_and_less_often_until_one_succeeds(self, clock: Clock) -> None:
        state = Availability("events", "reading")
        with capture_logs():
            waits = [state.record_failure(Cause("", "")) for _ in range(10)]
            assert waits[:3] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
            assert waits[-1] == LONGEST_RETRY_S
            state.record_success()
            assert state.record_failure(Cause("", "")) == FIRST_RETRY_S


class TestCauses:
    @pytest.mark.parametrize(
        ("name", "text", "remedy"),
        [
            ("TopicAuthorizationFailedError", "[Error 29]", "Write and Describe on topic events"),
            ("KafkaConnectionError", "[Error 58] SaslAuthenticationFailed", "own_client"),
            ("UnknownTopicOrPartitionError", "", "create topic events"),
            ("NotEnoughReplicasError", "", "min.insync.replicas"),
            ("UnsupportedCodecError", "", "compression.type"),
            ("KafkaConnectionError", "Unable to bootstrap", "bootstrap_servers"),
            ("SomethingNew", "", "bootstrap_servers"),
        ],
    )
    def test_each_has_its_remedy(self, clock: Clock, name: str, text: str, remedy: str) -> None:
        clock.now_s += 1_000_000
        error = type(name, (RuntimeError,), {})(text)
        found = explain_error(error, "writing", "events")
        assert remedy in found.remedy
        assert found.cause == (text or name)

    def test_an_error_that_says_little_is_told_with_the_librarys_last_complaint(
        self, clock: Clock, root_log: io.StringIO
    ) -> None:
        quieten_aiokafka()
        logging.getLogger("aiokafka").error("Unable connect: [Error 58] SaslAuthenticationFailed")
        error = type("KafkaConnectionError", (RuntimeError,), {})("Unable to bootstrap")
        found = explain_error(error, "reading", "events")
        assert found.cause == "Unable to bootstrap; Unable connect: [Error 58] SaslAuthenticationFailed"
        assert "own_client" in found.remedy


class TestOwnClient:
    def test_arguments_out_of_the_settings(self, tmp_path: Path) -> None:
        password = tmp_path / "password"
        password.write_text("se cret \n")
        file = tmp_path / "pidgate.yaml"
        file.write_text(
            "cluster: {bootstrap_servers: ['kafka-1:9092', '[::1]:9093']}\n"
            f"own_client: {{mechanism: SCRAM-SHA-512, username: pidgate, password_file: {password}}}\n"
        )
        client = OwnClient.from_settings(loading.load(file))
        assert client.arguments() == {
            "bootstrap_servers": ["kafka-1:9092", "[::1]:9093"],
            "client_id": "pidgate",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "pidgate",
            "sasl_plain_password": "se cret ",
        }
        password.write_text("new")
        assert client.arguments()["sasl_plain_password"] == "new"
        assert "cret" not in repr(client)

    def test_without_sasl_there_is_nothing_to_read(self) -> None:
        assert OwnClient(["kafka:9092"]).arguments("who") == {
            "bootstrap_servers": ["kafka:9092"],
            "client_id": "who",
        }

    def test_a_password_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        sasl = SaslSettings(mechanism="PLAIN", username="u", password_file=str(tmp_path / "none"))
        with pytest.raises(CredentialsUnreadable, match=r"password_file: .*none"):
            OwnClient([], sasl).arguments()
