"""Client settings for a secured cluster: a properties file with librdkafka's or Java's names.

Values are secrets and appear in no message. Only security and connection settings are accepted; ingest itself
defines the topic and offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pidgate.pipeline.errors import BadOption

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


def read_client_settings(path: str) -> dict[str, str]:
    """Return librdkafka settings from a file of `name=value` lines. Raises BadOption without values."""
    given = {}
    for number, line in enumerate(_content(path, f"--kafka-config {path}").splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith(("#", "!")):
            continue
        name = name.removeprefix("kafka.")
        if not equals:
            raise BadOption(f"--kafka-config {path}, line {number}: not `name=value`")
        if not name.startswith(ALLOWED):
            raise BadOption(
                f"--kafka-config {path}, line {number}: {name} is not a setting of security or of connections "
                f"({', '.join(ALLOWED)})"
            )
        given[name] = value
    return in_words_of_librdkafka(given, path)


def in_words_of_librdkafka(given: Mapping[str, str], path: str) -> dict[str, str]:
    """Translate Java settings. Raises BadOption.

    librdkafka settings stay, but files are replaced by their contents because tasks may run elsewhere.
    """
    made: dict[str, str] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            login = dict(_LOGIN.findall(value))
            made |= {f"sasl.{one}": _unquoted(text) for one, text in login.items()}
            if set(login) < {"username", "password"}:
                raise BadOption(
                    f"--kafka-config {path}: sasl.jaas.config has no username and password; for other mechanisms give "
                    "librdkafka's settings"
                )
        elif name in _PEM:
            made[_PEM[name]] = value
        elif name in _FILES:
            if name == _KEY:
                _refuse_if_readable_by_all(value, path)
            made[_FILES[name]] = _content(value, f"--kafka-config {path} names {value}, which")
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")):
            if value != "PEM":
                raise BadOption(
                    f"--kafka-config {path}: {name} is for Java alone. Give PEM files by ssl.ca.location, "
                    "ssl.certificate.location and ssl.key.location."
                )
        elif name not in _OF_JAVA_ALONE:
            made[name] = value
    if len({"sasl.username", "sasl.password"} & made.keys()) == 1:
        raise BadOption(f"--kafka-config {path}: sasl.username and sasl.password go together")
    if made.get("ssl.endpoint.identification.algorithm") == "":
        made["ssl.endpoint.identification.algorithm"] = "none"
    return made


def _refuse_if_readable_by_all(file: str, path: str) -> None:
    """Raise BadOption if the key is world-readable."""
    with suppress(OSError):  # reading it reports the reason
        if Path(file).stat().st_mode & _READABLE_BY_ALL:
            raise BadOption(
                f"--kafka-config {path} names {file}, a key that every user of this machine can read; chmod 640 {file}"
            )


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _content(path: str, subject: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{subject} cannot be read: {error}") from error
