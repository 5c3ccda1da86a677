"""A YAML file as plain data plus the line of every key, and the error that names a line or an option.

This module does not know the meaning of keys. Keys are always text: YAML 1.1 would read a user called `no` as
False.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import yaml

T = TypeVar("T")
KeyPath = tuple[str | int, ...]
# Real files nest six levels. An alias that contains itself nests without end.
_DEEPEST = 40
MOST_CHARACTERS = 16 * 2**20
"""Length of a file: 50,000 users with a dozen keys each."""
MOST_VALUES = 1_000_000
"""Keys and values of a file. Aliases of aliases would make any number of them from a few lines."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its place (file:line or an option), its key, and `text` with the remedy."""

    where: str
    key: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.text) if part)


class ConfigError(Exception):
    """The configuration cannot be used. `problems` are in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    @classmethod
    def at(cls, where: str, text: str, key: str = "") -> Self:
        """Return an error with one problem."""
        return cls([Problem(where, key, text)])


def option_value(option: str, read: Callable[[str], T], text: str) -> T:
    """Parse an option's text with `read`. Raises ConfigError naming the option instead of ValueError."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError.at(option, str(error)) from error


class Source:
    """The content of a file as plain objects (`data`), with the line of each key."""

    def __init__(self, name: str, data: object, lines: dict[KeyPath, int]) -> None:
        self.name = name
        self.data = data
        self.lines = lines

    def line(self, path: KeyPath) -> int:
        """Return the line (from 1) of the key at `path`, or of the nearest section around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def where(self, path: KeyPath) -> str:
        """Return file and line of a key, for messages."""
        return f"{self.name}:{self.line(path)}"

    def key(self, path: KeyPath) -> str:
        return dotted(path)


def read_yaml(path: Path) -> Source:
    """Read a file. Raises ConfigError when it cannot be read, is no YAML, or repeats a key."""
    name = str(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError.at(
            name, f"cannot be read ({reason}); name an existing file with --config"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError.at(name, "is not UTF-8 text; save it as UTF-8") from error
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Source:
    """Parse text. Messages refer to it as `name`. Raises ConfigError when it is no YAML, or repeats a key."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError.at(name, f"is longer than {MOST_CHARACTERS:,} characters")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[KeyPath, int] = {}
        data = {} if root is None else _plain(root, (), lines, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = name if mark is None else f"{name}:{mark.line + 1}"
        what = " ".join(part for part in (error.context, error.problem) if part)
        remedy = f"is not valid YAML ({what}); check indentation, quotes and brackets"
        raise ConfigError.at(where, remedy) from error
    except RecursionError as error:
        raise ConfigError.at(name, "is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ConfigError.at(name, f"is not valid YAML ({error}); save it as plain UTF-8 text") from error
    return Source(name, data, lines)


def _plain(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], name: str) -> object:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(path) > _DEEPEST:
        raise ConfigError.at(f"{name}:{line}", "is nested too deeply; an alias may not contain itself")
    if len(lines) > MOST_VALUES:
        raise ConfigError.at(f"{name}:{line}", f"has more than {MOST_VALUES:,} values; write fewer aliases")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, index), lines, name) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _plain_mapping(node, path, lines, name)
    return _scalar(node, name)


def _plain_mapping(
    node: yaml.MappingNode, path: KeyPath, lines: dict[KeyPath, int], name: str
) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError.at(f"{name}:{line}", "a key must be a plain word")
        key = str(key_node.value)
        if key in plain:
            text = f"is written twice (first in line {lines[(*path, key)]}); keep one"
            raise ConfigError.at(f"{name}:{line}", text, dotted((*path, key)))
        lines[(*path, key)] = line
        plain[key] = _plain(value_node, (*path, key), lines, name)
    return plain


def _scalar(node: yaml.Node, name: str) -> object:
    constructor = yaml.constructor.SafeConstructor()
    try:
        value: object = constructor.construct_object(node)
    except (ValueError, OverflowError) as error:
        where = f"{name}:{node.start_mark.line + 1}"
        raise ConfigError.at(where, f"{node.value!r} cannot be read ({error}); put it in quotes") from error
    return value


def dotted(path: KeyPath) -> str:
    """Format a path as listeners[0].bind."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
