"""Clients in other languages: programs of tests/clients/others, which tell what became of each record.

They are built where a Go or a Node with npm is and their packages can be had; else `available` says why not.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pidgate.load.journal import ProducerJournal
from tests.support.clients.load import Load, Pace

SOURCES: Final = Path(__file__).parents[2] / "clients" / "others"
BUILT: Final = Path(__file__).parents[3] / ".sandbox" / "clients"
_BUILD_WITHIN_S: Final = 600

GO_CLIENTS: Final = {"sarama": "github.com/IBM/sarama", "franz-go": "github.com/twmb/franz-go"}


class NotAvailable(Exception):
    """The client cannot be had on this machine, and why."""


RELEASE_VARIABLE: Final = "PIDGATE_TEST_CLIENT_RELEASE"
"""Environment variable of a client's process: the release of a Go or Node client. Empty: the one in SOURCES."""


def build(client: str, release: str = "") -> None:
    """Make the client's program, unless it is made. Raises NotAvailable."""
    folder = _folder(client, release)
    folder.mkdir(parents=True, exist_ok=True)
    if client not in GO_CLIENTS:
        for name in ("producer.mjs", "package.json"):
            shutil.copyfile(SOURCES / name, folder / name)
        wanted = [f"{client}@{release}"] if release else []
        _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", *wanted, directory=folder)
        return
    sources = SOURCES
    if release:
        sources = folder / "sources"
        shutil.copytree(SOURCES, sources, dirs_exist_ok=True)
        _run("go", "get", f"{GO_CLIENTS[client]}@v{release}", directory=sources)
    _run("go", "build", "-o", str(folder / "producers"), ".", directory=sources)


def _folder(client: str, release: str) -> Path:
    return BUILT / f"{client}-{release}" if release else BUILT


def _run(*command: str, directory: Path) -> None:
    if shutil.which(command[0]) is None:
        raise NotAvailable(f"no {command[0]} here")
    try:
        subprocess.run(
            command, cwd=directory, check=True, capture_output=True, text=True, timeout=_BUILD_WITHIN_S
        )
    except subprocess.CalledProcessError as error:
        raise NotAvailable(f"{' '.join(command[:2])} failed: {error.stderr.strip()[-300:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotAvailable(f"{' '.join(command[:2])} took too long") from error


def version(client: str) -> str:
    """The version that is asked for."""
    if client not in GO_CLIENTS:
        wanted = json.loads((SOURCES / "package.json").read_text())["dependencies"]
        return str(wanted[client])
    lines = (line.split() for line in (SOURCES / "go.mod").read_text().splitlines())
    return next(line[1].removeprefix("v") for line in lines if line[:1] == [GO_CLIENTS[client]])


def produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    """At the load's pace. Raises CalledProcessError when the program fails."""
    client = journal.producer.rpartition("-")[0]
    folder = _folder(client, os.environ.get(RELEASE_VARIABLE, ""))
    program = [str(folder / "producers")] if client in GO_CLIENTS else ["node", str(folder / "producer.mjs")]
    command = [*program, client, load.to_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            where = told["partition"], told["n"]
            match told["event"]:
                case "sent":
                    journal.sent(*where)
                case "acknowledged":
                    journal.acknowledged(*where, told["offset"])
                case "failed":
                    journal.failed(*where, told["error"])
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
