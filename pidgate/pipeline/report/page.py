"""The HTML file: templates filled in, with style, script, plotly.js and charts embedded."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from markupsafe import Markup

from pidgate.findings.patterns import pattern_words
from pidgate.pipeline.report import charts, words
from pidgate.pipeline.report.findings import advice_sentence, facts, findings, name_of, summary
from pidgate.pipeline.report.markup import environment
from pidgate.pipeline.report.rows import Found
from pidgate.units import counted

_HERE = Path(__file__).parent
_TEMPLATES = environment(_HERE / "templates")
_TEMPLATES.globals |= {"charts": charts, "pattern_words": pattern_words}
_TEMPLATES.filters |= {
    "advice_sentence": advice_sentence,
    "count": words.count,
    "counted": counted,
    "duration": words.duration,
    "facts": facts,
    "findings": findings,
    "listed": words.listed,
    "moment": words.moment,
    "name_of": name_of,
    "no": words.no,
    "rate": words.rate,
    "sentence": words.sentence,
    "share": words.share,
    "size": words.size,
    "summary": summary,
}


def page(found: Found) -> str:
    """Return the file's text. Its size is bounded, because `reading` bounds users, lines and steps."""
    drawn: list[charts.Chart] = []

    def numbered(chart: charts.Chart) -> int:
        drawn.append(chart)
        return len(drawn) - 1

    plotly, script = _plotly(), _resource("page.js")
    return _TEMPLATES.get_template("page.html").render(
        found=found,
        pages={user.user: n for n, user in enumerate(found.users[: found.pages])},
        drawn=drawn,
        numbered=numbered,
        allowed=Markup(" ").join(map(_allowed, (plotly, script))),
        style=_resource("page.css"),
        plotly=plotly,
        script=script,
    )


def _allowed(script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup("'sha256-{}'").format(digest)


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    # The closing tag must not occur in the script, even in a string.
    return Markup(get_plotlyjs().replace("</script", "<\\/script"))


def _resource(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))
