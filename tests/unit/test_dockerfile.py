"""The Dockerfile without an engine: its steps are run one by one in a clean folder, then what it starts is started.

What is not covered: the base image itself, the user it creates, and the layers. No image was built.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from bench.compiled import has_compiler
from pidgate.sandbox.ports import free_block, free_port

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
CONFIG = "/etc/pidgate/pidgate.yaml"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word and the rest, continuation lines joined."""

    word: str
    rest: str

    def exec_form(self) -> list[str]:
        """The JSON list of CMD, ENTRYPOINT or HEALTHCHECK ... CMD."""
        words: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return words


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
        (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())

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

    def command(self, words: list[str]) -> list[str]:
        """A command of the image: its first word found on the image's PATH."""
        path = self.inside(the(stages()[-1], "ENV").rest.split()[0].removeprefix("PATH=").split(":")[0])
        return [f"{path}/{words[0]}", *(self.inside(word) for word in words[1:])]

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        command = self.command(words)
        return subprocess.run(
            command, cwd="/", env={}, capture_output=True, text=True, timeout=30, check=False
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target if target.is_dir() else target.parent)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The build stage, carried out."""
    folder = tmp_path_factory.mktemp("image")
    built = Container(folder)
    built.build(stages()[0])
    yield built
    shutil.rmtree(folder)


def test_the_image_is_slim_staged_and_does_not_run_as_root() -> None:
    build, final = stages()

    assert build[0].rest == "python:3.11 AS build"  # the same Python, with a C compiler
    assert final[0].rest == "python:3.11-slim"
    assert the(final, "USER").rest == "10001"
    assert f"--uid {the(final, 'USER').rest} " in the(final, "RUN").rest
    assert the(final, "ENTRYPOINT").exec_form() == ["pidgate"]
    assert the(final, "CMD").exec_form() == ["run", "--config", CONFIG]
    assert [word.word for word in final].count("HEALTHCHECK") == 1


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert set(sources()) == allowed
    assert all((ROOT / source).exists() for source in sources())


def test_every_package_that_the_gateway_imports_is_copied() -> None:
    packages = {
        match[1]
        for source in sources()
        for file in (ROOT / source).rglob("*.py")
        for match in re.finditer(r"^\s*(?:from|import) pidgate\.(\w+)", file.read_text(), re.MULTILINE)
    }
    ours = {entry.name for entry in (ROOT / "pidgate").iterdir() if entry.is_symlink()}

    assert {"gateway", "quota", "protocol"} <= packages & ours <= {source.strip("/") for source in sources()}


def test_everything_that_is_installed_is_pinned_by_hash() -> None:
    installs = [step.rest for step in stages()[0] if step.word == "RUN" and "pip install" in step.rest]
    wheels = [step.rest for step in stages()[0] if step.word == "RUN" and "pip wheel" in step.rest]

    assert len(installs) == 3
    assert all("--require-hashes" in step or "--no-index" in step for step in installs)
    assert len(wheels) == 1
    assert "--no-build-isolation" in wheels[0]  # with isolation pip would fetch what builds anew, unpinned


def test_what_builds_is_pinned_for_every_requirement_of_the_build() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "build.lock").read_text(), re.MULTILINE)

    for requirement in map(Requirement, required):
        assert requirement.specifier.contains(dict(pins)[requirement.name])


@pytest.mark.slow
def test_the_steps_give_a_working_command(container: Container) -> None:
    done = container.run(["pidgate", "version"])
    build = "compiled" if has_compiler() else "in plain Python"

    assert (done.returncode, done.stdout) == (0, f"pidgate 0.1.0 (hot path {build})\n")
    imported = subprocess.run(
        [*container.command(["python"]), "-c", "import pidgate; print(pidgate.__file__)"],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.startswith(f"{container.folder}/opt/pidgate/lib/")


@pytest.mark.slow
def test_the_health_command_of_the_image_tells_a_live_gateway_from_a_dead_one(container: Container) -> None:
    final = stages()[-1]
    health = the(final, "HEALTHCHECK").exec_form()
    config = yaml.safe_load((ROOT / "examples" / "container.yaml").read_text())
    config["cluster"]["bootstrap_servers"] = ["127.0.0.1:1"]
    config["listeners"][0]["bind"] = f"0.0.0.0:{free_port()}"
    config["listeners"][0]["node_ports"]["first"] = free_block(6)
    config["admin"]["bind"] = f"0.0.0.0:{free_port()}"
    file = Path(container.inside(CONFIG))
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(config))

    started = container.command([*the(final, "ENTRYPOINT").exec_form(), *the(final, "CMD").exec_form()])
    with subprocess.Popen(started, cwd="/", env={}, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            deadline_s = time.monotonic() + 20
            while (alive := container.run(health)).returncode != 0:
                assert gateway.poll() is None, shlex.join(started)
                assert time.monotonic() < deadline_s
        finally:
            gateway.terminate()
            _, log = gateway.communicate(timeout=30)
    dead = container.run(health)

    assert alive.stdout == "alive\n"
    assert "gateway_starting" in log
    assert gateway.returncode == 0
    assert dead.returncode == 1
    assert dead.stdout.startswith("unhealthy: ")
