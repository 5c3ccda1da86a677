"""Tests that compile, install or run Spark, and the files that decide what they find.

They are left out, with the reason in the summary, while those files are the ones of the last green `make nightly`:
it keeps their digests in docs/nightly.json.
"""

import ast
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

from tests.support.bounds import THOROUGH

ROOT = Path(__file__).parents[2]
LAST_NIGHTLY = ROOT / "docs" / "nightly.json"

KINDS = ("py", "html", "css", "js", "json", "gz", "properties")
PACKAGING = ("setup.py", "pyproject.toml", "MANIFEST.in", "requirements/*.lock", "pidgate/*.py")
IMPORTED = (
    *(f"pidgate/{folder}" for folder in ("events", "findings", "quota", "protocol", "gateway/config")),
    "tools/sandbox",
)
INPUTS = {
    "tests/image/": (
        *PACKAGING,
        "Dockerfile",
        ".dockerignore",
        "pidgate/cli/app.py",
        "pidgate/cli/health.py",
        "HOT_MODULES",
        "tests/support/image.py",
        "tests/support/mypyc_front.py",
    ),
    "tests/install/": (*PACKAGING, "HOT_MODULES", "tests/install/*.py"),
    "tests/pipeline/": (
        *PACKAGING,
        *(
            f"{folder}/**/*.{kind}"
            for folder in ("pidgate/pipeline", "tools/history", "tests/pipeline")
            for kind in KINDS
        ),
        *(f"{folder}/**/*.py" for folder in IMPORTED),
        *(
            f"tests/support/{made}.py"
            for made in ("*_events", "browsing", "questions", "recordings", "stretched")
        ),
        "tests/unit/events/made_up.py",
        "pidgate/gateway/recording/config_event.py",
    ),
}
"""Where the tests stand, and patterns of their inputs; they themselves are always among them. Tests on a real Kafka
that stand there see a gateway, and are never left out.
"""


def hot_modules() -> list[str]:
    """Return the paths of the modules that setup.py compiles."""
    for node in ast.parse((ROOT / "setup.py").read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="HOT_MODULES")], value=value):
                return list(ast.literal_eval(value))
    raise LookupError("setup.py names no HOT_MODULES")


def files_of(place: str) -> set[Path]:
    """Return the files that decide what the tests at `place` find, themselves included."""
    files = set(ROOT.glob(f"{place}*.py") if place.endswith("/") else [ROOT / place])
    for pattern in INPUTS[place]:
        files.update(map(ROOT.joinpath, hot_modules()) if pattern == "HOT_MODULES" else ROOT.glob(pattern))
    return files


def digest(place: str) -> str:
    """Return a digest of the inputs of the tests at `place`, of this Python and this kind of machine."""
    found = hashlib.sha256(f"{sys.version_info[:2]} {platform.machine()}".encode())
    for file in sorted(files_of(place)):
        content = file.read_bytes() if file.is_file() else b"not there"
        found.update(f"{file.relative_to(ROOT)} {hashlib.sha256(content).hexdigest()}\n".encode())
    return found.hexdigest()


def last_nightly() -> dict[str, Any]:
    """Return what the last nightly run wrote; empty before the first one."""
    found: dict[str, Any] = json.loads(LAST_NIGHTLY.read_text("utf-8")) if LAST_NIGHTLY.exists() else {}
    return found


def unchanged() -> dict[str, str]:
    """Return the places whose tests need not run, with the reason; none in the nightly run itself."""
    nightly = {} if THOROUGH else last_nightly()
    recorded = nightly.get("inputs", {})
    return {
        place: f"its inputs are those of the last green nightly run ({nightly['inputs_from']}); make nightly runs it"
        for place in INPUTS
        if place in recorded and recorded[place] == digest(place)
    }
