"""The files that the examples name: certificates, and the token of the admin address."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from tools.sandbox.certificates import Authority, Pair

TLS_FILES: Final = "/etc/pidgate/"


def write_tls_files(example: str, folder: Path, authority: Authority | None = None) -> None:
    """Write the token, and each certificate, key and CA of one authority, that the text names into the folder."""
    authority = authority or Authority(folder)
    pairs = dict[str, Pair]()
    for name in sorted(set(re.findall(TLS_FILES + r"([\w.-]+)", example))):
        if name.startswith("token"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text("secret\n")
            continue
        stem, _, end = name.rpartition(".")
        if end == "pem":
            shutil.copy(authority.ca_file, folder / name)
            continue
        pair = pairs[stem] = pairs.get(stem) or authority.issue(f"example-{stem}")
        shutil.copy(pair.cert_file if end == "crt" else pair.key_file, folder / name)
