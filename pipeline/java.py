"""Which Java runs Spark: JAVA_HOME, else the java on the PATH.

Spark 4.0 needs a full Java 17 or 21. A runtime that was cut down (as some Python packages carry one) may lack the
module jdk.incubator.vector, and Spark then ends before it says why.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from pidgate.pipeline.errors import JavaUnfit

FIT = (17, 21)
NEEDED_MODULE = "jdk.incubator.vector"
_REMEDY = (
    "Install a full Java 17 or 21 (Debian: openjdk-17-jre-headless) and put it on the PATH or set JAVA_HOME."
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_home() -> Path:
    """Home of the first Java that fits. Raises JavaUnfit, which tells what was found."""
    seen = []
    for source, java in _candidates():
        problem = _problem(java)
        if problem is None:
            return java.resolve().parent.parent
        seen.append(f"{source}: {java} {problem}")
    raise JavaUnfit(f"Spark needs Java 17 or 21 ({'; '.join(seen) or 'no Java was found'}). {_REMEDY}")


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    return found


def _problem(java: Path) -> str | None:
    """Why Spark does not start on it; None when it does."""
    told = _said_by(java, "-version")
    version = _VERSION.search(told or "")
    if version is None:
        return "is not a working Java"
    if int(version[1]) not in FIT:
        return f"is Java {version[1]}"
    if NEEDED_MODULE not in (_said_by(java, "--list-modules") or ""):
        return f"is a Java {version[1]} without the module {NEEDED_MODULE}"
    return None


def _said_by(java: Path, option: str) -> str | None:
    try:
        answer = subprocess.run([java, option], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout + answer.stderr
