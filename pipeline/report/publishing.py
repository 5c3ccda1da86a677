"""A text put in its place at once: whoever opens the file sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from pidgate.pipeline.errors import BadOption
from pidgate.pipeline.tables import Tables


def publish(tables: Tables, text: str, output: Path | None) -> str:
    """Write to the file `output`, or else to report.html under the tables; says where. Raises BadOption."""
    root = urlsplit(tables.root)
    if output is None and root.scheme not in ("", "file"):
        return _remote(tables, text)
    local = output or Path(root.path if root.scheme else tables.root, "report.html")
    return _local(local, text)


def _local(path: Path, text: str) -> str:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".report-", delete=False
        ) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                # A temporary file is its owner's alone; it names people, so it stays so.
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        raise BadOption(
            f"the report cannot be written to {path} ({error.strerror}): give another file by --output."
        ) from error
    return str(path)


def _remote(tables: Tables, text: str) -> str:
    files, draft, name = tables.files, ".report.html.draft", "report.html"
    files.replace(draft, text)
    files.remove(name)
    files.rename(draft, name)
    return tables.path(name)
