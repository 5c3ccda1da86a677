"""HTML that cannot be forgotten to be escaped: whatever is not `Html` already is text, and is escaped.

Knows nothing of the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Union

Content = Union["Html", str, int, None, Iterable["Content"]]
Attribute = str | int | bool | None

_VOID = frozenset(("br", "col", "hr", "img", "input", "link", "meta"))
# Inside <script> nothing is unescaped, so what could end the element, or a line of JavaScript, must not stand there.
_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


def tag(name: str, /, *children: Content, **attributes: Attribute) -> Html:
    """An element. `class_` is class, `data_chart` is data-chart; True is an attribute without a value, None is none."""
    opened = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{opened}>")
    return Html(f"<{name}{opened}>{joined(*children)}</{name}>")


def joined(*children: Content) -> Html:
    """One after the other; None is nothing."""
    return Html("".join(_text(child) for child in children))


def as_json(value: object) -> Html:
    """For a script element of type application/json."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Html(text.translate(_IN_SCRIPT))


def chart_text(text: str) -> str:
    """A name in a chart: plotly reads labels as a little HTML of its own, with links."""
    return escape(text, quote=False)


def _text(child: Content) -> str:
    if isinstance(child, Html):
        return child
    if child is None:
        return ""
    if isinstance(child, str | int):
        return escape(_visible(str(child)))
    return "".join(_text(one) for one in child)


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{escape(_visible(str(value)))}"'


def _visible(text: str) -> str:
    """Replace characters that HTML forbids, or that turn the direction of writing to pass for another name."""
    return "".join("\ufffd" if _hides(character) else character for character in text)


def _hides(character: str) -> bool:
    code = ord(character)
    return (
        (code < 0x20 and character not in "\t\n")
        or 0x7F <= code < 0xA0
        or 0x200E <= code <= 0x200F
        or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        or 0xD800 <= code <= 0xDFFF
    )
