"""The Dockerfile without an engine: its steps are run one by one in a clean folder, then what it starts is started.

test_built_image.py builds and starts the image itself, where there are Debian's packages and root.
"""

import re
import shlex
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.image import DOCKERFILE, ROOT, Container, has_compiler, sources, stages, the
from tools.release.version import released_version
from tools.sandbox.ports import free_block, free_port

pytestmark = pytest.mark.timeout(900)  # the build is the first one's setup

CONFIG = "/etc/pidgate/pidgate.yaml"


def test_the_image_has_two_stages_and_does_not_run_as_root() -> None:
    build, final = stages()
    defaults = [line for line in DOCKERFILE.read_text().splitlines() if line.startswith("ARG")]

    assert defaults == ["ARG BUILD=python:3.11-bookworm", "ARG BASE=gcr.io/distroless/python3-debian12"]
    assert (build[0].rest, final[0].rest) == ("${BUILD} AS build", "${BASE}")
    assert the(final, "USER").rest == "10001:10001"
    # There is no shell that could run a step.
    assert "RUN" not in [word.word for word in final]
    assert the(final, "ENTRYPOINT").exec_form() == ["python3.11", "-m", "pidgate"]
    assert the(final, "CMD").exec_form() == ["run", "--config", CONFIG]
    assert [word.word for word in final].count("HEALTHCHECK") == 1


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert set(sources()) == allowed
    assert all((ROOT / source).exists() for source in sources())


def test_of_the_folders_only_the_package_is_copied() -> None:
    assert {source for source in sources() if source.endswith("/")} == {"requirements/", "pidgate/"}


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
    done = container.run([*the(stages()[-1], "ENTRYPOINT").exec_form(), "version"])
    build = "compiled, with lanes" if has_compiler() else "in plain Python, without lanes"

    assert (done.returncode, done.stdout) == (0, f"pidgate {released_version()} (hot path {build})\n")
    imported = subprocess.run(
        [*container.command(["python3.11"]), "-c", "import pidgate; print(pidgate.__file__)"],
        cwd="/",
        env=container.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.startswith(f"{container.folder}/opt/pidgate/")


@pytest.mark.slow
def test_the_health_command_of_the_image_tells_a_live_gateway_from_a_dead_one(container: Container) -> None:
    final = stages()[-1]
    health = the(final, "HEALTHCHECK").exec_form()
    config = yaml.safe_load((ROOT / "examples" / "front" / "pidgate.yaml").read_text())
    config["cluster"]["bootstrap_servers"] = ["127.0.0.1:1"]
    config["listeners"][0]["bind"] = f"0.0.0.0:{free_port()}"
    config["listeners"][0]["node_ports"]["first"] = free_block(6)
    config["admin"]["bind"] = f"0.0.0.0:{free_port()}"
    file = Path(container.inside(CONFIG))
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(config))

    started = container.command([*the(final, "ENTRYPOINT").exec_form(), *the(final, "CMD").exec_form()])
    with subprocess.Popen(
        started, cwd="/", env=container.environment, stderr=subprocess.PIPE, text=True
    ) as gateway:
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
