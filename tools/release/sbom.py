"""The software bill of materials (CycloneDX): every package of requirements/run.lock, with its hashes."""

import subprocess
import sys
from pathlib import Path

from tools.release.version import ROOT, released_version


def write_sbom(into: Path) -> Path:
    """Write it beside the wheels; the same lock file gives the same bytes."""
    path = into / f"pidgate-{released_version()}.cdx.json"
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--of", "JSON", "-o", path]
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", *options]
    subprocess.run([*command, ROOT / "requirements" / "run.lock"], check=True)
    return path
