"""`pidgate run`: settings from a file or from options, then the gateway until a signal stops it."""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import uvloop

from pidgate import open_files
from pidgate.cli.options import USAGE_ERROR, RunOptions
from pidgate.gateway import logs
from pidgate.gateway.admin import service_manager
from pidgate.gateway.config import conflicts, loading
from pidgate.gateway.config.listening import CannotListen
from pidgate.gateway.config.loading import ConfigError, Settings
from pidgate.gateway.config.source import dotted
from pidgate.gateway.errors import CannotStart
from pidgate.gateway.lane.lanes import count_of
from pidgate.gateway.logs import Event, guarded
from pidgate.gateway.process.lifetime import RunsAndDrains, keep_freed_memory
from pidgate.gateway.tls import checking as tls_checking
from pidgate.version import has_lanes, is_compiled, version

STOPPED: Final = 0
CUT_SHORT: Final = 130

_OPTIONS: Final = {
    "listeners.bind": "--bind",
    "listeners.node_ports": "--bind",
    "admin.bind": "--admin",
}
_OVERRIDING: Final = {"admin": ("admin", "bind"), "state_dir": ("state_dir",)}
"""Options that go with --config, and the keys that they override."""


def run(options: RunOptions) -> int:
    """Serve until stopped; return the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a gateway to reload
    file = options.config
    try:
        settings = _settings(options)
        overrides = _overrides(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    if problems := [
        f"{_where(file, dotted(error.path))}: {error.text}" for error in tls_checking.unusable(settings)
    ]:
        print("\n".join(problems), file=sys.stderr)
        return USAGE_ERROR
    logs.configure(settings.log_level)
    faulthandler.enable()  # a stack on stderr for a SIGSEGV, and for the SIGABRT of systemd's watchdog
    # libuv's batches of epoll_ctl by io_uring cost more than the calls that they save: 3 % of a short connection.
    os.environ.setdefault("UV_USE_IO_URING", "0")
    _log_start(settings, file, open_files.allow_most())
    keep_freed_memory()
    try:
        return uvloop.run(serve(lambda: _made(settings, file, overrides)))
    except CannotListen as error:
        print(f"{_where(file, error.what)}: {error}", file=sys.stderr)
    except CannotStart as error:
        print(f"pidgate: {error}", file=sys.stderr)
    return USAGE_ERROR


def _made(settings: Settings, file: Path | None, overrides: loading.Overrides) -> RunsAndDrains:
    # Imported here: a wrong option should be reported at once, and everything above is all it takes.
    from pidgate.gateway.process.server import Gateway

    return Gateway(settings, file, overrides=overrides)


def _settings(options: RunOptions) -> Settings:
    given = {name: value for name, value in asdict(options).items() if value is not None}
    file = given.pop("config", None)
    if file is None and options.bootstrap_servers is None:
        raise ConfigError.at(
            "--config", "is missing; name a file, or the brokers with --bootstrap-servers host:port"
        )
    if file is None:
        return loading.from_options(**given)
    if refused := [name for name in given if name not in _OVERRIDING]:
        option = refused[0].replace("_", "-")
        raise ConfigError.at(f"--{option}", "does not go with --config; write it into the file")
    return loading.load(file, _overrides(options))


def _overrides(options: RunOptions) -> loading.Overrides:
    given = ((path, getattr(options, name)) for name, path in _OVERRIDING.items())
    return {path: value for path, value in given if value is not None}


def _where(file: Path | None, setting: str) -> str:
    return _OPTIONS.get(setting, setting) if file is None else f"{file}: {setting}"


def _log_start(settings: Settings, file: Path | None, most_open_files: int) -> None:
    log = logs.logger()
    log.info(
        Event.GATEWAY_STARTING,
        version=version(),
        compiled=is_compiled(),
        lanes=count_of(settings.lanes) if has_lanes() else 0,
        pid=os.getpid(),
        config=None if file is None else str(file),
        mode=settings.quotas.mode,
        bootstrap_servers=[str(server) for server in settings.cluster.bootstrap_servers],
        open_files=most_open_files,
    )
    for path, text in (*conflicts.warnings(settings), *tls_checking.warnings(settings)):
        log.warning(Event.CONFIG_WARNING, key=dotted(path), text=text)


async def serve(make_gateway: Callable[[], RunsAndDrains]) -> int:
    """Start, then wait.

    The first SIGTERM or SIGINT drains, the second one exits without draining. SIGHUP reloads. Returns the
    exit code. Raises CannotListen.
    """
    gateway = make_gateway()
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None
    is_stopping = is_started = False
    drains: list[asyncio.Task[None]] = []

    def on_signal() -> None:
        nonlocal is_stopping
        if is_stopping:
            serving.cancel()
        elif is_started:
            drains.append(loop.create_task(guarded("drain", gateway.drain())))
        is_stopping = True
        service_manager.notify("STOPPING=1")

    # Before the start: some ports already serve clients while others are being opened.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    try:
        await gateway.start()
        is_started = True
        service_manager.notify("READY=1")
        # These 90,000 objects are permanent. Without them the cyclic collector pauses the traffic for less
        # time.
        gc.freeze()
        if is_stopping:
            drains.append(loop.create_task(guarded("drain", gateway.drain())))
        await gateway.until_stopped()
    except asyncio.CancelledError:
        return CUT_SHORT
    return STOPPED
