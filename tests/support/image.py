"""The Dockerfile read and its steps carried out in a folder, without an engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word and the rest, continuation lines joined."""

    word: str
    rest: str

    def exec_form(self) -> list[str]:
        """The JSON list of CMD, ENTRYPOINT or HEALTHCHECK ... CMD."""
        words: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return words


def has_compiler() -> bool:
    """Return True where there is a C compiler."""
    return shutil.which(os.environ.get("CC", "cc")) is not None


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, FROM first."""
    text = "\n".join(
        line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")
    )
    found: list[list[Instruction]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            if word == "FROM":
                found.append([])
            if found:  # before the first are the default images
                found[-1].append(Instruction(word, rest))
    return found


def the(stage: list[Instruction], word: str) -> Instruction:
    (only,) = [instruction for instruction in stage if instruction.word == word]
    return only


def sources() -> list[str]:
    """What the build copies out of the repository."""
    copies = [instruction.rest.split()[:-1] for instruction in stages()[0] if instruction.word == "COPY"]
    return [source for copy in copies for source in copy]


class Container:
    """The folder that stands in for a container's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "python3.11").symlink_to(Path(sys.executable).resolve())

    def inside(self, text: str) -> str:
        """Absolute paths of the image moved into the folder."""
        return re.sub(r"(?<![\w.])/(opt|src|etc/pidgate)\b", rf"{self.folder}/\1", text)

    def build(self, stage: list[Instruction]) -> None:
        """COPY and RUN, in their order. Raises CalledProcessError."""
        workdir = Path(self.inside(the(stage, "WORKDIR").rest))
        workdir.mkdir()
        (self.folder / "opt").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment.pop("VIRTUAL_ENV", None)
        environment["PATH"] = f"{self.folder}/bin:/usr/bin:/bin"
        for instruction in stage:
            if instruction.word == "COPY":
                *copied, target = instruction.rest.split()
                for source in copied:
                    _copy(ROOT / source, workdir / target)
            elif instruction.word == "RUN":
                command = ["sh", "-ec", self.inside(instruction.rest)]
                subprocess.run(command, cwd=workdir, env=environment, check=True, stdout=subprocess.DEVNULL)

    @property
    def packages(self) -> Path:
        """The folder of everything that is installed in the image, pidgate among it."""
        return self.folder / "opt" / "pidgate"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of what runs in the image."""
        return dict(word.split("=", 1) for word in self.inside(the(stages()[-1], "ENV").rest).split())

    def command(self, words: list[str]) -> list[str]:
        """A command of the image, its Python that of this environment."""
        return [f"{self.folder}/bin/{words[0]}", *(self.inside(word) for word in words[1:])]

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        command = self.command(words)
        return subprocess.run(
            command, cwd="/", env=self.environment, capture_output=True, text=True, timeout=30, check=False
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target if target.is_dir() else target.parent)
