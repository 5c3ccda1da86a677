"""What a user installs: built and started as the README says, in clean environments, away from the checkout.

One environment holds pidgate beside opensearch-py, whose requirement Events installs a package `events`. Its commands
run in a folder full of packages that carry names of ours, and raise when something imports them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from pidgate.pipeline.errors import JavaUnfit
from pidgate.pipeline.session import java_home
from tests.support.image import has_compiler
from tests.support.inputs import hot_modules
from tools.bench.compiled import compiled
from tools.release.version import released_version
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

pytestmark = [
    pytest.mark.install,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not has_compiler(), reason="there is no C compiler here"),
]

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    entry.name for entry in (ROOT / "pidgate").iterdir() if entry.is_dir() and entry.name != "__pycache__"
)
NAMES_TO_SHADOW = [*PACKAGES, "pidgate", "numpy", "pandas", "yaml"]
LIBRARY = "pidgate/_hot_path__mypyc"
LANE = "pidgate/gateway/lane/_lane"
TOPIC = "installed"
VERSION = released_version()
COMPILED = f"pidgate {VERSION} (hot path compiled, with lanes)\n"
PLAIN = f"pidgate {VERSION} (hot path in plain Python, without lanes)\n"


def run(
    *command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with nothing of this environment but where things are; the output stands in what is raised."""
    kept = {
        name: os.environ[name] for name in os.environ if not name.startswith(("PYTHON", "PIDGATE", "VIRTUAL"))
    }
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **(environment or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def copy_of_the_repository(folder: Path) -> Path:
    """Copy what a build needs, links as links, and nothing that a build has made."""
    folder.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "pidgate", folder / "pidgate", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    return folder


@dataclass(frozen=True, slots=True)
class Installed:
    """A clean environment, the wheels, and the folder that nothing of ours may be taken from."""

    environment: Path
    source: Path
    wheels: Mapping[str, Path]
    """Of the sdist: "fast", "pure" (PIDGATE_PURE=1), "without compiler"."""
    elsewhere: Path

    def run(self, *arguments: str | Path, **environment: str) -> str:
        """Return what `pidgate arguments` prints."""
        return run(
            self.environment / "bin" / "pidgate", *arguments, cwd=self.elsewhere, environment=environment
        ).stdout


def installation(environment: Path, source: Path) -> None:
    """Two packages and what they need; a Spark job needs the extra."""
    venv.create(environment, with_pip=True)
    run(environment / "bin" / "pip", "install", f"{source}[pipeline]", "opensearch-py", cwd=source.parent)


def wheels_of_the_sdist(folder: Path, python: Path) -> dict[str, Path]:
    """Build them one after the other, each in a folder of its own."""
    source = copy_of_the_repository(folder / "source")
    make = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    run(sys.executable, "-c", make, folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    wheels = {}
    for name, environment in {
        "fast": {},
        "pure": {"PIDGATE_PURE": "1"},
        "without compiler": {"PATH": str(folder / "nothing")},
    }.items():
        options = ["--no-deps", "--wheel-dir", str(folder / name)]
        run(python, "-m", "pip", "wheel", *options, sdist, cwd=folder, environment=environment)
        (wheels[name],) = (folder / name).iterdir()
    return wheels


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("install")
    elsewhere = folder / "elsewhere"
    for name in NAMES_TO_SHADOW:
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "__init__.py").write_text(
            "raise ImportError(f'the working directory has {__name__}')"
        )
    source = copy_of_the_repository(folder / "source")
    (folder / "sdist").mkdir()
    venv.create(folder / "builder", with_pip=True)
    with ThreadPoolExecutor() as both:
        wheels = both.submit(wheels_of_the_sdist, folder / "sdist", folder / "builder" / "bin" / "python")
        both.submit(installation, folder / "environment", source).result()
    yield Installed(folder / "environment", source, wheels.result(), elsewhere)
    shutil.rmtree(folder)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def compiled_in(names: set[str]) -> set[str]:
    """The compiled modules without what their names say of platform and Python."""
    return {name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))}


def test_a_wheel_holds_one_package(installed: Installed) -> None:
    for wheel in installed.wheels.values():
        assert {name.partition("/")[0] for name in names_in(wheel)} == {
            "pidgate",
            f"pidgate-{VERSION}.dist-info",
        }


def test_all_modules_of_the_hot_path_are_compiled_or_none(installed: Installed) -> None:
    names = {build: names_in(wheel) for build, wheel in installed.wheels.items()}

    assert compiled_in(names["fast"]) == {
        LIBRARY,
        LANE,
        *(module.removesuffix(".py") for module in hot_modules()),
    }
    for build in ("pure", "without compiler"):
        assert installed.wheels[build].name == f"pidgate-{VERSION}-py3-none-any.whl"
        assert compiled_in(names[build]) == set()
        assert names[build] == {name for name in names["fast"] if not name.endswith((".so", ".pyd"))}
    in_the_tree = {str(path.relative_to(ROOT)) for path in (ROOT / "pidgate").rglob("*.py")}
    assert in_the_tree <= names["fast"]


def test_the_bench_measures_what_pip_installs(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheels["fast"]) as wheel:
        expected = {name for name in wheel.namelist() if name.endswith(".so")}
    folder = compiled()
    assert expected
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.so")} == expected


def test_the_command_says_which_build_it_is(installed: Installed, tmp_path: Path) -> None:
    assert installed.run("version") == COMPILED
    for build, shown in {"fast": COMPILED, "pure": PLAIN, "without compiler": PLAIN}.items():
        zipfile.ZipFile(installed.wheels[build]).extractall(tmp_path / build)
        assert installed.run("version", PYTHONPATH=str(tmp_path / build)) == shown


def test_an_installation_leaves_nothing_compiled_in_the_source(installed: Installed) -> None:
    made = {path.relative_to(installed.source).parts[0] for path in installed.source.rglob("*")}

    assert made - {path.name for path in ROOT.iterdir()} <= {"pidgate.egg-info"}
    made_by_compilers = {
        path.relative_to(installed.source)
        for path in installed.source.rglob("*")
        if path.suffix in {".so", ".c", ".o"}
    }
    assert made_by_compilers == {path.relative_to(ROOT) for path in (ROOT / "pidgate").rglob("*.c")}


def test_pip_finds_no_fault_and_both_packages_are_there(installed: Installed) -> None:
    python = installed.environment / "bin" / "python"
    both = (
        "from events import Events; import pidgate.events; print(Events.__module__, pidgate.events.__name__)"
    )

    run(python, "-m", "pip", "check", cwd=installed.source.parent)
    assert run(python, "-P", "-c", both, cwd=installed.elsewhere).stdout == "events.events pidgate.events\n"


@pytest.mark.kafka
def test_a_gateway_serves_from_a_folder_of_other_packages(installed: Installed) -> None:
    with Cluster() as cluster:
        create_topic(cluster.bootstrap_servers(), TOPIC)
        gateway = GatewayProcess(cluster.bootstrap_servers())
        (installed.elsewhere / "pidgate.yaml").write_text(yaml.safe_dump(gateway.config))
        log = installed.elsewhere / "pidgate.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [installed.environment / "bin" / "pidgate", "run", "--config", "pidgate.yaml"],
                cwd=installed.elsewhere,
                env={"PATH": os.environ["PATH"]},
                stderr=output,
            )
        try:
            wait_until_ready(gateway, process, log)
            events = [yaml.safe_load(line) for line in log.read_text().splitlines()]
            delivered = produced(gateway.bootstrap_servers)
            loaded = shared_libraries(process.pid)
        finally:
            process.terminate()
            code = process.wait(30)

    assert (code, delivered) == (0, 0), log.read_text()
    assert events[0]["compiled"] is True
    assert [name for name in loaded if LIBRARY in name and name.startswith(str(installed.environment))]


def wait_until_ready(gateway: GatewayProcess, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + 30
    while gateway.status("/readyz") != 200:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.1)


def produced(bootstrap_servers: str) -> int:
    """Return the offset at which a record was acknowledged."""
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    producer.produce(TOPIC, b"a record", on_delivery=lambda error, message: told.append((error, message)))
    producer.flush(30)
    ((error, message),) = told
    assert error is None
    return int(message.offset())


def shared_libraries(pid: int) -> set[str]:
    """Return the files that a process has mapped (Linux)."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {words[5] for words in map(str.split, maps) if len(words) > 5}


def test_a_first_look_needs_no_java(installed: Installed, tmp_path: Path) -> None:
    began_s = time.monotonic()
    shown = installed.run("pipeline", "run", "--engine", "local", "--json", PATH=str(tmp_path), JAVA_HOME="")
    took_s = time.monotonic() - began_s
    found = json.loads(shown)
    assert found["not_run"] == []
    assert sum(one["weight"] == "bad" for one in found["findings"]) >= 3
    assert took_s < 30


def test_spark_jobs_run_from_a_folder_of_other_packages(installed: Installed, tmp_path: Path) -> None:
    try:
        java_home()
    except JavaUnfit as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))
    options = ["--tables", str(tmp_path / "tables"), "--memory", "900m"]

    made = ("-m", "tools.history", *options, "--users", "12", "--days", "1", "--events", "2000")
    run(sys.executable, *made, cwd=ROOT)
    # It replays them through the compiled quota, in Spark's workers.
    least = ("--least-history", "1h", "--least-ids", "1")
    shown = installed.run("pipeline", "recommend", *options, *least, "--json").splitlines()

    rows = [json.loads(line) for line in shown]
    assert len(rows) == 12
    assert all({"user", "action"} <= row.keys() for row in rows)
    assert any("recommended_rate" in row for row in rows)  # no value, no field
