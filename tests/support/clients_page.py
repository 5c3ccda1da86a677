"""Write the tables of libraries in docs/reference/clients.md: `python -m tests.support.clients_page` (`make docs`)."""

from __future__ import annotations

from typing import Final

from pidgate.client_faults import CLIENT_FAULTS, FEW_TRIES, PATIENCES, ClientFault, Patience
from tests.support.architecture_page import generated
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "clients.md"

TOLD: Final = {
    "kafka-console-producer": "an error on the console, for every record",
    "Java": "`TimeoutException` in the callback, `NotEnoughReplicasException` after `retries`",
    "librdkafka": "`_MSG_TIMED_OUT` in the delivery report, `NOT_ENOUGH_REPLICAS` after the tries",
    "kafka-python 3": "`KafkaTimeoutError` in the future, once (see below); `NotEnoughReplicasError` after `retries`",
    "sarama": "the error 19 on the errors channel; idempotent ones are "
    "[refused at InitProducerId](#libraries-that-a-refusal-harms)",
    "franz-go": "the promise's error",
}
UNNAMED: Final = (
    "| aiokafka | room for a record: 40 s; a batch in flight: no end | `request_timeout_ms` | there is no such "
    "setting | `send()` raises `KafkaTimeoutError` |",
    "| kafkajs | long when idempotent: between 40 and 125 s | `retry.retries` | the same | `send()` rejects |",
)
"""Gateways do not know these libraries, which name themselves nothing in ApiVersions."""


def table() -> str:
    lines = ["| client | what breaks | what to do | the gateway |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {fault.clients} | {fault.breaks} | {fault.remedy} | {_done(fault)} |" for fault in CLIENT_FAULTS
    ]
    return "\n".join(lines)


def _done(fault: ClientFault) -> str:
    if fault.is_refused_at_init:
        return "refuses it at InitProducerId, not at Produce"
    return "treats it as any client" if fault.is_told_throttle else "mutes it, and tells no throttle"


def patience() -> str:
    head = (
        "client",
        "gives up a refused record",
        "setting",
        f"with {FEW_TRIES} tries",
        "the application is told",
    )
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return "\n".join((*lines, *map(_row, PATIENCES), *UNNAMED))


def _row(row: Patience) -> str:
    end = "never" if row.seconds is None else f"after {row.seconds} s"
    tries = f"after {row.tries_s} s (`{row.tries}`)" if row.tries else "its default"
    return f"| {row.family} | {end} | `{row.setting}` | {tries} | {TOLD[row.family]} |"


PARTS: Final = {"harmed": table, "patience": patience}


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8"), PARTS), "utf-8")
