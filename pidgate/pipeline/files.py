"""The file system of the tables, whichever it is, by pyarrow: a local disk, HDFS, or an object store.

Knows folders, files and renames, and nothing of what is in them. Paths are relative to the root. Of an object store
only this is asked: that one file is there as a whole or not at all. It has no folders, and a rename there is a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyarrow import ArrowInvalid, NativeFile, fs

from pidgate.pipeline.errors import BadOption

_STORES: Final = (fs.S3FileSystem, fs.GcsFileSystem, fs.AzureFileSystem)
_OF_ARROW: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of a store, which Spark uses -> those of pyarrow."""


class Files:
    """Everything below one root folder."""

    def __init__(self, root: str) -> None:
        self._system, self._root = opened(root)
        self.is_local = isinstance(self._system, fs.LocalFileSystem)
        self.is_store = isinstance(self._system, _STORES)
        self._full = f"file://{self._root}" if self.is_local else root.rstrip("/")

    def full(self, path: str) -> str:
        """Return the path with its scheme, for Spark, whose own default may be another file system."""
        return f"{self._full}/{path}"

    def exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(self._at(path)).type != fs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when there is no such folder."""
        return sorted(found.base_name for found in self._listed(folder, recursive=False))

    def data_files(self, folder: str) -> Iterator[str]:
        """Yield paths of all files below a folder but hidden ones."""
        for path in self._files(folder):
            if not path.rpartition("/")[2].startswith((".", "_")):
                yield path

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another place, and make the folder for it; a file takes the place of another.

        In one step, but in a store: there the target of a file is there as a whole before the source is not, and for
        folders see `swap`.
        """
        place = self._at(target)
        self._make_folder_of(place)
        self._system.move(self._at(source), place)

    def copy(self, source: str, target: str) -> None:
        """Copy a file in place of what is there."""
        self._system.copy_file(self._at(source), self._at(target))

    def swap(self, source: str, target: str, old: str) -> None:
        """Put a folder in place of another, which is left at `old`; nothing when the source is not there.

        Readers see the old one, for an instant none, then the new one. Killed meanwhile, do it again: with `old` there
        the first rename was done, and what lies at the target is of a second that was cut short.

        In a store the other is removed and the source copied, file by file, and the source stays.
        """
        if not self.exists(source):
            return
        if self.is_store:
            self.remove(target)
            for path in self._files(source):
                self.copy(path, f"{target}{path.removeprefix(source)}")
            return
        if self.exists(old):
            self.remove(target)
        elif self.exists(target):
            self.rename(target, old)
        self.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing when it is not there."""
        found = self._system.get_file_info(self._at(path))
        if found.type == fs.FileType.Directory:
            self._system.delete_dir(found.path)
        elif found.type != fs.FileType.NotFound:
            self._system.delete_file(found.path)

    def read(self, path: str) -> str:
        with self.input(path) as stream:
            return str(stream.read().decode())

    def replace(self, path: str, text: str) -> None:
        """Write a file in place of what is there; in a store at once."""
        with self.output(path) as stream:
            stream.write(text.encode())

    def input(self, path: str) -> NativeFile:
        return self._system.open_input_file(self._at(path))

    def output(self, path: str) -> NativeFile:
        """Open a file to be written in place of what is there, and make the folder for it."""
        place = self._at(path)
        self._make_folder_of(place)
        return self._system.open_output_stream(place)

    def write(self, path: str, text: str) -> None:
        """Write a new file whole or not at all. Raises FileExistsError when there is one."""
        if self.exists(path):
            raise FileExistsError(f"{self.full(path)} is there already")
        if self.is_store:
            self.replace(path, text)
            return
        beside = f"{path}.unfinished"
        self.replace(beside, text)
        self.rename(beside, path)

    def local_path(self, path: str) -> Path:
        """Return a path of the local disk as Python takes it."""
        return Path(self._at(path))

    def _files(self, folder: str) -> list[str]:
        beginning = len(self._root) + 1
        found = self._listed(folder, recursive=True)
        return [one.path[beginning:] for one in found if one.type == fs.FileType.File]

    def _listed(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        below = fs.FileSelector(self._at(folder), allow_not_found=True, recursive=recursive)
        listed: list[fs.FileInfo] = self._system.get_file_info(below)
        return listed

    def _make_folder_of(self, place: str) -> None:
        if not self.is_store:
            self._system.create_dir(place.rpartition("/")[0], recursive=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


def opened(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a root and its path there. Raises BadOption."""
    scheme, separator, rest = root.partition(":")
    if not separator or "/" in scheme or scheme == "file":
        # Not by pyarrow, which takes a path with a scheme for an encoded one; Spark does not.
        return fs.LocalFileSystem(), str(Path(root.removeprefix("file:").replace("///", "/")).absolute())
    try:
        system, path = fs.FileSystem.from_uri(f"{_OF_ARROW.get(scheme, scheme)}:{rest}")
    # What pyarrow says of a scheme that it does not know, and of a library of HDFS that is not there.
    except (ArrowInvalid, OSError) as error:
        raise BadOption(f"--tables {root} cannot be opened: {error}") from error
    return system, str(path).rstrip("/")
