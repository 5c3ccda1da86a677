"""Start and end of the demos: exit codes, timestamped lines, a directory kept after a failure."""

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.sandbox import guard
from tools.sandbox.errors import NotInTime, SandboxError
from tools.sandbox.gateway import GatewayNotReady
from tools.sandbox.jars import class_path
from tools.sandbox.java import java_for

PASSED, FAILED, CANNOT_RUN, NOT_PLAYED, INTERRUPTED = 0, 1, 2, 3, 130
_WIDTH_WITHOUT_TERMINAL = 160
_MEMORY_DISK = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, its result, and the source."""

    name: str
    passed: bool
    found: str
    source: str


def checks_table(checks: Sequence[Check]) -> Table:
    """Return a row per check."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        mark = Text("ok", style="green") if check.passed else Text("FAIL", style="bold red")
        table.add_row(mark, Text(check.name), Text(check.found, style="dim" if check.passed else ""))
    return table


def checks_title(checks: Sequence[Check]) -> str:
    return f"Checks: {sum(check.passed for check in checks)} of {len(checks)}"


def console_of_stdout() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)


class Clocked:
    """Printer of lines with the elapsed seconds. Lines are rich markup."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, text: str) -> None:
        """Print the start of a step."""
        self.console.print(f"[dim]{self.took_s:6.1f} s[/]  {text}", highlight=False, soft_wrap=True)


def keep_brokers_in_memory(needed_bytes: int) -> None:
    """Keep the data of brokers started from now on in memory, if there is room.

    They live for seconds, and a slow disk would be measured instead of the broker.
    """
    with suppress(OSError):
        if shutil.disk_usage(_MEMORY_DISK).free >= needed_bytes:
            tempfile.tempdir = str(_MEMORY_DISK)


def play(name: str, kafka_version: str, what: str, run: Callable[[Path], bool]) -> int:
    """Run a demo in a temporary directory and return the exit code; on failure `what` is kept there."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = guard.temporary_directory(f"{name}-")
    code = CANNOT_RUN
    try:
        # Checked first, before anything is started.
        print(f"Kafka {kafka_version} and Java are looked for", flush=True)
        java_for(kafka_version)
        class_path(kafka_version)
        code = PASSED if run(work) else FAILED
    except NotInTime as error:
        print(f"the demo could not be played, the machine is too busy: {error}", file=sys.stderr)
        code = NOT_PLAYED
    except (SandboxError, GatewayNotReady, KafkaException, OSError) as error:
        print(f"the demo could not run: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        code = INTERRUPTED
    finally:
        guard.keep_or_remove(work, keep=code in (FAILED, CANNOT_RUN, NOT_PLAYED), what=what)
    return code


def copy_files(source: Path | None, target: Path, pattern: str) -> None:
    """Copy a directory's files that match the pattern, if it exists."""
    for path in source.glob(pattern) if source is not None else ():
        shutil.copy(path, target / path.name)
