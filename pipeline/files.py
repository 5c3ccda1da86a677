"""The file system of the tables, whichever it is: Hadoop's interface, spoken to through Spark's JVM.

Knows folders, files and renames, and nothing of what is in them. Paths are relative to the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Everything below one root folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        top = self._path(root)
        self._system = top.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(top)
        self.is_local = self._root.toUri().getScheme() == "file"

    def full(self, path: str) -> str:
        """Return the path with its scheme, for Spark."""
        return str(self._at(path).toString())

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._at(path)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when there is no such folder."""
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._at(folder)))

    def data_files(self, folder: str) -> Iterator[str]:
        """Yield paths of all files below a folder but hidden ones."""
        if not self.exists(folder):
            return
        beginning = len(self.full(folder)) + 1
        found = self._system.listFiles(self._at(folder), True)
        while found.hasNext():
            path = found.next().getPath()
            if not path.getName().startswith((".", "_")):
                yield f"{folder}/{path.toString()[beginning:]}"

    def rename(self, source: str, target: str) -> None:
        """Rename in one step to a free place; makes the folder for it. Raises OSError when the file system refuses."""
        place = self._at(target)
        self._system.mkdirs(place.getParent())
        if not self._system.rename(self._at(source), place):
            raise OSError(f"{self.full(source)} could not be renamed to {self.full(target)}")

    def swap(self, source: str, target: str, old: str) -> None:
        """Put a file or folder in place of another, which is left at `old`; nothing when the source is not there.

        Readers see the old one, for an instant none, then the new one. Killed meanwhile, do it again: with `old` there
        the first rename was done, and what lies at the target is of a second that was cut short.
        """
        if not self.exists(source):
            return
        if self.exists(old):
            self.remove(target)
        elif self.exists(target):
            self.rename(target, old)
        self.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing when it is not there."""
        self._system.delete(self._at(path), True)

    def read(self, path: str) -> str:
        stream = self._system.open(self._at(path))
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """Write a file in place of what is there."""
        stream = self._system.create(self._at(path), True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a new file whole or not at all: beside it, then renamed. Raises OSError when there is one."""
        beside = f"{path}.unfinished"
        self.replace(beside, text)
        self.rename(beside, path)

    def _at(self, path: str) -> Any:
        return self._path(self._root, path)
