"""What is asked of the resolver."""

from sandbox.jars import endpoint


def test_kafka_4_gets_a_log_binding() -> None:
    assert endpoint("4.3.1") == (
        "org.apache.kafka:kafka_2.13:4.3.1+org.apache.kafka:kafka-tools:4.3.1+org.slf4j:slf4j-simple:1.7.36"
    )


def test_kafka_3_9_brings_its_own() -> None:
    assert endpoint("3.9.1") == "org.apache.kafka:kafka_2.13:3.9.1+org.apache.kafka:kafka-tools:3.9.1"
