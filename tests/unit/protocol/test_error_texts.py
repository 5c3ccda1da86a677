"""Error texts of brokers, which quote listeners and endpoints."""

from __future__ import annotations

import time

import pytest

from pidgate.protocol import codec
from pidgate.protocol.error_texts import HIDDEN, WITH_ERROR_TEXTS, hide_hosts
from pidgate.protocol.errors import FrameTooLarge
from tests.support import raw

INCREMENTAL_ALTER_CONFIGS = 44
HOSTS = {"k1.internal", "kafka", "10.1.2.3", "fe80::1"}


def shown(text: str, resource: str = "kafka", version: int = 1) -> str:
    """The text that a client sees; all else is as the broker wrote it."""
    body = {
        "throttle_time_ms": 7,
        "responses": [
            {"error_code": 40, "error_message": text, "resource_type": 4, "resource_name": resource},
            {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "kafka"},
        ],
    }
    frame = raw.response(INCREMENTAL_ALTER_CONFIGS, version, body)
    hidden = hide_hosts(INCREMENTAL_ALTER_CONFIGS, version, frame, 4, len(frame), HOSTS)
    found = raw.decoded(INCREMENTAL_ALTER_CONFIGS, version, (hidden or frame)[4:])
    first, second = found["responses"]
    assert (found["throttle_time_ms"], first["resource_name"]) == (7, resource)
    assert (second["error_message"], second["resource_name"]) == (None, "kafka")
    return str(first["error_message"])


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listeners=SSL://k1.internal:9093", f"listeners=SSL://{HIDDEN}:9093"),
        ("k1.internal:9093 is used", f"{HIDDEN}:9093 is used"),
        (
            "Endpoint(listenerName='X', host='10.1.2.3', port=9092)",
            f"Endpoint(listenerName='X', host='{HIDDEN}', port=9092)",
        ),
        ("PLAINTEXT://[fe80::1]:9092,A://kafka:1", f"PLAINTEXT://[{HIDDEN}]:9092,A://{HIDDEN}:1"),
        ("kafka-topic, my.kafka and k1.internal.example are others", None),
        ("no address", None),
    ],
)
def test_hosts_of_brokers_are_hidden_in_error_texts_alone(text: str, said: str | None, version: int) -> None:
    assert shown(text, version=version) == (said or text)


def test_an_answer_without_an_error_text_is_unchanged() -> None:
    body = {"responses": [{"error_message": None, "resource_type": 2, "resource_name": "kafka"}]}
    frame = raw.response(INCREMENTAL_ALTER_CONFIGS, 1, body)
    assert hide_hosts(INCREMENTAL_ALTER_CONFIGS, 1, frame, 4, len(frame), HOSTS) is None


def test_a_long_answer_with_a_host_is_not_shown_and_others_take_little_time() -> None:
    def long(text: str) -> bytes:
        entries = [{"error_message": text, "resource_type": 4, "resource_name": "1"}] * 40
        return raw.response(INCREMENTAL_ALTER_CONFIGS, 1, {"responses": entries})

    frame = long("x " * 1_000 + "k1.internal:9092")
    with pytest.raises(FrameTooLarge):
        hide_hosts(INCREMENTAL_ALTER_CONFIGS, 1, frame, 4, len(frame), HOSTS)
    for text in ("a" * 30_000, ":" * 30_000, "a." * 15_000, "a:" * 15_000, "kafka-" * 5_000):
        frame = long(text)
        began_s = time.process_time()
        assert hide_hosts(INCREMENTAL_ALTER_CONFIGS, 1, frame, 4, len(frame), HOSTS) is None
        assert time.process_time() - began_s < 1


def test_every_api_of_the_table_has_an_error_text() -> None:
    for api_key in WITH_ERROR_TEXTS:
        assert "error_message" in _names(codec.message_class(api_key, "response"))


def _names(struct: object) -> list[str]:
    found = list[str]()
    for field in struct._struct._fields:  # type: ignore[attr-defined]
        found.append(field.name)
        if field.is_struct_array() or field.is_struct():
            found += _names(getattr(struct, field.type_str))
    return found
