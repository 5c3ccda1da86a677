"""Client settings for a secured cluster: a file of properties, in Java's words or librdkafka's, for both clients.

Spark reads records by Java's, ingest asks for offsets by librdkafka's.

Values are secrets: they go to the client and into no message. Only settings of security and of connections are
taken; what is read, and from where, is for ingest to say.
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
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_CERTIFICATES = {
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.key": "ssl.keystore.key",
}
"""In librdkafka's words with `.location` (of a file) or `.pem` behind them, and in Java's."""
_PEM = {java: f"{name}.pem" for name, java in _CERTIFICATES.items()}
_BOTH = (
    "security.protocol", "sasl.mechanism", "ssl.key.password", "ssl.endpoint.identification.algorithm"
)  # fmt: skip
"""Settings with one name and one meaning in both."""
_LOGIN = re.compile(r'\b(username|password)="((?:[^"\\]|\\.)*)"')
_KEY = _CERTIFICATES["ssl.key"]
_READABLE_BY_ALL = 0o004


def read_client_settings(path: str) -> dict[str, str]:
    """Java's settings out of a file of `name=value` lines. Raises BadOption, which names no value."""
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
    return in_words_of_java(given, path)


def in_words_of_java(given: Mapping[str, str], path: str) -> dict[str, str]:
    """Translate settings of librdkafka to Java's; Java's stay. Raises BadOption."""
    made = dict(given)
    if mechanism := made.pop("sasl.mechanisms", None):
        made["sasl.mechanism"] = mechanism
    user, password = made.pop("sasl.username", None), made.pop("sasl.password", None)
    if user is not None or password is not None:
        made.setdefault("sasl.jaas.config", _login(made.get("sasl.mechanism", ""), user, password, path))
    if protocol := made.get("security.protocol"):
        made["security.protocol"] = protocol.upper()
    for old, new in _CERTIFICATES.items():
        if (file := made.pop(f"{old}.location", None)) is not None:
            if new == _KEY:
                _refuse_if_readable_by_all(file, path)
            made.setdefault(f"{old}.pem", _content(file, f"--kafka-config {path} names {file}, which"))
        if (content := made.pop(f"{old}.pem", None)) is not None:
            made[new] = content
            made[f"{new.rpartition('store.')[0]}store.type"] = "PEM"
    return made


def in_words_of_librdkafka(java: Mapping[str, str]) -> dict[str, str]:
    """Translate Java's settings of security; others are for the reading alone. Raises BadOption, without a value."""
    made: dict[str, str] = {}
    for name, value in java.items():
        if name == "sasl.jaas.config":
            login = dict(_LOGIN.findall(value))
            if set(login) < {"username", "password"}:
                raise BadOption("--kafka-config: sasl.jaas.config has no username and password")
            made |= {f"sasl.{one}": _unquoted(login[one]) for one in ("username", "password")}
        elif name in _PEM:
            made[_PEM[name]] = value
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) and value != "PEM":
            raise BadOption(
                f"--kafka-config: {name} is for Java alone. Give PEM files by ssl.ca.location, "
                "ssl.certificate.location and ssl.key.location."
            )
        elif name in _BOTH:
            made[name] = value
    if made.get("ssl.endpoint.identification.algorithm") == "":
        made["ssl.endpoint.identification.algorithm"] = "none"
    return made


def _refuse_if_readable_by_all(file: str, path: str) -> None:
    """Raise BadOption where every user of this machine can read the key."""
    with suppress(OSError):  # reading it names the reason
        if Path(file).stat().st_mode & _READABLE_BY_ALL:
            raise BadOption(
                f"--kafka-config {path} names {file}, a key that every user of this machine can read; chmod 640 {file}"
            )


def _login(mechanism: str, user: str | None, password: str | None, path: str) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None or user is None or password is None:
        raise BadOption(
            f"--kafka-config {path}: sasl.username and sasl.password go together with sasl.mechanism "
            f"{', '.join(_LOGIN_MODULES)}; for others give sasl.jaas.config"
        )
    return f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _content(path: str, subject: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{subject} cannot be read: {error}") from error
