"""What mkdocs does to a page beside its own: links to files outside the site become the files' paths.

The pages are read in two places. In the repository a link to deploy/ or docs/decisions leads to the file; the site has
no such file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the page's text for the site."""
    folder, is_excluded = Path(page.file.abs_src_path).parent, config.exclude_docs.match_file
    return _LINK.sub(lambda link: _outside(folder, link[1], link[2], is_excluded) or link[0], markdown)


def _outside(folder: Path, text: str, target: str, is_excluded: Callable[[str], bool]) -> str | None:
    path = (folder / target.partition("#")[0]).resolve()
    if not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT).as_posix()
    asked = inside.removeprefix("docs/") + "/" * path.is_dir()
    if inside.startswith("docs/") and not is_excluded(asked):
        return None
    return f"`{inside}`" if text.strip("`") in (inside, path.name, path.stem) else f"{text} (`{inside}`)"
