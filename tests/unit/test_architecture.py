"""What may import what, and that the pure parts stay pure: no clock, no socket, no chance, no log.

    protocol  quota  events     pure; they import neither each other nor anything above them
    gateway                     joins them; nothing but gateway itself imports it
    pipeline                    imports quota and events only
    sandbox, bench              see the gateway as a process: they import neither it nor (sandbox) quota

Read from the source as it stands (ast), so that imports inside functions and under TYPE_CHECKING count too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = frozenset({"protocol", "quota", "events", "gateway", "pipeline", "sandbox", "bench", "tests"})
MAY_IMPORT = {
    "protocol": {"protocol"},
    "quota": {"quota"},
    "events": {"events"},
    "gateway": {"gateway", "protocol", "quota", "events"},
    "pipeline": {"pipeline", "quota", "events"},
    "sandbox": OURS - {"gateway", "quota"},
    "bench": OURS - {"gateway"},
    "examples": OURS - {"gateway"},
    "deploy": OURS - {"gateway"},
}
PURE = ("protocol", "quota", "events", "gateway/conversation.py")
# fmt: off
IMPURE_MODULES = frozenset((
    "asyncio", "concurrent", "ctypes", "fcntl", "getpass", "glob", "http", "importlib", "io", "logging",
    "mmap", "multiprocessing", "os", "pathlib", "platform", "random", "sched", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "urllib", "aiohttp", "aiokafka", "confluent_kafka",
    "prometheus_client", "pydantic", "rich", "structlog", "typer", "uvloop", "yaml",
))
CLOCKS = frozenset((
    "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time_ns", "utcnow",
    "today", "call_later", "call_at",
))
# fmt: on
CODEC_DOOR = "protocol/messages.py"
PRODUCT = ("protocol", "quota", "events", "gateway", "pipeline")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import stays inside its package; a package may import itself.
            if node.level == 0 and node.module:
                yield node.module
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
            yield "importlib"


def clock_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            # time() and now() only as attributes: loop.time(), datetime.now().
            if name in CLOCKS or (isinstance(node.func, ast.Attribute) and name in {"time", "now"}):
                yield str(name)


def violations(path: str, source: str, *, pure: bool | None = None) -> list[str]:
    """What is wrong with a file of this path (relative to the root, with slashes)."""
    tree = ast.parse(source)
    package = path.split("/", 1)[0]
    pure = path.startswith(PURE) if pure is None else pure
    found = []
    for module in imported_modules(tree):
        top = module.split(".", 1)[0]
        if top in OURS and package in MAY_IMPORT and top not in MAY_IMPORT[package]:
            found.append(f"{path} imports {module}: {package} must not know {top}")
        if pure and top in IMPURE_MODULES:
            found.append(f"{path} imports {module}, but is pure")
        if top == "kafka" and path != CODEC_DOOR and package in PRODUCT:
            found.append(f"{path} imports {module}: only {CODEC_DOOR} does")
    if pure:
        found += [f"{path} asks a clock ({name}), but is pure: take now_ms" for name in clock_calls(tree)]
    return found


def sources(*folders: str) -> list[str]:
    return sorted(
        file.relative_to(ROOT).as_posix() for folder in folders for file in (ROOT / folder).rglob("*.py")
    )


@pytest.mark.parametrize("path", sources(*MAY_IMPORT))
def test_imports_and_purity(path: str) -> None:
    assert violations(path, (ROOT / path).read_text("utf-8")) == []


def test_the_conversation_is_pure_with_all_of_the_gateway_that_it_imports() -> None:
    todo, seen = ["gateway/conversation.py"], set()
    while todo:
        path = todo.pop()
        seen.add(path)
        source = (ROOT / path).read_text("utf-8")
        assert violations(path, source, pure=True) == []
        imported = {module.replace(".", "/") + ".py" for module in imported_modules(ast.parse(source))}
        todo += [name for name in imported if name.startswith("gateway/") and name not in seen]


def test_no_init_file_under_tests() -> None:
    # One would make its folder shadow the package of the same name (tests/unit/quota and quota).
    assert [path for path in sources("tests") if path.endswith("__init__.py")] == []


def test_the_pure_packages_are_there_to_be_checked() -> None:
    for package in ("protocol", "quota", "events", "gateway"):
        assert sources(package), package


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocol/new.py", "import quota"),
        ("protocol/new.py", "from gateway.server import Gateway"),
        ("protocol/new.py", "from kafka.protocol import metadata"),
        ("protocol/new.py", "def f():\n    import asyncio"),
        ("quota/new.py", "from protocol.produce import walk"),
        ("quota/new.py", "import os.path"),
        ("quota/deep/new.py", "from random import random"),
        ("quota/new.py", "now = clock.monotonic()"),
        ("quota/new.py", "at = monotonic_ns()"),
        ("quota/new.py", "at = loop.time()"),
        ("quota/new.py", "socket = __import__('socket')"),
        ("events/new.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import logging"),
        ("events/new.py", "from datetime import datetime\nat = datetime.now()"),
        ("gateway/conversation.py", "import structlog"),
        ("gateway/new.py", "import kafka"),
        ("gateway/new.py", "from sandbox.kafka import Cluster"),
        ("pipeline/new.py", "import gateway.config"),
        ("pipeline/new.py", "import protocol"),
        ("sandbox/new.py", "import quota.settings"),
        ("bench/new.py", "from gateway import server"),
    ],
)
def test_a_violation_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocol/messages.py", "from kafka.protocol import metadata"),
        ("protocol/new.py", "from protocol.errors import MalformedFrame\nfrom . import frames"),
        ("quota/new.py", "def judge(now_ms: int) -> int:\n    return now_ms"),
        ("gateway/new.py", "import time, quota, protocol.produce, events\ntime.monotonic()"),
        ("sandbox/new.py", "import kafka, subprocess, protocol"),
        ("pipeline/new.py", "import quota.bloom, events"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []
