"""The bundle for a report: file, metrics and state in a tar.gz, without passwords and tokens.

Of a file of the configuration the values of known keys are kept, and every value that may be a secret is replaced. Its
comments are left out: a password may stand there.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

REDACTED: Final = "(redacted)"
_SECRET: Final = re.compile(
    r"password|secret|token|credential|jaas|private|hmac|(^|_|\.)key(_file)?$", re.IGNORECASE
)
_PEM: Final = re.compile(r"-----BEGIN|Bearer |password\s*=", re.IGNORECASE)


def redacted(value: Any, key: str = "") -> Any:
    """Return a value of a configuration file without secrets: the path of a file that exists stays."""
    if _SECRET.search(key) and not isinstance(value, bool):
        is_path = key.endswith("_file") and isinstance(value, str) and Path(value).exists()
        return value if is_path else REDACTED
    if isinstance(value, dict):
        return {name: redacted(one, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [redacted(one) for one in value]
    return REDACTED if isinstance(value, str) and _PEM.search(value) else value


def config_text(data: object) -> str:
    return yaml.safe_dump(redacted(data), sort_keys=False, allow_unicode=True)


def write(file: Path, parts: Mapping[str, str]) -> None:
    """Write the parts by name, readable for their owner only. Raises OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
        for name, text in parts.items():
            content = text.encode(errors="surrogateescape")
            entry = tarfile.TarInfo(f"pidgate-doctor/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
