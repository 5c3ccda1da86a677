"""Templates that cannot forget to escape: what is not `Markup` is text, and shows characters that deceive.

Knows nothing of the report.
"""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_DECEIVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that HTML forbids, or that turn the direction of writing to pass for another name."""


def environment(folder: Path) -> Environment:
    """Return the templates of a folder; a name that they do not know is an error, None is nothing."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _shown(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _DECEIVES.sub("\ufffd", value)
    return value
