"""Java's Admin for client quotas: tests/support/java/ClientQuotas.java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tests.support.clients.java_client import login_properties, properties_file
from tests.support.clients.load import Login
from tests.support.java_classes import java_classes
from tools.sandbox.tools import JavaTools


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
    command[at] = os.pathsep.join((str(java_classes("ClientQuotas", tools.version)), command[at]))
    done = subprocess.run(
        command, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("----\n")[:-1]
    assert len(answers) == len(commands), done.stdout
    return [dict(line.split("\t", 1) for line in answer.splitlines()) for answer in answers]
