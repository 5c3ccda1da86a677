"""Wheels: one for each CPython and architecture with the compiled hot path and lanes, and a pure one for the rest.

mypyc's code depends on the version of CPython, so there is no abi3 wheel. Zig's clang brings the headers and stubs of
glibc 2.28, so a wheel that is built on a new distribution runs on an old one; auditwheel checks it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path

from tools.release.version import ROOT

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = "2.28"
"""Debian 10, RHEL 8, Ubuntu 18.10 and everything newer."""


class CannotBuild(Exception):
    """A wheel was not built; the message has the end of what the build printed."""


def build_wheels(
    sdist: Path, into: Path, epoch: int, pythons: Sequence[str], architectures: Sequence[str]
) -> Iterator[Path]:
    """Build the wheels of the source distribution, and name the Pythons that this machine does not have."""
    found = [path for python in pythons if (path := _find(python))]
    if not found:
        raise CannotBuild(f"none of {', '.join(pythons)} is on this machine")
    with tempfile.TemporaryDirectory() as folder:
        for place, python in enumerate(found):
            builder = _builder(Path(folder, f"builder-{place}"), python)
            if place == 0:
                yield _build(builder, sdist, into, {"SOURCE_DATE_EPOCH": str(epoch), "PIDGATE_PURE": "1"})
            for architecture in architectures:
                environment = {"SOURCE_DATE_EPOCH": str(epoch), **_compiler(builder, architecture)}
                wheel = _build(builder, sdist, into, environment)
                _check(wheel, architecture)
                yield wheel


def _find(python: str) -> str | None:
    """Return the path of a Python with headers, on PATH or of pyenv; print that there is none."""
    asked = "import os, sysconfig; print(os.path.exists(sysconfig.get_paths()['include'] + '/Python.h'))"
    version = python.removeprefix("python")
    of_pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/{python}")
    for path in (shutil.which(python), *map(str, sorted(of_pyenv))):
        if path is not None:
            answer = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
            if answer.stdout.strip() == "True":
                return path
    print(f"no wheel for {python}: it is not on this machine, or has no headers", file=sys.stderr)
    return None


def _builder(folder: Path, python: str) -> Path:
    """Make an environment with what builds, pinned by hash, and return its Python."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    builder = folder / "bin" / "python"
    lock = ROOT / "requirements" / "build.lock"
    pip = [str(builder), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--require-hashes", "-r", str(lock)], check=True)
    return builder


def _compiler(builder: Path, architecture: str) -> dict[str, str]:
    """Return the environment in which setuptools compiles and links with Zig for that architecture."""
    spec = util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CannotBuild("ziglang is missing: use `make dist`, or install requirements/release.lock")
    compiler = f"{Path(spec.origin).parent / 'zig'} cc -target {architecture}-linux-gnu.{GLIBC}"
    tag = subprocess.run(
        [builder, "-c", "import sys; print('cpython-%d%d' % sys.version_info[:2])"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    return {
        "CC": compiler,
        # Without what the interpreter was linked with: its search path is one of the build machine.
        "LDSHARED": f"{compiler} -shared -Wl,-s",
        # No trap for undefined behaviour, which Zig adds; no names of temporary files.
        "CFLAGS": "-fno-sanitize=undefined -g0",
        "SETUPTOOLS_EXT_SUFFIX": f".{tag}-{architecture}-linux-gnu.so",
        "_PYTHON_HOST_PLATFORM": f"manylinux_{GLIBC.replace('.', '_')}_{architecture}",
    }


def _build(builder: Path, sdist: Path, into: Path, environment: dict[str, str]) -> Path:
    """Build one wheel into the folder, and return it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIDGATE"))}
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check"]
        done = subprocess.run(
            [builder, "-m", "pip", "wheel", *options, "--wheel-dir", folder, sdist],
            # Sets are iterated in one order, so the generated C is the same each time.
            env={**kept, **environment, "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CannotBuild(done.stdout[-6000:])
        (wheel,) = Path(folder).glob("*.whl")
        if "PIDGATE_PURE" not in environment and wheel.name.endswith("-none-any.whl"):
            raise CannotBuild(f"the compiler did not work:\n{done.stdout[-6000:]}")
        return Path(shutil.move(wheel, into / wheel.name))


def _check(wheel: Path, architecture: str) -> None:
    """Let auditwheel confirm that the wheel needs nothing newer than its tag says."""
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    said = " ".join(shown.stdout.split())
    tags = [f"manylinux_2_{minor}_{architecture}" for minor in range(5, int(GLIBC.partition(".")[2]) + 1)]
    if shown.returncode or not any(f'following platform tag: "{tag}"' in said for tag in tags):
        raise CannotBuild(f"{wheel.name} is not what its name says: {said}{shown.stderr[-2000:]}")
