"""The gateway with its hot path compiled (setup.py), in a folder of its own beside the checkout.

Not in place: a compiled module would hide its source, and whoever changes that would go on to run the old one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "compiled"
PACKAGE: Final = ROOT / "pidgate"
_COPIED: Final = ("setup.py", "pyproject.toml", "README.md")


class CannotCompile(Exception):
    """There is no C compiler, or it failed; the message holds the end of its output."""


def has_compiler() -> bool:
    """Whether this machine can compile at all."""
    return shutil.which(os.environ.get("CC", "cc")) is not None


def compiled(opt_level: int = 2) -> Path:
    """The folder whose packages are to be taken (see `environment`): made anew when a source has changed, which takes
    half a minute. `opt_level`: the C compiler's. Raises CannotCompile.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = FOLDER / f"O{opt_level}"
    with (FOLDER / f"O{opt_level}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling just now
        stamp, wanted = folder / ".compiled", _digest()
        if not stamp.exists() or stamp.read_text() != wanted:
            _compile(folder, opt_level)
            stamp.write_text(wanted)
    return folder


def _compile(folder: Path, opt_level: int) -> None:
    if not has_compiler():
        raise CannotCompile("no C compiler: install gcc, or measure the uncompiled gateway alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _COPIED:
        shutil.copy(ROOT / name, folder)
    built = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PIDGATE_OPT_LEVEL": str(opt_level)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise CannotCompile((built.stdout + built.stderr)[-3000:])
    shutil.rmtree(folder / "build")


def environment(folder: Path) -> dict[str, str]:
    """For a `python -m` that takes the packages from that folder, whatever its working directory holds."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def _digest() -> str:
    sources = hashlib.sha256(sys.version.encode())
    for folder, _, names in sorted(os.walk(PACKAGE, followlinks=True)):
        for name in sorted(names):
            if not name.endswith(".pyc"):
                path = Path(folder, name)
                sources.update(str(path.relative_to(ROOT)).encode())
                sources.update(path.read_bytes())
    sources.update((ROOT / "setup.py").read_bytes())
    return sources.hexdigest()
