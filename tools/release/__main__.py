"""Build the sdist, the wheels and the SBOM of a release into dist/: `python -m tools.release [--into DIR]`.

`make dist` runs it in an environment of requirements/release.lock, which brings the C compiler (Zig's clang) and
auditwheel. It builds a compiled wheel for each CPython on this machine, and a pure one for everything else.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.release.sbom import write_sbom
from tools.release.sdist import build_sdist
from tools.release.version import ROOT, released_version
from tools.release.wheels import ARCHITECTURES, PYTHONS, build_wheels


def main() -> int:
    """Build, or only print the version."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder to write to")
    parser.add_argument("--python", action="append", help="a CPython to build for; all that are found")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="x86_64 unless given")
    parser.add_argument("--version", action="store_true", help="print the version and build nothing")
    arguments = parser.parse_args()
    if arguments.version:
        print(released_version())
        return 0
    # The same commit gives the same bytes: every file has the commit's time.
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _commit_time()
    arguments.into.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(arguments.into, int(epoch))
    print(sdist.name, flush=True)
    for wheel in build_wheels(
        sdist, arguments.into, int(epoch), arguments.python or PYTHONS, arguments.arch or ARCHITECTURES[:1]
    ):
        print(wheel.name, flush=True)
    print(write_sbom(arguments.into).name)
    return 0


def _commit_time() -> str:
    git = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
    return subprocess.run(git, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
