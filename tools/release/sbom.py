"""The software bill of materials (CycloneDX): every package of requirements/run.lock, with its hashes."""

import subprocess
import sys
from pathlib import Path

from tools.release.version import ROOT, released_version


def write_sbom(into: Path) -> Path:
    """Write it beside the wheels; the same lock file gives the same bytes."""
    path = into / f"pidgate-{released_version()}.cdx.json"
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "-o", str(path)]
    # It warns that a lock file does not say which package needs which.
    command = [sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements", *options]
    subprocess.run([*command, str(ROOT / "requirements" / "run.lock")], check=True)
    return path
