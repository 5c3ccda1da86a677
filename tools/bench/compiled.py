"""pidgate as `pip install .` makes it, its hot path compiled: the wheel, unpacked in a folder beside the checkout.

Not in place: a compiled module would hide its source, and whoever changes that would go on to run the old one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "compiled"
PACKAGE: Final = ROOT / "pidgate"


class CannotCompile(Exception):
    """There is no C compiler, or the build failed; the message holds the end of its output."""


def compiled() -> Path:
    """Return the folder that holds the compiled package (see `environment`).

    Built when a source has changed, which takes some minutes. Raises CannotCompile.
    """
    packages, stamp = FOLDER / "packages", FOLDER / "stamp"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling just now
        wanted = _digest()
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(packages, ignore_errors=True)
            _build(packages)
            stamp.write_text(wanted)
    return packages


def _build(packages: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        # Without isolation: the environment holds the build's requirements, and needs no network.
        options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", wheels]
        built = subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *options, ROOT],
            env={**os.environ, "PIDGATE_PURE": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if built.returncode:
            raise CannotCompile(built.stdout[-3000:])
        (wheel,) = Path(wheels).glob("*.whl")
        if wheel.name.endswith("-none-any.whl"):
            raise CannotCompile("no C compiler: install gcc, or measure the uncompiled gateway alone")
        shutil.unpack_archive(wheel, packages, "zip")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which `python -m` takes the package from that folder, in any working directory."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def _digest() -> str:
    sources = hashlib.sha256(sys.version.encode())
    for folder, _, names in sorted(os.walk(PACKAGE)):
        for name in sorted(names):
            if not name.endswith(".pyc"):
                path = Path(folder, name)
                sources.update(str(path.relative_to(ROOT)).encode())
                sources.update(path.read_bytes())
    for name in ("setup.py", "pyproject.toml"):
        sources.update((ROOT / name).read_bytes())
    return sources.hexdigest()
