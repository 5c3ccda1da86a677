"""The source distribution, the same bytes for the same commit."""

import gzip
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.release.version import ROOT, released_version

MAKE = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"


def build_sdist(into: Path, epoch: int) -> Path:
    """Build it from the files that git has, and write it with one time and one owner."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source"), Path(folder, "made")
        source.mkdir()
        made.mkdir()
        _export(source)
        # setuptools writes the time of the build into the archive, so it is packed again.
        subprocess.run([sys.executable, "-c", MAKE, made], cwd=source, stdout=subprocess.DEVNULL, check=True)
        (archive,) = made.iterdir()
        wanted = into / f"pidgate-{released_version()}.tar.gz"
        _pack_again(archive, wanted, epoch)
    return wanted


def _export(source: Path) -> None:
    """Copy the tracked files as they are in the work tree; what lies beside them does not belong to a release."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name.startswith(("pidgate/", "pyproject", "setup.py", "README", "LICENSE", "NOTICE")):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def _pack_again(archive: Path, wanted: Path, epoch: int) -> None:
    with (
        tarfile.open(archive) as made,
        wanted.open("wb") as output,
        gzip.GzipFile(filename="", mode="wb", fileobj=output, mtime=epoch) as compressed,
        # Headers of the other format have the time with its fraction, too.
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        for member in sorted(made.getmembers(), key=lambda member: member.name):
            mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            plain = member.replace(mtime=epoch, mode=mode, uid=0, gid=0, uname="", gname="")
            packed.addfile(plain, made.extractfile(member) if member.isfile() else None)
