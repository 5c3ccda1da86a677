"""Kerberos for tests: Apache Kerby's key distribution centre, a jar as Kafka's own are, and what Kafka is set up with.

with running_kdc(["kafka/localhost", "alice"]) as kdc:
    kdc.keytab("alice"), kdc.krb5_conf
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.java_classes import java_classes
from tools.sandbox import guard
from tools.sandbox.jars import NEWEST, alone_with_jars
from tools.sandbox.java import java_for
from tools.sandbox.ports import free_port

REALM: Final = "PIDGATE.TEST"
SERVICE: Final = "kafka"
JAVA_MODULES: Final = ("jdk.security.jgss",)
"""It has the mechanism GSSAPI of SASL."""

_KERBY: Final = "org.apache.kerby:kerb-simplekdc:2.1.0"


@dataclass(frozen=True, slots=True)
class Kdc:
    """Files of a running one."""

    directory: Path

    @property
    def krb5_conf(self) -> str:
        return str(self.directory / "krb5.conf")

    def keytab(self, name: str) -> str:
        """The keys of a principal; without its host, if it has one."""
        return str(self.directory / f"{name}.keytab")


@cache
def _jars() -> tuple[Path, ...]:
    import jgo

    with alone_with_jars():
        return tuple(Path(jar) for jar in jgo.build(_KERBY).all_jars)


@contextmanager
def running_kdc(principals: Sequence[str]) -> Iterator[Kdc]:
    """A realm with these principals, without its name."""
    directory = guard.temporary_directory("kdc-")
    path = os.pathsep.join(map(str, (java_classes("Kdc", more=_jars()), *_jars())))
    command = [str(java_for(NEWEST)), "-XX:-UsePerfData", "-Xmx64m", "-cp", path, "Kdc", str(directory)]
    names = [f"{principal}@{REALM}" for principal in principals]
    with (directory / "log").open("wb") as log:
        process = guard.spawn(
            [*command, str(free_port()), REALM, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, b"")
        assert any(line == b"ready\n" for line in lines), (directory / "log").read_text()[-4_000:]
        yield Kdc(directory)
    finally:
        process.kill()
        process.communicate()
        guard.ended(process)
        guard.remove_directory(directory)


def jaas(keytab: str, principal: str) -> str:
    """The login module of a principal, without its realm."""
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    return f'{module} keyTab="{keytab}" principal="{principal}@{REALM}";'


def option(krb5_conf: str) -> str:
    """What tells a JVM of the realm."""
    return f"-Djava.security.krb5.conf={krb5_conf}"


def broker_properties(listener: str, kdc: Kdc, host: str) -> dict[str, str]:
    """What lets brokers take tickets for the service at that host."""
    return {
        "sasl.kerberos.service.name": SERVICE,
        f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config": jaas(
            kdc.keytab(SERVICE), f"{SERVICE}/{host}"
        ),
    }
