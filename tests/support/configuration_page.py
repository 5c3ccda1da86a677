"""Write docs/reference/configuration.md and the JSON schema of pidgate.yaml, both from the settings.

`python -m tests.support.configuration_page` (`make docs`); a test compares.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticUndefined

from pidgate.gateway.config.settings import Settings
from pidgate.units import Address, show_duration, show_size
from tests.support.import_graph import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "configuration.md"
SCHEMA_FILE: Final = ROOT / "pidgate" / "gateway" / "config" / "pidgate.schema.json"

_INTRODUCTION: Final = """# Configuration

For operators: every key of `pidgate.yaml`. The page is generated from the settings (`make docs`).

- `pidgate check --config FILE` validates a file and explains it. An unknown key is an error that names its line and
  the nearest key.
- Durations are `500ms`, `30s`, `2h`, `7d`; sizes `4KiB`, `5MB`, `1GiB`.
- For an editor with a YAML language server, copy the [JSON schema](pidgate.schema.json) beside the file, and begin the
  file with `# yaml-language-server: $schema=pidgate.schema.json`. The installed package has a copy, shown by
  `python -c 'import pidgate.gateway.config as c; print(c.__path__[0] + "/pidgate.schema.json")'`.
- Keys below `quotas`, and `log_level`, are in force [without a restart](../how-to/reload.md), but for `window`,
  `remember`, `max_live_ids` and `grace`.
- Limits that are the same on every cluster have no key: [limits](limits.md).

"""


def documented(section: type[BaseModel]) -> dict[str, str]:
    """Return the text below each key of a section and of its base classes."""
    found: dict[str, str] = {}
    for made in reversed(section.__mro__):
        if made is BaseModel or not issubclass(made, BaseModel):
            continue
        body = typing.cast("ast.ClassDef", ast.parse(inspect.getsource(made)).body[0]).body
        for field, text in pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    found[name] = " ".join(doc.split())
    return found


def sections(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the sections below a key."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from sections(inner)


def keys(
    section: type[BaseModel] = Settings, path: str = "", seen: set[tuple[type, str]] | None = None
) -> Iterator[tuple[str, str, FieldInfo, str]]:
    """Yield each key with its path, its name, its field and its text, a section's keys behind its own.

    Keys that a section of quotas has in common with one above are left out.
    """
    texts = documented(section)
    seen = set() if seen is None else seen
    for name, field in section.model_fields.items():
        declared = next(made for made in reversed(section.__mro__) if name in inspect.get_annotations(made))
        here = f"{path}{field.alias or name}"
        if path.startswith("quotas."):
            if (declared, name) in seen:
                continue
            seen.add((declared, name))
        yield here, name, field, texts[name]
        origin = get_origin(field.annotation)
        inside = "[]." if origin is tuple else ".NAME." if "apping" in str(origin) or origin is dict else "."
        for below in sections(field.annotation):
            yield from keys(below, here + inside, seen)


def _shown(name: str, value: object) -> str:
    """Return a default as a file has it."""
    match value:
        case None | () | {} | "" | BaseModel() | (BaseModel(),):
            return ""
        case bool():
            return str(value).lower()
        case Address():
            return str(value)
        case int() if name.endswith("_ms"):
            return show_duration(value)
        case int() if name.endswith("_bytes"):
            return show_size(value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _values(field: FieldInfo) -> str:
    named = [
        str(one)
        for annotation in (field.annotation, *get_args(field.annotation))
        if get_origin(annotation) is Literal
        for one in get_args(annotation)
    ]
    return " ".join(f"`{one}`" for one in named)


def page() -> str:
    """Return docs/reference/configuration.md."""
    lines = [_INTRODUCTION.rstrip()]
    top = ""
    for path, name, field, text in keys():
        first = re.split(r"[.\[]", path)[0]
        if first != top:
            top = first
            lines += ["", f"## {top}", "", "| key | default | meaning |", "| --- | --- | --- |"]
        default = "" if field.default is PydanticUndefined else _shown(name, field.default)
        default = "required" if field.is_required() else f"`{default}`" if default else ""
        values = _values(field)
        if values and not all(value in text for value in values.split()):
            text += f" One of {values}."
        lines.append(f"| `{path}` | {default} | {text} |")
    return "\n".join(lines) + "\n"


def _all(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield section
    for field in section.model_fields.values():
        for below in sections(field.annotation):
            yield from _all(below)


class _Schema(GenerateJsonSchema):
    """Without defaults in the settings' own units and without generated titles."""

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def get_title_from_name(self, name: str) -> str:
        return ""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """Return the schema of the file, with the text of each key."""
    schema = Settings.model_json_schema(schema_generator=_Schema)
    for section in _all(Settings):
        texts = documented(section)
        shape = schema if section is Settings else schema["$defs"][section.__name__]
        shape.pop("title", None)
        for name, field in section.model_fields.items():
            shown = shape["properties"][field.alias or name]
            if set(shown) == {"$ref"}:
                shape["properties"][field.alias or name] = shown = {"allOf": [shown]}
            shown["description"] = texts[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pidgate.yaml",
        **schema,
    }


def schema_text() -> str:
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    SCHEMA_FILE.write_text(schema_text(), "utf-8")
