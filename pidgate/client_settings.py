"""Client settings for a secured cluster: a properties file with librdkafka's or Java's names
(`--kafka-config`).

Values are secrets: they are passed to the client and appear in no message. Only security and connection
settings are accepted; the commands set all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

KafkaConfigOption = Annotated[
    Path | None,
    typer.Option("--kafka-config", metavar="FILE", help="Properties: security.protocol, sasl.*, ssl.*."),
]


class BadClientSettings(ValueError):
    """The file of --kafka-config cannot be used."""


ALLOWED = (
    "security.protocol",
    "sasl.",
    "ssl.",
    "client.",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.",
    "retry.backoff.",
    "metadata.max.age.ms",
    "socket.connection.setup.timeout.",
)
_CERTIFICATES = {
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.key": "ssl.keystore.key",
}
"""librdkafka's name, followed by `.location` (file) or `.pem` (content) -> Java's name."""
_PEM = {java: f"{name}.pem" for name, java in _CERTIFICATES.items()}
_FILES = {f"{name}.location": f"{name}.pem" for name in _CERTIFICATES}
_KEY = "ssl.key.location"
_OF_JAVA_ALONE = ("default.api.timeout.ms", "request.timeout.ms", "socket.connection.setup.timeout.max.ms")
"""Ignored: they do not change the result."""
_LOGIN = re.compile(r'\b(username|password)="((?:[^"\\]|\\.)*)"')
_READABLE_BY_ALL = 0o004


def read_client_settings(path: str, *, reads_files: bool = True) -> dict[str, str]:
    """Return the settings of a file of `name=value` lines, with librdkafka's names.

    `reads_files`: replace names of certificate files by their content. Raises BadClientSettings, without
    values.
    """
    given = {}
    for number, line in enumerate(_content(path, f"--kafka-config {path}").splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith(("#", "!")):
            continue
        name = name.removeprefix("kafka.")
        if not equals:
            raise BadClientSettings(f"--kafka-config {path}, line {number}: not `name=value`")
        if not name.startswith(ALLOWED):
            raise BadClientSettings(
                f"--kafka-config {path}, line {number}: {name} is not a setting of security or of connections "
                f"({', '.join(ALLOWED)})"
            )
        given[name] = value
    return in_words_of_librdkafka(given, path, reads_files=reads_files)


def in_words_of_librdkafka(
    given: Mapping[str, str], path: str, *, reads_files: bool = True
) -> dict[str, str]:
    """Translate names of Java's client to librdkafka's. Raises BadClientSettings.

    `reads_files`: return the content of certificate files, for tasks on other machines.
    """
    made: dict[str, str] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            login = dict(_LOGIN.findall(value))
            made |= {f"sasl.{one}": _unquoted(text) for one, text in login.items()}
            if set(login) < {"username", "password"}:
                raise BadClientSettings(
                    f"--kafka-config {path}: sasl.jaas.config has no username and password; for other mechanisms give "
                    "librdkafka's settings"
                )
        elif name in _PEM:
            made[_PEM[name]] = value
        elif name in _FILES and reads_files:
            if name == _KEY:
                _refuse_if_readable_by_all(value, path)
            made[_FILES[name]] = _content(value, f"--kafka-config {path} names {value}, which")
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")):
            if value != "PEM":
                raise BadClientSettings(
                    f"--kafka-config {path}: {name} is for Java alone. Give PEM files by ssl.ca.location, "
                    "ssl.certificate.location and ssl.key.location."
                )
        elif name not in _OF_JAVA_ALONE:
            made[name] = value
    if len({"sasl.username", "sasl.password"} & made.keys()) == 1:
        raise BadClientSettings(f"--kafka-config {path}: sasl.username and sasl.password go together")
    if made.get("ssl.endpoint.identification.algorithm") == "":
        made["ssl.endpoint.identification.algorithm"] = "none"
    return made


def _refuse_if_readable_by_all(file: str, path: str) -> None:
    """Raise BadClientSettings if every user of this machine can read the key."""
    with suppress(OSError):  # reading it reports the reason
        if Path(file).stat().st_mode & _READABLE_BY_ALL:
            raise BadClientSettings(
                f"--kafka-config {path} names {file}, a key that every user of this machine can read; chmod 640 {file}"
            )


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _content(path: str, subject: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadClientSettings(f"{subject} cannot be read: {error}") from error
