"""The whole file: parts in their order, with style, script, plotly.js and charts inside.

Nothing is fetched and nothing sent: the policy in its head forbids that, and any script but these two by their hash.
So even a name that got through unescaped could not run.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from pidgate.pipeline.report.accuracy import accuracy_section
from pidgate.pipeline.report.advice import advice_section
from pidgate.pipeline.report.blocks import blocks_section
from pidgate.pipeline.report.failover import failover_section
from pidgate.pipeline.report.markup import Html, as_json, joined, tag
from pidgate.pipeline.report.overview import findings_section, overview_section, users_section
from pidgate.pipeline.report.parts import Charts
from pidgate.pipeline.report.rows import Found
from pidgate.pipeline.report.user_pages import picker, user_pages
from pidgate.pipeline.report.words import moment

TITLE = "Producer ids: who opens them, and what the quotas should be"
_LINKS = {
    "findings": "Findings",
    "overview": "Overview",
    "users": "Users",
    "recommendations": "Quotas",
    "accuracy": "Trust",
    "ids": "Ids",
    "failover": "Failover",
}


def page(found: Found) -> str:
    """The file's text. Its size is bounded: users, lines and steps were, when they were read."""
    drawn = Charts()
    report = tag(
        "main",
        tag("div", *_sections(found, drawn), id="report"),
        *user_pages(found, drawn),
    )
    plotly, script = _plotly(), Html(_resource("page.js"))
    body = tag(
        "body",
        _header(found),
        report,
        _footer(found),
        tag("script", as_json({"charts": drawn.drawn}), type="application/json", id="charts"),
        tag("script", plotly),
        tag("script", script),
    )
    return f"<!doctype html>\n{tag('html', _head(plotly, script), body, lang='en')}\n"


def _sections(found: Found, drawn: Charts) -> list[Html]:
    return [
        findings_section(found),
        overview_section(found, drawn),
        users_section(found),
        advice_section(found),
        accuracy_section(found, drawn),
        blocks_section(found, drawn),
        failover_section(found, drawn),
    ]


def _head(*scripts: str) -> Html:
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="robots", content="noindex"),
        tag("title", TITLE),
        tag("style", Html(_resource("page.css"))),
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _header(found: Found) -> Html:
    links = [tag("a", text, href=f"#{name}") for name, text in _LINKS.items()]
    made = f"pidgate · made {moment(found.made_ms)} from {found.tables}"
    return tag(
        "header",
        tag("a", "Skip to the findings", href="#findings", class_="skip"),
        tag("div", tag("h1", TITLE), tag("p", made), class_="title"),
        tag("nav", tag("div", *links), picker(found), aria_label="Parts of the report"),
    )


def _footer(found: Found) -> Html:
    return tag(
        "footer",
        tag(
            "p",
            "This file holds names of users, client ids and addresses: personal data in many places. It loads nothing "
            "and sends nothing. All times are UTC. A new id is a producer id that its user did not use within the "
            "gateway's remember time before.",
        ),
    )


def _plotly() -> Html:
    from plotly.offline import get_plotlyjs

    # What would end the element early must not stand in it, not even in a string.
    return Html(get_plotlyjs().replace("</script", "<\\/script"))


def _resource(name: str) -> str:
    return joined(Html(files("pidgate.pipeline.report").joinpath(name).read_text(encoding="utf-8")))
