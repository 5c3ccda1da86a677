"""The HTML file: templates filled in, with style, script and charts embedded."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pidgate.findings.patterns import pattern_words
from pidgate.pipeline.recommend.sentences import NAMES, overall
from pidgate.pipeline.report import charts, words
from pidgate.pipeline.report.findings import advice_sentence, facts, findings, goes_on, name_of, summary
from pidgate.pipeline.report.rows import Found
from pidgate.units import counted

_DECEIVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters forbidden in HTML, or that change the writing direction to imitate another name."""


def environment(folder: Path) -> Environment:
    """Return the templates of a folder. They escape all but `Markup`, and make deceptive characters visible.

    Undefined names raise an error and None prints nothing.
    """
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


_HERE = Path(__file__).parent
_TEMPLATES = environment(_HERE / "templates")
_TEMPLATES.globals |= {"charts": charts, "pattern_words": pattern_words, "rate_names": NAMES}
_TEMPLATES.filters |= {
    **{
        one.__name__: one
        for one in (advice_sentence, counted, facts, findings, goes_on, name_of, overall, summary)
    },
    **{name: value for name, value in vars(words).items() if callable(value)},
}


def page(found: Found) -> str:
    """Return the file's text. Its size is bounded, because `reading` bounds users, lines and steps."""
    script = _resource("page.js")
    return _TEMPLATES.get_template("page.html").render(
        found=found,
        pages={user.user: n for n, user in enumerate(found.users[: found.pages])},
        allowed=_allowed(script),
        style=_resource("page.css"),
        script=script,
    )


def _allowed(script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup("'sha256-{}'").format(digest)


def _resource(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))
