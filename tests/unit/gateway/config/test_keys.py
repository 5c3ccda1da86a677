"""The keys of the configuration: how many there are, and that each is shown to an operator."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel

from pidgate.gateway.config.settings import Settings

ROOT: Final = Path(__file__).parents[4]
MOST_KEYS: Final = 85
REFERENCE: Final = ("docs/how-to/index.md", "docs/reference/limits.md")


def sections(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from sections(inner)


def keys(section: type[BaseModel] = Settings) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield each key once, with the class that declares it: the keys of a user also stand below `unidentified`."""
    for name, field in section.model_fields.items():
        declared = next(one for one in reversed(section.__mro__) if name in get_annotations(one))
        yield declared, field.alias or name
        for below in sections(field.annotation):
            yield from keys(below)


def written(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from written(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from written(inner)


def test_there_are_at_most_85_keys() -> None:
    found = set(keys())
    assert len(found) <= MOST_KEYS, len(found)


def test_each_key_is_in_an_example_or_in_the_reference() -> None:
    shown = {
        key
        for file in (ROOT / "examples").glob("*.yaml")
        for key in written(yaml.safe_load(file.read_text()))
    }
    reference = "".join((ROOT / page).read_text() for page in REFERENCE)
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`\n]+)`", reference))))
    assert sorted({key for _, key in keys()} - shown - named) == []
