"""What mkdocs does to a page beside its own: links to files outside the site become the files' paths.

The pages are read in two places. In the repository a link to deploy/ or docs/decisions leads to the file; the site has
no such file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:]+)\)")
_OUTSIDE: Final = (
    "docs/decisions",
    "docs/nightly.json",
    "docs/explanation/architecture.md",
    "docs/reference/rules.md",
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text for the site."""
    folder = Path(page.file.abs_src_path).parent
    return _LINK.sub(lambda link: _outside(folder, link[1], link[2]) or link[0], markdown)


def _outside(folder: Path, text: str, target: str) -> str | None:
    path = (folder / target.partition("#")[0]).resolve()
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT).as_posix()
    if inside.startswith("docs/") and not inside.startswith(_OUTSIDE):
        return None
    return f"`{inside}`" if text.strip("`") in (inside, path.name, path.stem) else f"{text} (`{inside}`)"
