"""pydantic's errors in plain words, with the line and what to write instead."""

import difflib
import inspect
import typing

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pidgate.gateway.config.source import KeyPath, Problem, Source

# What to write where a key that must be there is missing.
_MISSING: dict[KeyPath, str] = {
    ("cluster",): "add cluster: {bootstrap_servers: [host:9092]}",
    ("cluster", "bootstrap_servers"): "add bootstrap_servers: [host:9092]",
}
_WORDS = {
    "string_type": "is not text; put it in quotes",
    "int_type": "is not a whole number; write it as digits, without quotes or unit",
    "int_from_float": "is not a whole number; write it without a decimal point",
    "float_type": "is not a number; write it without quotes or unit",
    "bool_type": "is neither true nor false; write one of them",
    "model_type": "is not a section; write keys and values below it",
    "dict_type": "is not a section; write keys and values below it",
    "tuple_type": "is not a list; write it in brackets, as in [a, b]",
    "too_short": "is empty; write at least one",
}


def problems(error: ValidationError, model: type[BaseModel], source: Source) -> list[Problem]:
    """Every error as a Problem, in the order of the file."""
    details = error.errors(include_url=False)
    located = sorted(filter(_speaks, details), key=lambda detail: source.line(detail["loc"]))
    return [
        Problem(source.where(detail["loc"]), source.key(detail["loc"]), _text(detail, model))
        for detail in located
    ]


def _speaks(detail: ErrorDetails) -> bool:
    # A list whose items are all wrong counts as too short as well: its items say enough.
    return not (detail["type"] == "too_short" and detail["input"])


def _text(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, path, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"is not a known key; {_suggestion(path, model)}"
    if kind == "missing":
        return f"is missing; {_MISSING.get(path, 'add it')}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"{detail['input']!r} is not possible here; write {context['expected']}"
    if kind in _WORDS:
        return f"{_short(detail['input'])} {_WORDS[kind]}"
    bounds = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
    if kind in bounds:
        relation = (
            kind.replace("greater_than", "above")
            .replace("less_than", "below")
            .replace("_equal", " or equal to")
        )
        return f"{detail['input']!r} is out of range; write a number {relation} {context[bounds[kind]]}"
    return f"{_short(detail['input'])}: {detail['msg']}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _suggestion(path: KeyPath, model: type[BaseModel]) -> str:
    known = known_keys(path[:-1], model)
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"remove it (known here: {', '.join(known)})"


def known_keys(path: KeyPath, model: type[BaseModel]) -> list[str]:
    """The keys that may stand in the section at `path`."""
    section: type[BaseModel] = model
    key_is_free = False
    for part in path:
        if key_is_free or isinstance(part, int):
            key_is_free = False
            continue
        fields = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
        annotation = fields[part]
        section = _section_in(annotation) or section
        key_is_free = typing.get_origin(annotation) is dict
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_in(annotation: object) -> type[BaseModel] | None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_in, typing.get_args(annotation))), None)
