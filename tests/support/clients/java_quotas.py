"""Java's Admin for client quotas: tests/support/java/ClientQuotas.java, compiled here.

The Java of the sandbox has no compiler; Eclipse's is a jar, got like Kafka's own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pidgate.sandbox import JavaTools, guard
from pidgate.sandbox.jars import class_path
from pidgate.sandbox.java import java_for
from tests.support.clients.java_client import login_properties, properties_file
from tests.support.clients.load import Login

_SOURCE = Path(__file__).parents[1] / "java" / "ClientQuotas.java"
_COMPILER = "org.eclipse.jdt:ecj:3.39.0"


@cache
def _classes(version: str) -> Path:
    """The directory with the compiled class, for as long as this process lives."""
    import jgo

    compiler = os.pathsep.join(map(str, jgo.build(_COMPILER).all_jars))
    directory = guard.temporary_directory("java-classes-")
    kafka = os.pathsep.join(map(str, class_path(version)))
    subprocess.run(
        [
            *(java_for(version), "-XX:-UsePerfData", "-cp", compiler),
            *("org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17", "-target", "17"),
            *("-proc:none", "-nowarn", "-d", directory, "-cp", kafka, _SOURCE),
        ],
        check=True,
        timeout=120,
    )
    return directory


def client_quotas(
    tools: JavaTools, bootstrap_servers: str, commands: Sequence[str], login: Login | None = None
) -> list[dict[str, str]]:
    """What Java's Admin says to each command (see ClientQuotas.java; words parted by tabs): result by entity."""
    properties = {
        "bootstrap.servers": bootstrap_servers,
        "default.api.timeout.ms": "20000",
        "request.timeout.ms": "10000",
    }
    command = tools.command("ClientQuotas", str(properties_file(properties | login_properties(login))))
    at = command.index("-cp") + 1
    command[at] = os.pathsep.join((str(_classes(tools.version)), command[at]))
    done = subprocess.run(
        command, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("----\n")[:-1]
    assert len(answers) == len(commands), done.stdout
    return [dict(line.split("\t", 1) for line in answer.splitlines()) for answer in answers]
