"""What may import what, and that the pure parts stay pure: no clock, no socket, no chance, no log.

    protocol  quota  events  findings    pure; they import neither each other nor anything above them
    gateway                     joins them, room by room; its page names patterns as who does
    who  load  doctor           beside the gateway: of it they know clocks, configuration and the topics' reader
    pipeline                    imports quota, events and findings only
    history                     makes tables up for the pipeline, which does not know it
    pidgate/ itself             what all share: units, version; its __main__ alone imports cli
    sandbox, bench              see the gateway as a process: they import neither it nor (sandbox) quota
    cli                         knows all but the pipeline and the sandbox, which are processes of their own

No room imports a room that imports it, and no file a file that imports it, on whatever way.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.support.architecture_page import PAGE, generated
from tests.support.import_graph import (
    FOLDERS,
    PACKAGE,
    ROOT,
    TOOLS,
    circles,
    file_imports,
    file_of,
    folder_of,
    imported_modules,
    room_imports,
    room_of,
    sources,
)

MOST_FILES_OF_THE_GATEWAY_ITSELF = 5
PURE_PACKAGES = frozenset({"protocol", "quota", "events", "findings"})
MAY_IMPORT = {
    "pidgate": {"cli"},
    "protocol": set[str](),
    "quota": set[str](),
    "events": set[str](),
    "findings": set[str](),
    "gateway": {"protocol", "quota", "events", "who"},
    "pipeline": {"quota", "events", "findings"},
    "history": {"quota", "events", "findings", "pipeline"},
    "who": {"quota", "events", "findings", "gateway", "gateway/config", "gateway/topics"},
    "doctor": {"protocol", "gateway"},
    "load": {"protocol", "gateway"},
    "sandbox": {"protocol", "load"},
    "cli": set(FOLDERS) - {"pipeline"},
    "bench": {*FOLDERS, *TOOLS} - {"gateway"},
    "examples": {*FOLDERS, *TOOLS} - {"gateway"},
    "deploy": {*FOLDERS, *TOOLS} - {"gateway"},
}
"""Of each folder, the other folders and rooms it may import; a folder of several rooms stands for all of them, but
`gateway` as a room of its own is what lies in gateway/ itself where its rooms are named one by one."""
CALLS_ITSELF_PURE = ("PURE.", "Pure.", "Pure;", "Pure:")
# fmt: off
PURE_PARTS = frozenset({"sys.intern"})
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
CODEC_DOOR = "pidgate/protocol/codec.py"
DOORS = {
    "time": {"pidgate/gateway/clock.py"},
    "random": set[str](),
    "secrets": {"pidgate/gateway/process/outside.py", "pidgate/gateway/config/local_token.py"},
}
"""Who of the gateway asks the machine for time and chance: a simulation is the machine at these doors alone."""
PRODUCT = ("protocol", "quota", "events", "findings", "gateway", "pipeline", "who", "load", "doctor", "cli")


def clock_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            # time() and now() only as attributes: loop.time(), datetime.now().
            if name in CLOCKS or (isinstance(node.func, ast.Attribute) and name in {"time", "now"}):
                yield str(name)


def may_import(path: str, other: str) -> bool:
    """Return whether a file may import another file of ours."""
    folder, target = folder_of(path), folder_of(other)
    if folder not in MAY_IMPORT or target in (folder, PACKAGE):
        return True
    allowed = MAY_IMPORT[folder]
    names_rooms = any(name.startswith(f"{target}/") for name in allowed) or folder == "load"
    return (room_of(other) if names_rooms else target) in allowed


def is_pure(path: str, tree: ast.Module) -> bool:
    """Return whether a file has to be pure: by its package, or because its docstring says so."""
    first_lines = (ast.get_docstring(tree) or "").split("\n\n", 1)[0]
    return folder_of(path) in PURE_PACKAGES or any(word in first_lines for word in CALLS_ITSELF_PURE)


def violations(path: str, source: str, *, pure: bool | None = None) -> list[str]:
    """What is wrong with a file of this path (relative to the root, with slashes)."""
    tree = ast.parse(source)
    folder = folder_of(path)
    pure = is_pure(path, tree) if pure is None else pure
    found = []
    for module in imported_modules(tree):
        top = module.split(".", 1)[0]
        other = file_of(module)
        if other is not None and not may_import(path, other):
            found.append(f"{path} imports {module}: {folder} must not know it")
        if pure and top in IMPURE_MODULES and module not in PURE_PARTS:
            found.append(f"{path} imports {module}, but is pure")
        if folder == "gateway" and path not in DOORS.get(top, {path}):
            found.append(f"{path} imports {module}: only {sorted(DOORS[top])} may")
        if top == "kafka" and path != CODEC_DOOR and folder in PRODUCT:
            found.append(f"{path} imports {module}: only {CODEC_DOOR} does")
    if pure:
        found += [f"{path} asks a clock ({name}), but is pure: take now_ms" for name in clock_calls(tree)]
    return sorted(set(found))


@pytest.mark.parametrize("path", sources(*MAY_IMPORT))
def test_imports_and_purity(path: str) -> None:
    assert violations(path, (ROOT / path).read_text("utf-8")) == []


def test_the_session_is_pure_with_all_of_the_gateway_that_it_imports() -> None:
    todo, seen = ["pidgate/gateway/proxy/session.py"], set()
    while todo:
        path = todo.pop()
        seen.add(path)
        assert violations(path, (ROOT / path).read_text("utf-8"), pure=True) == []
        todo += [
            name for name in file_imports()[path] if name.startswith("pidgate/gateway/") and name not in seen
        ]


def test_no_circles_between_rooms() -> None:
    assert circles(room_imports()) == []


def test_no_circles_between_files() -> None:
    assert circles(file_imports()) == []


def test_a_circle_is_found() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert circles(graph) == [["a", "b", "c"]]


def test_the_gateway_keeps_few_files_of_its_own() -> None:
    assert (
        len([path for path in sources("gateway") if room_of(path) == "gateway"])
        <= MOST_FILES_OF_THE_GATEWAY_ITSELF
    )


def test_the_page_shows_the_code_as_it_is() -> None:
    page = PAGE.read_text("utf-8")
    assert generated(page) == page, "run `make docs`: python -m tests.support.architecture_page"


def test_the_package_is_the_tree_and_the_top_shows_its_core() -> None:
    assert {"gateway", "protocol", "quota", "events", "pipeline"} <= set(FOLDERS)
    for name in ("gateway", "protocol", "quota"):
        link = (ROOT / name).readlink()
        assert link.as_posix() == f"{PACKAGE}/{name}", "relative, or the checkout cannot be moved"


def test_no_init_file_under_tests() -> None:
    # One would make its folder shadow the package of the same name (tests/unit/quota and quota).
    assert [path for path in sources("tests") if path.endswith("__init__.py")] == []


def test_the_pure_packages_are_there_to_be_checked() -> None:
    for package in ("protocol", "quota", "events", "gateway"):
        assert sources(package), package


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pidgate/new.py", "import pidgate.quota"),
        ("pidgate/protocol/new.py", "from pidgate.gateway.process.server import Gateway"),
        ("pidgate/protocol/new.py", "from kafka.protocol import metadata"),
        ("pidgate/quota/new.py", "import os.path"),
        ("pidgate/quota/new.py", "at = loop.time()"),
        ("pidgate/gateway/new.py", '"""State of a thing. PURE."""\nimport structlog'),
        ("pidgate/gateway/proxy/new.py", "import secrets"),
        ("pidgate/pipeline/new.py", "from pidgate import protocol"),
    ],
)
def test_a_violation_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pidgate/protocol/codec.py", "from kafka.protocol import metadata"),
        (
            "pidgate/gateway/clock.py",
            "import time, quota, pidgate.protocol.produce, events\ntime.monotonic()",
        ),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(path, source) == []


TASKS_OF_A_LIFE = {"_background", "_keeping", "_ticking"}
"""Attributes that keep tasks which nobody awaits before the end."""
KEPT_BY = {"guarded", "begun_anew"}


def unguarded_tasks(tree: ast.AST) -> list[int]:
    """Return the lines where a task of a process's life begins whose failure nothing would log."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            into = node.targets if isinstance(node, ast.Assign) else [node.target]
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        ):
            into = [node.func.value]
        else:
            continue
        if not any(isinstance(one, ast.Attribute) and one.attr in TASKS_OF_A_LIFE for one in into):
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("create_task"):
                work = call.args[0]
                if not (isinstance(work, ast.Call) and ast.unparse(work.func) in KEPT_BY):
                    found.append(call.lineno)
    return found


def test_no_task_of_the_gateway_ends_without_a_line() -> None:
    """One that dies silently is missed much later: certificates that are not renewed, reports that are not sent."""
    tasks = 0
    for path in (ROOT / PACKAGE / "gateway").rglob("*.py"):
        text = path.read_text()
        tasks += text.count("create_task(")
        assert unguarded_tasks(ast.parse(text)) == [], path
    assert tasks > 10


@pytest.mark.parametrize(
    "code",
    [
        "self._background = loop.create_task(self._follow())",
        "self._background.append(loop.create_task(self._tick()))",
    ],
)
def test_a_task_whose_failure_nobody_logs_is_noticed(code: str) -> None:
    assert unguarded_tasks(ast.parse(code)) == [1]
