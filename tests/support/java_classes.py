"""Java of our own for tests: a source of tests/support/java, compiled here.

The Java of the sandbox has no compiler; Eclipse's is a jar, got like Kafka's own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tools.sandbox import guard
from tools.sandbox.jars import NEWEST, class_path
from tools.sandbox.java import java_for

_SOURCES = Path(__file__).parent / "java"
_COMPILER = "org.eclipse.jdt:ecj:3.39.0"


def java_classes(name: str, kafka_version: str = NEWEST, more: tuple[Path, ...] = ()) -> Path:
    """Return the directory with the compiled class of this name.

    `more`: jars that it needs beside Kafka's.
    """
    return compiled(_SOURCES / f"{name}.java", kafka_version, more)


@cache
def compiled(source: Path, kafka_version: str = NEWEST, more: tuple[Path, ...] = ()) -> Path:
    """Return the directory with the classes of this source, for as long as this process lives."""
    import jgo

    compiler = os.pathsep.join(map(str, jgo.build(_COMPILER).all_jars))
    directory = guard.temporary_directory("java-classes-")
    kafka = os.pathsep.join(map(str, (*more, *class_path(kafka_version))))
    subprocess.run(
        [
            *(java_for(kafka_version), "-XX:-UsePerfData", "-cp", compiler),
            *("org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17", "-target", "17"),
            *("-proc:none", "-nowarn", "-d", directory, "-cp", kafka, source),
        ],
        check=True,
        timeout=120,
    )
    return directory


def readings(questions: Sequence[str]) -> list[str]:
    """Return what Kafka's own classes read in each line (see Readings.java)."""
    jars = os.pathsep.join(map(str, (java_classes("Readings"), *class_path(NEWEST))))
    done = subprocess.run(
        [java_for(NEWEST), "-XX:-UsePerfData", "-Xmx512m", "-cp", jars, "Readings"],
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers
