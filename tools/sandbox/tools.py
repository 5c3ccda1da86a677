"""Kafka's own Java programs: command line tools and clients, run with the server's class path."""

import hashlib
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final

from tools.sandbox import guard
from tools.sandbox.errors import ToolFailed
from tools.sandbox.jars import NEWEST, class_path, jars_cache, logs_through_slf4j_simple
from tools.sandbox.java import build_of, java_for

QUICK_TO_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OUTPUT_SHOWN = 4_000

_LOG4J = """\
log4j.rootLogger={level}, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{{HH:mm:ss.SSS}} [%t] %p %c - %m%n
"""


@cache
def _log4j_settings(level: str) -> Path:
    """Return a settings file for reload4j, the logger of Kafka 3.9, which accepts only files."""
    path = guard.temporary_directory("log4j-") / "log4j.properties"
    path.write_text(_LOG4J.format(level=level.upper()))
    return path


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of a tool. Errors and log lines are on stderr."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class JavaTools:
    """The programs in the jars of one Kafka version."""

    version: str = NEWEST
    heap_mb: int = 256
    jvm_options: Sequence[str] = QUICK_TO_START
    log_level: str = "warn"
    java_modules: Sequence[str] = ()
    """Modules that some Javas lack: see java.java_for."""

    def command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = ()) -> list[str]:
        """Return the whole command line of a program, for callers that start it themselves."""
        return [
            str(self._java),
            f"-Xmx{self.heap_mb}m",
            # Creates no file in /tmp, which a killed JVM would leave there.
            "-XX:-UsePerfData",
            *self._archive_options(),
            *self._log_options(),
            *self.jvm_options,
            *jvm_options,
            "-cp",
            os.pathsep.join(map(str, class_path(self.version))),
            main_class,
            *arguments,
        ]

    @property
    def _java(self) -> Path:
        return java_for(self.version, tuple(self.java_modules))

    @property
    def class_archive(self) -> Path:
        """Return the path of the class archive for this build of Java (see tests/support/class_archive.py)."""
        fits = (build_of(self._java), class_path(self.version))
        digest = hashlib.sha256(repr(fits).encode()).hexdigest()
        return jars_cache() / f".pidgate-kafka-{self.version}-{digest[:16]}.jsa"

    def _archive_options(self) -> list[str]:
        if not self.class_archive.exists():
            return []
        # Warnings about a mismatched archive would go to the tool's stdout, which is parsed.
        silent = ("-Xlog:cds*=off", "-Xlog:class+path=off")
        return ["-Xshare:auto", f"-XX:SharedArchiveFile={self.class_archive}", *silent]

    def _log_options(self) -> list[str]:
        """Log to stderr, with timestamps."""
        if logs_through_slf4j_simple(self.version):
            return [
                f"-Dorg.slf4j.simpleLogger.defaultLogLevel={self.log_level}",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            ]
        return [f"-Dlog4j.configuration=file:{_log4j_settings(self.log_level)}"]

    def start(
        self,
        main_class: str,
        *arguments: str,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.PIPE,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
        jvm_options: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program that is killed with this process; the caller waits for it (see `guard.ended`)."""
        return guard.spawn(
            self.command(main_class, *arguments, jvm_options=jvm_options),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def run(
        self,
        main_class: str,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = 120.0,
        check: bool = True,
        jvm_options: Sequence[str] = (),
    ) -> ToolResult:
        """Run a program to its end. Raises ToolFailed on failure (if `check`) or timeout."""
        process = self.start(main_class, *arguments, stdin=subprocess.PIPE, jvm_options=jvm_options)
        too_long = threading.Timer(timeout_s, process.kill)
        too_long.start()
        try:
            stdout, stderr = process.communicate(stdin.encode())
        finally:
            timed_out = not too_long.is_alive()
            too_long.cancel()
            process.kill()
            process.wait()
            guard.ended(process)
        result = ToolResult(process.returncode, stdout.decode(), stderr.decode())
        if timed_out or (check and result.exit_code != 0):
            ending = f"took more than {timeout_s:g} s" if timed_out else f"ended with {result.exit_code}"
            shown = f"{result.stdout[-_OUTPUT_SHOWN:]}\n{result.stderr[-_OUTPUT_SHOWN:]}".strip()
            raise ToolFailed(f"{main_class} {' '.join(arguments)} {ending}:\n{shown}")
        return result
