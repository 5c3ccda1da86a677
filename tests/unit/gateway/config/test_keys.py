"""The keys of the configuration: how many there are. Their reference is generated (tests/unit/docs)."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from inspect import get_annotations
from typing import Final

from pydantic import BaseModel

from pidgate.gateway.config.settings import Settings

MOST_KEYS: Final = 85


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


def test_there_are_at_most_85_keys() -> None:
    found = set(keys())
    assert len(found) <= MOST_KEYS, len(found)
