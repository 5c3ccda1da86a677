"""The command line, run as its users run it: real processes, real files, exit codes and texts."""

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import uvloop
import yaml

from pidgate.cli import running
from pidgate.version import has_lanes
from tests.support.command_line import typed
from tests.support.tls_examples import TLS_FILES, write_tls_files
from tools.release.version import released_version
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.ports import free_block

PIDGATE = Path(sys.executable).with_name("pidgate")
ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
NOBODY = "127.0.0.1:1"
"""A broker that refuses every connection."""


def pidgate(*arguments: str | Path, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PIDGATE, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def written(folder: Path, text: str) -> Path:
    file = folder / "pidgate.yaml"
    file.write_text(text)
    return file


@contextmanager
def running_gateway() -> Iterator[GatewayProcess]:
    """A gateway whose cluster cannot be reached."""
    process = GatewayProcess(NOBODY)
    # Not entered: that would wait for /readyz.
    with ExitStack() as stack:
        stack.push(process)
        process.start(wait=False)
        deadline_s = time.monotonic() + 20
        while process.status("/livez") != 200:
            assert process.is_alive, process.log_tail()
            assert time.monotonic() < deadline_s, process.log_tail()
            time.sleep(0.02)
        yield process


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway() as process:
        yield process


def test_version_is_that_of_the_package() -> None:
    lanes = "with lanes" if has_lanes() else "without lanes"
    assert pidgate("version").stdout == f"pidgate {released_version()} (hot path in plain Python, {lanes})\n"


@pytest.mark.parametrize("words", [("who", "--bootstrap-servers"), ("health", "--admin")])
@pytest.mark.parametrize("moment", ["import time:.* typer.core", "connected"])
def test_ctrl_c_prints_no_traceback(words: tuple[str, ...], moment: str) -> None:
    """While modules are imported, and while the other side says nothing."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-X", "importtime", "-m", "pidgate", *words, address]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            if moment == "connected":
                silent.settimeout(20)
                stack.enter_context(silent.accept()[0])
            else:
                assert any(re.search(moment, line) for line in process.stderr)
            process.send_signal(signal.SIGINT)
            written = process.communicate(timeout=20)[1]

    assert process.returncode == -signal.SIGINT
    assert [line for line in written.splitlines() if not line.startswith("import time:")] == []


def test_help_shows_the_defaults() -> None:
    shown = " ".join(pidgate("run", "--help").stdout.split())

    for default in ("127.0.0.1:9292", "127.0.0.1:9290"):
        assert f"(default: {default})" in shown


def test_check_explains_in_plain_words(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """\
cluster: {bootstrap_servers: [127.0.0.1:19092]}
listeners:
  - {bind: 127.0.0.1:9292, advertise: "gw-{node_id}.example", node_ports: {first: 9300, node_ids: [1, 7]}}
quotas:
  mode: enforce
  producer_ids: {max_throttle: 25s}
  default: {producer_ids_rate: 1000}
  users:
    alice: {producer_ids_rate: 100}
    bob: {mode: observe}
    mallory: {producer_ids_rate: 0}
    mirror-maker: {exempt: [producer_ids]}
    slow: {producer_ids_rate: 2.5}
""",
    )
    done = pidgate("check", "--config", file)

    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "Listener 127.0.0.1:9292: clients bootstrap at 127.0.0.1:9292.",
        "  Broker 7 has port 9301, shown to clients as gw-7.example:9301.",
        "Health and metrics: http://127.0.0.1:9290/livez, /readyz, /metrics.",
        "Any user not named: 1,000 new producer ids per 1h, at most 2,001 in any hour.",
        f"{file} is valid.",
        f"warning: {file}:6: quotas.producer_ids.max_throttle: "
        "is near or above the clients' request timeout (30s); 10s is safe",
    ):
        assert line in done.stdout.splitlines()
    rows = [
        re.split(r" {2,}", line) for line in done.stdout.splitlines() if line.endswith(("enforce", "observe"))
    ]
    assert rows == [
        ["alice", "100 new producer ids per 1h, at most 201 in any hour", "enforce"],
        ["bob", "1,000 new producer ids per 1h, at most 2,001 in any hour", "observe"],
        ["mallory", "blocked: every new producer id is refused", "enforce"],
        ["mirror-maker", "exempt: counted, never charged or refused", "enforce"],
        ["slow", "2.5 new producer ids per 1h, at most 6 in any hour", "enforce"],
    ]


def test_check_says_what_outlives_a_restart(tmp_path: Path) -> None:
    cluster = "cluster: {bootstrap_servers: [127.0.0.1:19092]}\n"
    shared = """\
own_client: {mechanism: PLAIN, username: gw, password_file: /run/secrets/gw}
events: {retention: 3d}
state_dir: /var/lib/pidgate
"""
    alone = """\
quotas: {mode: enforce, producer_ids: {grace: 0s}}
events: {enabled: false}
"""
    said = [typed("check", "--config", written(tmp_path, cluster + text)) for text in (shared, alone)]

    assert [(done.returncode, done.stderr) for done in said] == [(0, "")] * 2
    for line in (
        "Every decision is an event on the topic __pidgate_events, kept for 3d, written as gw (PLAIN).",
        "The state is also kept in the directory /var/lib/pidgate.",
        "After a cold start quotas are in force from 1h on: until then new ids pass uncharged (grace),",
    ):
        assert line in said[0].stdout.splitlines()
    assert "Nothing is remembered over a restart: each start is a cold one." in said[1].stdout
    assert "events.enabled: with no topic and no state_dir nothing is remembered" in said[1].stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.parent.name}/{example.name}")
def test_every_example_is_valid_and_surprises_nobody(example: Path, tmp_path: Path) -> None:
    done = typed("check", "--config", with_its_files(example, tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    assert "warning" not in done.stdout


@pytest.mark.parametrize("memory", ["", "state_dir: state\n"])
def test_ports_that_are_unknown_after_a_restart_are_warned_of(memory: str, tmp_path: Path) -> None:
    text = (
        f"cluster: {{bootstrap_servers: ['{NOBODY}']}}\nlisteners: [{{authentication: required}}]\n{memory}"
    )
    done = typed("check", "--config", written(tmp_path, text))
    assert done.returncode == 0
    assert ("ports stay closed" in done.stdout) == (memory == "")


def with_its_files(example: Path, folder: Path) -> Path:
    """The example, or a copy whose certificates are there."""
    text = example.read_text()
    if TLS_FILES not in text:
        return example
    write_tls_files(text, folder)
    return written(folder, text.replace(TLS_FILES, f"{folder}/"))


def test_each_folder_of_examples_names_its_files_and_the_test_that_runs_them() -> None:
    folders = sorted(entry for entry in (ROOT / "examples").iterdir() if entry.is_dir())
    index = (ROOT / "examples" / "README.md").read_text()
    assert {example.parent for example in EXAMPLES} <= set(folders)
    for folder in folders:
        page = (folder / "README.md").read_text()
        assert f"[{folder.name}]({folder.name}/)" in index
        assert re.search(r"\(\.\./\.\./tests/[\w/]+\.py\)", page), page
        missing = {
            entry.name
            for entry in folder.iterdir()
            if entry.suffix in (".yaml", ".cfg")
            and f"]({entry.name})" not in page
            and f"--config {entry.name}" not in page
        }
        assert missing == set()


def test_all_examples_enforce_but_the_one_that_says_it_observes() -> None:
    modes = {example: yaml.safe_load(example.read_text())["quotas"].get("mode") for example in EXAMPLES}
    assert {example.name for example, mode in modes.items() if mode != "enforce"} == {"observe.yaml"}


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_wrong_file_is_refused_with_line_and_remedy(command: str, tmp_path: Path) -> None:
    file = written(tmp_path, "cluster:\n  bootstrap_servers: [a:1]\nquotas:\n  mod: enforce\n")
    done = pidgate(command, "--config", file)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"{file}:4: quotas.mod: is not a known key; did you mean mode?\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run"], "--config: is missing; name a file, or the brokers with --bootstrap-servers host:port"),
        (
            ["run", "--config", "x.yaml", "--bind", "127.0.0.1:1"],
            "--bind: does not go with --config; write it into the file",
        ),
        (
            ["run", "--config", "x.yaml", "--bootstrap-servers", "a:1"],
            "--bootstrap-servers: does not go with --config; write it into the file",
        ),
        (
            ["run", "--bootstrap-servers", "a:1", "--bind", "0.0.0.0:9292"],
            "--bind: clients cannot connect to 0.0.0.0; write the host they use, or a file with advertise",
        ),
        (["check"], "pidgate check: which file? Name it with --config FILE"),
        (
            ["health", "--admin", "nowhere"],
            "pidgate health: 'nowhere' has no port; write nowhere:PORT",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(arguments: list[str], text: str) -> None:
    done = pidgate(*arguments) if arguments[0] == "run" else typed(*arguments)

    assert (done.returncode, done.stderr.strip()) == (2, text)


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        options = ["--bootstrap-servers", NOBODY]
        bind = pidgate("run", *options, "--bind", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0")
        free = f"127.0.0.1:{free_block(13)}"
        admin = pidgate("run", *options, "--bind", free, "--admin", f"127.0.0.1:{port}")

    for option, done in (("--bind", bind), ("--admin", admin)):
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f"{option}: cannot listen on 127.0.0.1:{port}: the port is in use; "
            f"stop the process listening there (ss -ltnp 'sport = :{port}' shows it), or write another port"
        )


def test_run_lives_before_it_is_ready_and_drains_on_sigterm(gateway: GatewayProcess) -> None:
    assert gateway.status("/readyz") == 503
    with closing(socket.create_connection(("127.0.0.1", gateway.port), timeout=5)):
        pass

    assert gateway.stop() == 0

    events = [event["event"] for event in gateway.log_events()]
    assert events[0] == "gateway_starting"
    assert gateway.log_events()[0]["compiled"] is False
    assert "draining" in events
    assert events[-1] == "stopped"


def test_it_takes_as_many_open_files_as_it_may_have() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with running_gateway() as gateway:
            assert resource.prlimit(gateway.pid or 0, resource.RLIMIT_NOFILE) == (hard, hard)
            assert gateway.log_events()[0]["open_files"] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_health_command_tells_life_from_readiness(gateway: GatewayProcess, tmp_path: Path) -> None:
    assert gateway.directory is not None
    file = gateway.directory / "pidgate.yaml"

    alive = pidgate("health", "--config", file)
    ready = pidgate("health", "--ready", "--admin", f"127.0.0.1:{gateway.admin_port}")
    gateway.kill()
    dead = pidgate("health", "--config", file)

    assert (alive.returncode, alive.stdout) == (0, "alive\n")
    assert ready.returncode == 1
    assert re.match(r"not ready: .*127\.0\.0\.1:1", ready.stdout)
    assert dead.returncode == 1
    assert dead.stdout.startswith(f"unhealthy: 127.0.0.1:{gateway.admin_port} does not answer")


class NeverDrained:
    """Stands in for a gateway whose connections do not end."""

    def __init__(self) -> None:
        self.drains = 0
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def drain(self) -> None:
        self.drains += 1
        os.kill(os.getpid(), signal.SIGINT)
        await self._stopped.wait()

    def reload(self) -> None:
        raise AssertionError("nobody sent SIGHUP")


def test_a_second_signal_does_not_wait_for_the_drain() -> None:
    made: list[NeverDrained] = []

    def make() -> NeverDrained:
        made.append(NeverDrained())
        return made[0]

    assert uvloop.run(running.serve(make)) == 130
    assert made[0].drains == 1


def test_run_needs_neither_file_nor_more_than_the_brokers() -> None:
    bind = free_block(13)
    admin = bind + 1
    addresses = ["--bind", f"127.0.0.1:{bind}", "--admin", f"127.0.0.1:{admin}"]
    options = ["--bootstrap-servers", NOBODY, *addresses]
    process = subprocess.Popen([PIDGATE, "run", *options], stderr=subprocess.PIPE, text=True)
    try:
        deadline_s = time.monotonic() + 20
        while pidgate("health", "--admin", f"127.0.0.1:{admin}").returncode != 0:
            assert process.poll() is None
            assert time.monotonic() < deadline_s
    finally:
        process.terminate()
        _, log = process.communicate(timeout=20)

    assert process.returncode == 0
    assert "gateway_starting" in log
    assert '"mode": "observe"' in log
