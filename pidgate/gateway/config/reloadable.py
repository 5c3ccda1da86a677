"""Differences of a changed configuration file: those applied at run time, and those that need a restart.

Quotas and the log level are applied. Changes to remembering ids are not: filters, snapshots and the other gateways of
the fleet depend on it. Nor are changes to anything opened, bound or started once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from pidgate import units
from pidgate.gateway.config.settings import Settings

UNTIL_RESTART_IDS: Final = (
    "window_ms",
    "given_remember_ms",
    "given_grace_ms",
    "max_live_ids",
)
"""Keys of `quotas.producer_ids` that filters are shaped by, the fleet agrees on, or only a start reads."""

NOTHING: Final = "(nothing)"
HIDDEN: Final = "(not shown)"
_SECRETIVE: Final = ("password", "token", "secret", "key_file")
"""Keys that should name a file, but may contain a secret by mistake."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key with a changed value, both values in the file's notation."""

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


def taken_over(running: Settings, in_file: Settings) -> Settings:
    """Return the settings after a reload: quotas and log level of the file, everything else as running."""
    quotas, then = in_file.quotas, running.quotas
    return running.model_copy(
        update={
            "log_level": in_file.log_level,
            "quotas": quotas.model_copy(
                update={
                    "producer_ids": _with(quotas.producer_ids, then.producer_ids, UNTIL_RESTART_IDS),
                }
            ),
        }
    )


def _with(section: BaseModel, running: BaseModel, names: tuple[str, ...]) -> BaseModel:
    return section.model_copy(update={name: getattr(running, name) for name in names})


def differences(before: Settings, after: Settings) -> list[Difference]:
    """Return every key that differs, in the order of the sections."""
    return list(_differences("", before, after))


def _differences(path: str, before: Any, after: Any) -> Iterator[Difference]:
    """Yield the differences below `path`. Equal sections are skipped: a file may name thousands of users."""
    if before == after:
        return
    if isinstance(before, BaseModel) and type(before) is type(after):
        for field, key in _keys(path, before):
            old, new = getattr(before, field), getattr(after, field)
            if isinstance(old, BaseModel | dict) and isinstance(new, BaseModel | dict):
                yield from _differences(key, old, new)
            else:
                yield from _flat_differences(key, old, new, field)
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            if name in before and name in after:
                yield from _differences(f"{path}.{name}", before[name], after[name])
            else:
                yield from _flat_differences(f"{path}.{name}", before.get(name), after.get(name))


def _flat_differences(path: str, before: Any, after: Any, name: str = "") -> Iterator[Difference]:
    old, new = dict(_flat(path, before, name)), dict(_flat(path, after, name))
    for key in dict.fromkeys([*old, *new]):
        was, is_now = old.get(key, NOTHING), new.get(key, NOTHING)
        if was != is_now:
            yield Difference(key, *_shown_both(key, was, is_now))


def _keys(path: str, section: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield (field, dotted key) of a section."""
    dot = f"{path}." if path else ""
    for field, info in type(section).model_fields.items():
        yield field, f"{dot}{info.alias or field}"


def _shown_both(key: str, before: str, after: str) -> tuple[str, str]:
    is_secretive = any(word in key.rpartition(".")[2] for word in _SECRETIVE)
    return (HIDDEN, HIDDEN) if is_secretive else (before, after)


def _flat(path: str, value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, value in words) of all keys below. The unit is the suffix of the field's `name`."""
    if isinstance(value, BaseModel):
        for field, key in _keys(path, value):
            yield from _flat(key, getattr(value, field), field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}", item)
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for number, item in enumerate(value):
            yield from _flat(f"{path}[{number}]", item)
    else:
        yield path, _in_words(value, name)


def _in_words(value: Any, name: str) -> str:
    if value is None:
        return "window" if name == "given_remember_ms" else NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("_ms"):
        return units.show_duration(value)
    if name.endswith(("_bytes", "_byte_rate")):
        return units.show_size(value)
    if name.endswith("_milli"):
        return units.show_milli(value)
    # An address is a tuple subclass with a text form; a list of words is a plain tuple.
    if isinstance(value, tuple) and type(value) is tuple:
        return f"[{', '.join(map(str, value))}]" if value else NOTHING
    return str(value) or NOTHING
