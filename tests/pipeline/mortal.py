"""A file system on which a process dies in the midst of its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pidgate.pipeline.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """Nothing of ours may catch it: no `finally` that cleans up runs after kill -9."""


class Mortal(Files):
    """Files of a process that is killed before its n-th change; `look` is called after each, `seen` has its answers."""

    def __init__(self, spark: SparkSession, root: Path, steps: int, look: Callable[[], list[str]]) -> None:
        super().__init__(spark, str(root))
        self._steps = steps
        self._look = look
        self.seen: list[list[str]] = []

    def _step(self) -> None:
        if self._steps == 0:
            raise Killed
        self._steps -= 1

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)
        self.seen.append(self._look())

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)
        self.seen.append(self._look())


def put(root: Path, path: str, words: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(words)
