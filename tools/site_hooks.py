"""What mkdocs does to a page beside its own: paths instead of links to files outside the site, and breaks in names.

The pages are read in two places. In the repository a link to deploy/ or docs/decisions leads to the file; the site has
no such file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:]+)\)")
_NAME_IN_A_CELL: Final = re.compile(r"(?<=<td><code>)[\w.\[\]]+(?=</code>)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the page's text for the site."""
    folder, is_excluded = Path(page.file.abs_src_path).parent, config.exclude_docs.match_file
    return _LINK.sub(lambda link: _outside(folder, link[1], link[2], is_excluded) or link[0], markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page's HTML with names of metrics and keys that break between words where a column is narrow."""
    return _NAME_IN_A_CELL.sub(lambda name: re.sub(r"(?<=[_.])", "<wbr>", name[0]), html)


def _outside(folder: Path, text: str, target: str, is_excluded: Callable[[str], bool]) -> str | None:
    # A link of the file system in docs/ is a file of the site.
    path = Path(os.path.normpath(folder / target.partition("#")[0]))
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT).as_posix()
    asked = inside.removeprefix("docs/") + "/" * path.is_dir()
    if inside.startswith("docs/") and not is_excluded(asked):
        return None
    shown = text.strip("`/")
    is_path = f"/{inside}".endswith(f"/{shown}") or shown == path.stem
    return f"`{inside}`" if is_path else f"{text} (`{inside}`)"
