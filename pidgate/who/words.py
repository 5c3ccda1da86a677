"""External names, made safe for a terminal. Pure."""

from __future__ import annotations

from typing import Final

from pidgate import units
from pidgate.quota.entities import shown

UNIDENTIFIED: Final = "(unidentified)"
_SOFTWARE: Final = {"apache-kafka-java": "Java"}


def software(name_and_version: str) -> str:
    """Convert a name in ApiVersions ("apache-kafka-java 3.7.0") to the common one ("Java 3.7.0")."""
    name, _, version = name_and_version.partition(" ")
    return units.printable(f"{_SOFTWARE.get(name, name)} {version}".strip())


def user(name: str) -> str:
    """Return a user's name as every table shows it, "(unidentified)" for none."""
    return shown(name) or UNIDENTIFIED
