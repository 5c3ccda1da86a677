"""Older releases of clients, beside the installed or built ones.

A Python client's is a folder that comes first on the path; a Go or Node client's is a program of its own. Java's
clients are jars: see java_client.py.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.clients import other_client
from tests.support.clients.other_client import BUILT, NotAvailable

RELEASES: Final = {"aiokafka": "0.12.0", "confluent-kafka": "2.6.1", "kafka-python": "2.0.2"}
"""The latest ones of autumn 2024."""


@cache
def why_missing(client: str, release: str = "") -> str:
    """Return why a client cannot run here; empty: it can. Builds or fetches it."""
    try:
        if release:
            packages(client, release)
        elif client in (*other_client.GO_CLIENTS, "kafkajs"):
            other_client.build(client)
    except NotAvailable as reason:
        return str(reason)
    return ""


@cache
def packages(client: str, release: str) -> Path | None:
    """Get a release of a client; return the folder of a Python client, None of any other. Raises NotAvailable."""
    if client in (*other_client.GO_CLIENTS, "kafkajs"):
        other_client.build(client, release)
        return None
    folder = BUILT / f"python-{sys.version_info[0]}.{sys.version_info[1]}-{client}-{release}"
    if folder.exists():
        return folder
    # What they depend on is there: those of today do, too.
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    made = folder.with_name(f"{folder.name}.new")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, "--upgrade", "--target", str(made), f"{client}=={release}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise NotAvailable(f"pip install failed: {done.stderr.strip()[-300:]}")
    made.rename(folder)
    return folder
