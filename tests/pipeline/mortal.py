"""A file system on which a process dies in the midst of its work: a disk's, or that of a store without folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import fs

from pidgate.pipeline.files import Files


class Killed(BaseException):
    """Nothing of ours may catch it: no `finally` that cleans up runs after kill -9."""


class Mortal:
    """What pyarrow does for a process that is killed before its n-th change; `look` is called after each.

    In a store a rename is a copy and a deletion.
    """

    def __init__(self, steps: int, look: Callable[[], list[str]], is_store: bool) -> None:
        self._disk = fs.LocalFileSystem()
        self._steps = steps
        self._look = look
        self._is_store = is_store
        self.seen: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def move(self, source: str, target: str) -> None:
        if self._is_store:
            self.copy_file(source, target)
            self.delete_file(source)
        else:
            self._change(self._disk.move, source, target)

    def copy_file(self, source: str, target: str) -> None:
        self._disk.create_dir(str(Path(target).parent), recursive=True)
        self._change(self._disk.copy_file, source, target)

    def delete_file(self, path: str) -> None:
        self._change(self._disk.delete_file, path)

    def delete_dir(self, path: str) -> None:
        """Not at once on any of them."""
        for found in self._disk.get_file_info(fs.FileSelector(path, recursive=True)):
            if found.type == fs.FileType.File:
                self.delete_file(found.path)
        self._disk.delete_dir(path)

    def open_output_stream(self, path: str) -> Any:
        self._disk.create_dir(str(Path(path).parent), recursive=True)
        return self._change(self._disk.open_output_stream, path)

    def _change(self, do: Callable[..., Any], *paths: str) -> Any:
        if self._steps == 0:
            raise Killed
        self._steps -= 1
        done = do(*paths)
        if done is None:
            self.seen.append(self._look())
        return done


def files_on(root: Path, mortal: Mortal | None = None, *, is_store: bool = False) -> Files:
    """Files of a local folder, as they are or by way of a mortal."""
    files = Files(str(root))
    files.is_store = is_store
    files._system = mortal or Mortal(10_000, list, is_store)
    return files


def put(root: Path, path: str, words: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(words)
