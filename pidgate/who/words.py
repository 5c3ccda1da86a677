"""Names from outside, fit for a terminal. Pure."""

from __future__ import annotations

from typing import Final

from pidgate import units
from pidgate.quota.entities import shown

UNIDENTIFIED: Final = "(unidentified)"
_SOFTWARE: Final = {"apache-kafka-java": "Java"}


def software(name_and_version: str) -> str:
    """Rewrite what ApiVersions names ("apache-kafka-java 3.7.0") as people say it ("Java 3.7.0")."""
    name, _, version = name_and_version.partition(" ")
    return units.printable(f"{_SOFTWARE.get(name, name)} {version}".strip())


def user(name: str) -> str:
    """Return a user's name fit for a terminal, "(unidentified)" for none."""
    return units.printable(shown(name)) or UNIDENTIFIED
