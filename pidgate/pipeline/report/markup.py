"""Templates that always escape: all but `Markup` is text, and deceptive characters are made visible.

Knows nothing of the report.
"""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_DECEIVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters forbidden in HTML, or that change the writing direction to imitate another name."""


def environment(folder: Path) -> Environment:
    """Return the templates of a folder; undefined names raise an error and None prints nothing."""
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
