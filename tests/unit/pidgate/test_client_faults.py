"""The table of client libraries that a refusal harms: who is recognised, by the names that clients really send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidgate.client_faults import (
    CLIENT_FAULTS,
    JAVA,
    ORDINARY,
    RDKAFKA,
    ClientTraits,
    find_faults,
    library_of,
    patience_of,
    traits_of,
)
from tests.clients.roster import GIVES_UP
from tests.support import clients_page


def faults(name: str, version: str, client_id: str = "") -> list[str]:
    return [fault.key for fault in find_faults(name, version, client_id)]


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("confluent-kafka-python", "2.4.0-rdkafka-2.4.0", ["librdkafka_2_2"]),
        ("confluent-kafka-python", "2.3.0-rdkafka-2.3.0", ["librdkafka_2_2"]),
        ("confluent-kafka-go", "v2.4.0-librdkafka-v2.4.0", ["librdkafka_2_2"]),
        ("librdkafka", "2.2.0", ["librdkafka_2_2"]),
        ("rdkafka", "2.4.1-RC1", ["librdkafka_2_2"]),
        ("confluent-kafka-python", "2.0.2-rdkafka-2.0.2", []),
        ("confluent-kafka-python", "2.5.0-rdkafka-2.5.0", []),
        ("confluent-kafka-python", "2.4.0-rdkafka-2.16.0", []),
        ("librdkafka", "dev", []),
        ("librdkafka", "2.4", []),
        ("librdkafka", "999999999999999999999.4.0", []),
        ("sarama", "dev", ["sarama"]),
        ("sarama", "v1.61.1", ["sarama"]),
        ("kgo", "v1.18.0", []),
        ("apache-kafka-java", "2.4.0", []),
        ("", "", []),
    ],
)
def test_a_library_is_recognised_by_its_own_version(name: str, version: str, found: list[str]) -> None:
    assert faults(name, version) == found


def test_one_program_of_a_library_is_recognised_by_its_client_id() -> None:
    assert faults("apache-kafka-java", "3.9.1", "console-producer") == ["java_console_producer"]
    assert faults("apache-kafka-java", "3.9.1", "producer-1") == []
    assert faults("other", "3.9.1", "console-producer") == []
    assert faults("", "", "sarama") == ["sarama_without_name"]
    assert faults("kgo", "v1.18.0", "sarama") == []


def test_a_gateway_does_something_only_where_the_table_says_so() -> None:
    assert traits_of("", "", "") is ORDINARY
    assert traits_of("librdkafka", "2.4.0", "").is_refused_at_init
    assert not traits_of("sarama", "dev", "").is_told_throttle
    assert traits_of("platformatic-kafka", "1.0.0", "") == ORDINARY
    assert traits_of("librdkafka", "2.16.0", "") == ClientTraits(patience_ms=300_000)


def test_every_row_has_a_label_of_its_own_and_says_what_to_do() -> None:
    assert len({fault.key for fault in CLIENT_FAULTS}) == len(CLIENT_FAULTS)
    assert all(fault.breaks and fault.remedy for fault in CLIENT_FAULTS)


@given(st.text(max_size=300), st.text(max_size=300))
def test_whatever_a_client_calls_itself_is_read(name: str, version: str) -> None:
    library, number = library_of(name, version)
    assert library in (name, RDKAFKA)
    assert number is None or len(number) == 3
    find_faults(name, version, name)


def test_the_page_has_the_tables_of_the_code() -> None:
    page = clients_page.PAGE.read_text("utf-8")
    assert all(part() in page for part in clients_page.PARTS.values()), "run make docs"


def test_the_console_producer_is_told_from_other_clients_of_its_library() -> None:
    assert traits_of(JAVA, "3.9.1", "console-producer").patience_ms == 30_000
    assert traits_of(JAVA, "3.9.1", "orders").patience_ms == 120_000


DRIVERS = {"java": JAVA, "confluent-kafka": RDKAFKA, "kafka-python": "kafka-python", "franz-go": "kgo"}
"""The families of tests/clients/test_patience.py whose library is in the table and is refused at Produce."""


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_table_says_what_was_measured(driver: str) -> None:
    patience = patience_of(DRIVERS[driver], "1.0.0", "")
    assert patience is not None
    for trial, gave_up in GIVES_UP.items():
        if not trial.give_up_s and not trial.awaits_s:
            end_s = patience.tries_s if trial.retries else patience.seconds
            assert (driver in gave_up) == (end_s is not None and end_s < trial.seconds), trial


def test_a_patience_is_said_with_its_settings() -> None:
    java, franz = patience_of(JAVA, "3.9.1", "orders"), patience_of("kgo", "1.17.0", "")
    assert java is not None
    assert franz is not None
    assert java.sentence() == (
        "gives up a refused record after 120 s by its default (delivery.timeout.ms); after 30 s with retries 3"
    )
    assert franz.sentence() == (
        "tries a refused record without end by its default (RecordDeliveryTimeout); after 30 s with RecordRetries 3"
    )
