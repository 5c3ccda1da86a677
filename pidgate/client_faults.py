"""Client libraries that a refusal or a told throttle harms, by version. PURE.

The one table of them: the gateway's decisions, its log and metric, `who`, `check` and docs/reference/clients.md read
it. It chooses where a client of a user over quota meets its refusal, never whether: anybody can claim any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Version = tuple[int, int, int]

# At most 6 digits each: Python refuses to read very long numbers.
_RDKAFKA: Final = re.compile(r"rdkafka-v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_VERSION: Final = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?![\d])")

RDKAFKA: Final = "librdkafka"
JAVA: Final = "apache-kafka-java"


@dataclass(frozen=True, slots=True)
class ClientFault:
    """One row of the table.

    key                 label of the metric
    library             name in ApiVersions (KIP-511), or RDKAFKA for all that are built on it. Empty: no name
    since, until        the first version with the fault, and the first one without it. None: no bound
    client_id           only clients with this id. Empty: any
    breaks, remedy      what happens, and what to do
    is_refused_at_init  a user over quota is refused at InitProducerId, and an id that is given has its token
    is_told_throttle    throttle_time_ms is told; else the mute alone holds the client
    """

    key: str
    library: str
    breaks: str
    remedy: str
    since: Version | None = None
    until: Version | None = None
    client_id: str = ""
    is_refused_at_init: bool = False
    is_told_throttle: bool = True

    @property
    def clients(self) -> str:
        """Return which clients it is about, in words."""
        words = self.library or "no name in ApiVersions"
        if self.since is not None:
            words += f" {show(self.since)}"
        if self.until is not None:
            words += f" to below {show(self.until)}" if self.since else f" below {show(self.until)}"
        return words + (f", client id {self.client_id}" if self.client_id else "")

    def concerns(self, library: str, version: Version | None, client_id: str) -> bool:
        """Return whether a client has it. One with an unknown version has no fault that has a bound."""
        if library != self.library or (self.client_id and client_id != self.client_id):
            return False
        if self.since is None and self.until is None:
            return True
        if version is None:
            return False
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)


CLIENT_FAULTS: Final = (
    ClientFault(
        "librdkafka_2_2",
        RDKAFKA,
        "a refused batch of many records ends an idempotent producer: FATAL, Unable to reconstruct MessageSet "
        "(librdkafka#4736)",
        "use librdkafka 2.5.0 or newer",
        since=(2, 2, 0),
        until=(2, 5, 0),
        is_refused_at_init=True,
    ),
    ClientFault(
        "java_console_producer",
        JAVA,
        "it sends a record four times (--message-send-max-retries 3): a refusal of 30 s loses it",
        "give kafka-console-producer --message-send-max-retries 2147483647",
        client_id="console-producer",
        is_refused_at_init=True,
    ),
    ClientFault(
        "sarama",
        "sarama",
        "before 1.43.1 it stops for ever at the second told throttle (sarama#2823); before 1.46 a refused batch of "
        "many records makes an idempotent producer raise, stop, or lose acknowledged records; any version gives up "
        "after four refusals (Producer.Retry.Max). Many versions name the application's version as theirs, so all are "
        "treated alike",
        "use sarama 1.46 or newer, with Producer.Retry.Max of 10 or more",
        is_refused_at_init=True,
        is_told_throttle=False,
    ),
    ClientFault(
        "sarama_without_name",
        "",
        "sarama with a Config.Version below 2.4, its default until 1.43, names nothing in ApiVersions: the same",
        "as for sarama; set Config.Version to 2.4 or newer",
        client_id="sarama",
        is_refused_at_init=True,
        is_told_throttle=False,
    ),
    ClientFault(
        "platformatic_kafka",
        "platformatic-kafka",
        "sends that are not awaited ask for a producer id each",
        "await the first send() of a producer before the next one",
    ),
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a library tries to send a refused record.

    family     its name in the documentation
    library    name in ApiVersions, or RDKAFKA
    client_id  only clients with this id. Empty: any
    seconds    with its defaults. None: without end
    setting    what bounds the time
    tries      the setting that bounds the tries after the first one. Empty: there is none, or it changes nothing
    tries_s    with FEW_TRIES of them: a refused client comes back when its mute is over, at most 10 s later
    """

    family: str
    library: str
    seconds: int | None
    setting: str
    tries: str = ""
    tries_s: int = 0
    client_id: str = ""

    def sentence(self) -> str:
        """Return when such a client gives up, with its defaults and with the tries that many applications set."""
        end = (
            "tries a refused record without end"
            if self.seconds is None
            else f"gives up a refused record after {self.seconds} s"
        )
        said = f"{end} by its default ({self.setting})"
        if self.tries:
            said += f"; after {self.tries_s} s with {self.tries} {FEW_TRIES}"
        return said


FEW_TRIES: Final = 3
"""A number that applications set, from times when it was the example of many pages."""
PATIENCES: Final = (
    Patience("kafka-console-producer", JAVA, 30, "message-send-max-retries 3", client_id="console-producer"),
    Patience("Java", JAVA, 120, "delivery.timeout.ms", "retries", 30),
    Patience("librdkafka", RDKAFKA, 300, "message.timeout.ms", "message.send.max.retries", 50),
    Patience("kafka-python 3", "kafka-python", 120, "delivery_timeout_ms", "retries", 30),
    Patience("sarama", "sarama", 30, "Producer.Retry.Max"),
    Patience("franz-go", "kgo", None, "RecordDeliveryTimeout", "RecordRetries", 30),
)
"""The first one that is about a client counts; aiokafka and kafkajs name themselves nothing. Measured:
tests/clients/test_patience.py.
"""


@dataclass(frozen=True, slots=True)
class ClientTraits:
    """What a gateway does differently for one client. `patience_ms`: of a refused record. None: unknown."""

    is_refused_at_init: bool = False
    is_told_throttle: bool = True
    patience_ms: int | None = None


ORDINARY: Final = ClientTraits()

# Asked for each connection; a crash loop asks the same each time. Bounded, since anybody can claim any name.
_remembered = lru_cache(maxsize=1_000)


@_remembered
def find_faults(name: str, version: str, client_id: str) -> tuple[ClientFault, ...]:
    """Return the faults of a client that names itself so in ApiVersions."""
    library, number = library_of(name, version)
    return tuple(fault for fault in CLIENT_FAULTS if fault.concerns(library, number, client_id))


def patience_of(name: str, version: str, client_id: str) -> Patience | None:
    """Return the patience of a client that names itself so. None: unknown."""
    library = library_of(name, version)[0]
    for patience in PATIENCES:
        if library == patience.library and patience.client_id in ("", client_id):
            return patience
    return None


@_remembered
def traits_of(name: str, version: str, client_id: str) -> ClientTraits:
    """Return what a gateway does for a client that names itself so."""
    faults, patience = find_faults(name, version, client_id), patience_of(name, version, client_id)
    seconds = None if patience is None else patience.seconds
    if not faults and seconds is None:
        return ORDINARY
    return ClientTraits(
        is_refused_at_init=any(fault.is_refused_at_init for fault in faults),
        is_told_throttle=all(fault.is_told_throttle for fault in faults),
        patience_ms=None if seconds is None else seconds * 1_000,
    )


def library_of(name: str, version: str) -> tuple[str, Version | None]:
    """Return the library behind a name and a version of KIP-511.

    Bindings of librdkafka add its version to theirs: confluent-kafka-python 2.4.0-rdkafka-2.4.0.
    """
    by_rdkafka = _RDKAFKA.findall(f"{name}-{version}")
    if by_rdkafka:
        return RDKAFKA, _numbers(by_rdkafka[-1])
    found = _VERSION.match(version)
    return name, None if found is None else _numbers(found.groups())


def _numbers(parts: tuple[str, ...]) -> Version:
    major, minor, patch = map(int, parts)
    return major, minor, patch


def show(version: Version) -> str:
    """Return a version as its library writes it."""
    return ".".join(map(str, version))


def in_words() -> Iterator[str]:
    """Yield a line about each fault, for operators."""
    for fault in CLIENT_FAULTS:
        yield f"{fault.clients}: {fault.breaks}; {fault.remedy}"
