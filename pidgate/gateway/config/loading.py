"""A YAML file or command-line options -> checked settings, or one error that names every line and remedy.

No other module reads either. This module must not know sockets, the event loop or the environment.
"""

import difflib
import inspect
import typing
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pidgate import units
from pidgate.gateway.config import conflicts
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.config.source import (
    ConfigError,
    KeyPath,
    Problem,
    Source,
    option_value,
    parse_yaml,
    read_yaml,
)

__all__ = ["ConfigError", "Problem", "Settings", "checked", "from_options", "load", "parse"]


_OPTIONS: dict[KeyPath, str] = {
    ("cluster", "bootstrap_servers"): "--bootstrap-servers",
    ("listeners", 0, "bind"): "--bind",
    ("listeners", 0): "--bind",
    ("admin", "bind"): "--admin",
    ("state_dir",): "--state-dir",
}
_MISSING: dict[KeyPath, str] = {
    ("cluster",): "add cluster: {bootstrap_servers: [host:9092]}",
    ("cluster", "bootstrap_servers"): "add bootstrap_servers: [host:9092]",
}
"""Remedies for missing required keys."""
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


Overrides = Mapping[KeyPath, str]
"""Values of options that take the place of a file's, so that one file serves several gateways."""


def load(path: Path, overrides: Overrides = MappingProxyType({})) -> Settings:
    """Read and check a file. Raises ConfigError with every problem, each with its line and remedy."""
    return checked(read(path, overrides))


def read(path: Path, overrides: Overrides) -> Source:
    """Read a file. Raises ConfigError when it cannot be read, is no YAML, or repeats a key."""
    source = read_yaml(path)
    return OverriddenSource(source, overrides) if overrides else source


def parse(text: str, name: str = "pidgate.yaml") -> Settings:
    """Read and check text. Messages refer to it as `name`. Raises ConfigError with every problem."""
    return checked(parse_yaml(text, name))


def checked(source: Source) -> Settings:
    """Validate the content of a source. Raises ConfigError with every problem."""
    try:
        settings = Settings.model_validate(_without_nulls(source.data))
    except ValidationError as error:
        raise ConfigError(problems(error, Settings, source)) from error
    found = [
        Problem(source.where(path), source.key(path), text) for path, text in conflicts.conflicts(settings)
    ]
    if found:
        raise ConfigError(found)
    return settings


def _without_nulls(data: object, path: KeyPath = ()) -> object:
    """Drop keys without a value, which mean their default. A user without a value remains a user."""
    if isinstance(data, dict):
        kept = {key: _without_nulls(value, (*path, key)) for key, value in data.items()}
        if path == ("quotas", "users"):
            return {key: {} if value is None else value for key, value in kept.items()}
        return {key: value for key, value in kept.items() if value is not None}
    return data if not isinstance(data, list) else [_without_nulls(item, (*path, 0)) for item in data]


class OverriddenSource(Source):
    """A file, some of whose values are overridden by options: messages about those name the option."""

    def __init__(self, source: Source, overrides: Overrides) -> None:
        super().__init__(source.name, source.data, source.lines)
        self._overrides = overrides
        for path, value in overrides.items():
            self.data = _replaced(self.data, path, value)

    def where(self, path: KeyPath) -> str:
        return _OPTIONS[path] if path in self._overrides else super().where(path)

    def key(self, path: KeyPath) -> str:
        return "" if path in self._overrides else super().key(path)


def _replaced(data: object, path: KeyPath, value: str) -> object:
    """Return a copy with another value at `path`; data that is no section stays, and is refused later."""
    if not path:
        return value
    if data is not None and not isinstance(data, dict):
        return data
    section: dict[object, object] = dict(data or {})
    return section | {path[0]: _replaced(section.get(path[0]), path[1:], value)}


class OptionSource(Source):
    """Settings from command-line options: messages name the option."""

    def __init__(self, data: object, options: dict[KeyPath, str]) -> None:
        super().__init__("", data, {})
        self._options = options

    def where(self, path: KeyPath) -> str:
        while path and path not in self._options:
            path = path[:-1]
        return self._options.get(path, "")

    def key(self, path: KeyPath) -> str:
        return ""


def from_options(
    bootstrap_servers: str,
    *,
    bind: str = "127.0.0.1:9292",
    admin: str = "127.0.0.1:9290",
    state_dir: str | None = None,
    topics: bool = False,
) -> Settings:
    """Return settings without a file: observe mode, node n at the port of `bind` + 8 + n, no topics without `topics`.

    `bootstrap_servers` is comma-separated. Raises ConfigError naming options.
    """
    address = option_value("--bind", units.address, bind)
    if address.host in units.WILDCARD_HOSTS:
        raise ConfigError.at(
            "--bind",
            f"clients cannot connect to {address.host}; write the host they use, or a file with advertise",
        )
    data = {
        "cluster": {
            "bootstrap_servers": [server for server in bootstrap_servers.split(",") if server.strip()]
        },
        "listeners": [{"bind": bind, "node_ports": {"first": address.port + 8}}],
        "admin": {"bind": admin},
        "state_dir": state_dir,
        "events": {"enabled": topics},
    }
    return checked(OptionSource(data, _OPTIONS))


# ---- pydantic's errors in plain words -----------------------------------------------------------------


def problems(error: ValidationError, model: type[BaseModel], source: Source) -> list[Problem]:
    """Return every error as a Problem, in the order of the file."""
    details = error.errors(include_url=False)
    located = sorted(filter(_is_informative, details), key=lambda detail: source.line(detail["loc"]))
    return [
        Problem(source.where(detail["loc"]), source.key(detail["loc"]), _message(detail, model))
        for detail in located
    ]


_REMOVED: Final[Mapping[KeyPath, str]] = {
    (
        "workers",
    ): "is not a key: a gateway is one process; for more cores remove it, write reuse_port: true, and start several "
    "gateways with this file, each with its own --admin and --state-dir",
}
"""Removed keys whose replacement operators need to know."""


def _is_informative(detail: ErrorDetails) -> bool:
    # A list with only invalid items also counts as too short: the errors of its items are enough.
    return not (detail["type"] == "too_short" and detail["input"])


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, path, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _REMOVED.get(path, f"is not a known key; {_suggestion(path, model)}")
    if kind == "missing":
        return f"is missing; {_MISSING.get(path, 'add it')}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"{detail['input']!r} is not possible here; write {context['expected']}"
    shown = "(not shown)" if _may_be_secret(path) else _short(detail["input"])
    if kind in _WORDS:
        return f"{shown} {_WORDS[kind]}"
    bounds = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
    if kind in bounds:
        relation = (
            kind.replace("greater_than", "above")
            .replace("less_than", "below")
            .replace("_equal", " or equal to")
        )
        return f"{detail['input']!r} is out of range; write a number {relation} {context[bounds[kind]]}"
    return f"{shown}: {detail['msg']}"


def _may_be_secret(path: KeyPath) -> bool:
    """Return whether a secret may have been written there instead of the name of its file."""
    return any(str(key) in ("password_file", "key_file", "token_file") for key in path)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _suggestion(path: KeyPath, model: type[BaseModel]) -> str:
    known = known_keys(path[:-1], model)
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"remove it (known here: {', '.join(known)})"


def known_keys(path: KeyPath, model: type[BaseModel]) -> list[str]:
    """Return the allowed keys of the section at `path`."""
    section: type[BaseModel] = model
    key_is_free = False
    for part in path:
        if key_is_free or isinstance(part, int):
            key_is_free = False
            continue
        fields = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
        annotation = fields[part]
        section = _section_in(annotation) or section
        key_is_free = typing.get_origin(annotation) in (dict, Mapping)
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_in(annotation: object) -> type[BaseModel] | None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_in, typing.get_args(annotation))), None)
