"""The files that the examples with TLS name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from tools.sandbox.certificates import Authority, Pair

TLS_FILES: Final = "/etc/pidgate/"


def write_tls_files(example: str, folder: Path, authority: Authority | None = None) -> None:
    """Write each certificate, key and CA that the text names into the folder, all of one authority."""
    authority = authority or Authority(folder)
    pairs = dict[str, Pair]()
    for name in sorted(set(re.findall(TLS_FILES + r"([\w.-]+)", example))):
        stem, _, end = name.rpartition(".")
        if end == "pem":
            shutil.copy(authority.ca_file, folder / name)
            continue
        pair = pairs[stem] = pairs.get(stem) or authority.issue(f"example-{stem}")
        shutil.copy(pair.cert_file if end == "crt" else pair.key_file, folder / name)
