"""What the tests of several examples need: the files that they name, and a check that their quota is enforced."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from tests.support.running_producers import until
from tools.sandbox.certificates import Authority, Pair
from tools.sandbox.gateway import GatewayProcess

TLS_FILES: Final = "/etc/pidgate/"


def write_tls_files(example: str, folder: Path, authority: Authority | None = None) -> None:
    """Write the token, and each certificate, key and CA of one authority, that the text names into the folder."""
    authority = authority or Authority(folder)
    pairs = dict[str, Pair]()
    for name in sorted(set(re.findall(TLS_FILES + r"([\w.-]+)", example))):
        if name.startswith("token"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text("secret\n")
            continue
        stem, _, end = name.rpartition(".")
        if end == "pem":
            shutil.copy(authority.ca_file, folder / name)
            continue
        pair = pairs[stem] = pairs.get(stem) or authority.issue(f"example-{stem}")
        shutil.copy(pair.cert_file if end == "crt" else pair.key_file, folder / name)


def with_rates_of_one(quotas: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example's quotas without grace and with each rate at 1: the third producer id of a user is refused."""

    def lowered(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: 1 if key == "producer_ids_rate" else lowered(inner) for key, inner in value.items()}

    return {**lowered(dict(quotas)), "producer_ids": {"grace": "0s"}}


def third_id_is_refused(gateway: GatewayProcess, config: Mapping[str, Any], topic: str) -> None:
    """Three producers of librdkafka, one after the other, behind a gateway with rates of 1."""
    refused = "pidgate_requests_refused_total"
    for _ in range(2):
        producer = Producer({**config, "enable.idempotence": True})
        producer.produce(topic, b"by example")
        assert producer.flush(30) == 0
    assert gateway.metrics().value(refused) == 0
    third = Producer({**config, "enable.idempotence": True})
    third.produce(topic, b"one too many")
    until(lambda: (third.poll(0.1), gateway.metrics().value(refused))[1], 30)
    third.purge()
