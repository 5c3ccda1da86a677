"""Kafka's own decoders as an oracle: tests/support/java/Decode.java, a process that answers questions one by one."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from functools import cache
from typing import Any, Final

from tests.support.java_classes import java_classes
from tools.sandbox import guard
from tools.sandbox.jars import NEWEST
from tools.sandbox.tools import JavaTools

REQUEST: Final = b"R"
VARINT: Final = b"V"
PLAIN: Final = b"P"
SCRAM: Final = b"S"
LOGIN: Final = b"L"
BEARER: Final = b"B"
CLAIMS: Final = b"J"
NAME: Final = b"N"
CERTIFICATE: Final = b"C"


class Refused(Exception):
    """Kafka does not take these bytes."""


class KafkaOracle:
    """Ask; the process ends with this one."""

    def __init__(self, version: str = NEWEST) -> None:
        command = JavaTools(version).command("Decode")
        at = command.index("-cp") + 1
        command[at] = os.pathsep.join((str(java_classes("Decode", version)), command[at]))
        self._process = guard.spawn(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, decoder: bytes, data: bytes) -> str:
        """Return what that decoder reads. Raises Refused."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(struct.pack(">I", len(data) + 1) + decoder + data)
        asked.flush()
        (length,) = struct.unpack(">I", answered.read(4))
        answer = answered.read(length).decode("utf-8")
        if answer.startswith("!"):
            raise Refused(answer[1:])
        return answer

    def request(self, frame: bytes) -> dict[str, Any]:
        """Return a request's header and body (a frame without its size). Raises Refused."""
        found: dict[str, Any] = json.loads(self.ask(REQUEST, frame))
        return found


@cache
def kafka() -> KafkaOracle:
    """Return the one of this process, started at first use."""
    return KafkaOracle()
