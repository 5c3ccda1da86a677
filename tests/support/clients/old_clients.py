"""Python clients as they were two years ago, beside the installed ones: a folder that comes first on the path.

The releases are the latest ones of autumn 2024. Old Java clients are jars: see java_client.py.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.clients.other_client import BUILT, NotAvailable

RELEASES: Final = {"aiokafka": "0.12.0", "confluent-kafka": "2.6.1", "kafka-python": "2.0.2"}


@cache
def packages() -> Path:
    """Return the folder with all of them; got at the first time. Raises NotAvailable."""
    wanted = [f"{name}=={release}" for name, release in RELEASES.items()]
    folder = BUILT / f"python-{sys.version_info[0]}.{sys.version_info[1]}-{'-'.join(RELEASES.values())}"
    if folder.exists():
        return folder
    # What they depend on is there: those of today do, too.
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    made = folder.with_name(f"{folder.name}.new")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, "--upgrade", "--target", str(made), *wanted],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise NotAvailable(f"pip install failed: {done.stderr.strip()[-300:]}")
    made.rename(folder)
    return folder
