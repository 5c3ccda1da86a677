"""The file system of the tables, by pyarrow: a local disk, HDFS, or an object store.

Knows folders, files and renames, and Parquet files as Arrow tables. Paths are relative to the root. An object store
must only write single files atomically; it has no folders, and its rename is a copy.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import ArrowInvalid, NativeFile, fs

from pidgate.pipeline.errors import BadOption

_STORES: Final = (fs.S3FileSystem, fs.GcsFileSystem, fs.AzureFileSystem)
_OF_ARROW: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's store names, used by Spark -> those of pyarrow."""


class Files:
    """Everything below one root folder."""

    def __init__(self, root: str) -> None:
        self._system, self._root = opened(root)
        self.is_local = isinstance(self._system, fs.LocalFileSystem)
        self.is_store = isinstance(self._system, _STORES)
        self._full = f"file://{self._root}" if self.is_local else root.rstrip("/")
        self._conditional = _conditional(root) if self.is_store else None
        self.can_create = self.is_local or self._conditional is not None
        """Whether `create` is possible here."""

    def full(self, path: str) -> str:
        """Return the path with its scheme, because Spark's default file system may differ."""
        return f"{self._full}/{path}"

    def exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(self._at(path)).type != fs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""
        return sorted(found.base_name for found in self._listed(folder, recursive=False))

    def data_files(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder except hidden ones."""
        yield from filter(is_data, self.sizes(folder))

    def dataset(self, where: str | Sequence[str], schema: pa.Schema | None = None) -> ds.Dataset:
        """Return Parquet files, or all below a folder, with folders such as day=2026-11-21 as columns."""
        places = self._at(where) if isinstance(where, str) else [self._at(path) for path in where]
        return ds.dataset(places, schema, format="parquet", filesystem=self._system, partitioning="hive")

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder and create the parent; a file replaces an existing one.

        Atomic except in a store: there the target file is complete before the source is deleted. For folders
        see `swap`.
        """
        place = self._at(target)
        self._make_folder_of(place)
        self._system.move(self._at(source), place)

    def swap(self, source: str, target: str, old: str) -> None:
        """Replace a folder by another and keep the old one at `old`; does nothing without the source.

        Readers see the old folder, briefly none, then the new one. Repeat it after a kill: if `old` exists,
        the first rename was done, and the target is an incomplete second one. In a store the old folder is
        removed and the source copied file by file; the source stays.
        """
        if not self.exists(source):
            return
        if self.is_store:
            self.remove(target)
            for path in self.sizes(source):
                self._system.copy_file(self._at(path), self._at(f"{target}{path.removeprefix(source)}"))
            return
        if self.exists(old):
            self.remove(target)
        elif self.exists(target):
            self.rename(target, old)
        self.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its contents, if it exists."""
        found = self._system.get_file_info(self._at(path))
        # Another process may remove it, too.
        with suppress(FileNotFoundError):
            if found.type == fs.FileType.Directory:
                self._system.delete_dir(found.path)
            elif found.type != fs.FileType.NotFound:
                self._system.delete_file(found.path)

    def read(self, path: str) -> str:
        with self.input(path) as stream:
            return str(stream.read().decode())

    def replace(self, path: str, text: str, *, private: bool = False) -> None:
        """Write a file atomically, replacing an existing one. `private`: on a disk, with its owner's rights alone."""
        if self.is_store:
            self._put(path, text)
            return
        beside = f"{path}.{secrets.token_hex(4)}"
        self._make_folder_of(self._at(path))
        try:
            if private and self.is_local:
                os.close(os.open(self._at(beside), os.O_CREAT | os.O_WRONLY, 0o600))
            self._put(beside, text)
            self.rename(beside, path)
        except BaseException:
            self.remove(beside)
            raise

    def input(self, path: str, *, unpacked: bool = False) -> NativeFile:
        """Open a file for reading; `unpacked`: as a stream, decompressed by its name."""
        if unpacked:
            return self._system.open_input_stream(self._at(path), compression="detect")
        return self._system.open_input_file(self._at(path))

    def output(self, path: str) -> NativeFile:
        """Open a file for writing, replacing an existing one, and create its folder."""
        place = self._at(path)
        self._make_folder_of(place)
        return self._system.open_output_stream(place)

    def create(self, path: str, text: str) -> None:
        """Write a file that nobody has written; of several processes one succeeds, the others raise FileExistsError.

        By a hard link on a disk, by `If-None-Match: *` in a store. `text` must differ between processes.
        """
        if self._conditional is None:
            beside = f"{path}.{secrets.token_hex(4)}"
            self._put(beside, text)
            try:
                os.link(self._at(beside), self._at(path))
            except PermissionError as error:
                raise BadOption(
                    f"{self.full(path)}: this file system has no hard links, so two ingests cannot be told apart. "
                    "Make sure that one runs, and say so with --single-writer."
                ) from error
            finally:
                self.remove(beside)
            return
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            put(self._conditional, path, text.encode(), mode="create")
        except AlreadyExistsError:
            # A request whose answer was lost is sent again, and finds its own file.
            if self.read(path) != text:
                raise FileExistsError(self.full(path)) from None
        except BaseError as error:
            raise BadOption(
                f"{self.full(path)} cannot be written: {str(error).partition(chr(10))[0]}. obstore takes credentials "
                "from the environment (AWS_ACCESS_KEY_ID) or the machine's role. Or use --single-writer."
            ) from error

    def write(self, path: str, text: str) -> None:
        """Write a new file atomically. Raises FileExistsError if it exists."""
        if self.exists(path):
            raise FileExistsError(f"{self.full(path)} already exists")
        self.replace(path, text)

    def write_table(self, path: str, table: pa.Table) -> None:
        """Write one Parquet file, in a folder that readers do not use yet."""
        # Dictionaries slow down sequential numbers and save no space.
        texts = [field.name for field in table.schema if not pa.types.is_integer(field.type)]
        with self.output(path) as stream:
            pq.write_table(table, stream, compression="snappy", use_dictionary=texts, store_schema=False)

    def read_table(self, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
        """Return the rows of Parquet files; an empty table without files."""
        found = []
        for path in paths:
            with self.input(path) as stream:
                found.append(pq.ParquetFile(stream).read(schema.names).cast(schema))
        return pa.concat_tables(found) if found else schema.empty_table()

    def _put(self, path: str, text: str) -> None:
        with self.output(path) as stream:
            stream.write(text.encode())

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of all files below a folder, by path in order."""
        beginning = len(self._root) + 1
        found = self._listed(folder, recursive=True)
        return {
            one.path[beginning:]: int(one.size)
            for one in sorted(found, key=lambda one: one.path)
            if one.type == fs.FileType.File
        }

    def _listed(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        below = fs.FileSelector(self._at(folder), allow_not_found=True, recursive=recursive)
        listed: list[fs.FileInfo] = self._system.get_file_info(below)
        return listed

    def _make_folder_of(self, place: str) -> None:
        if not self.is_store:
            self._system.create_dir(place.rpartition("/")[0], recursive=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


def is_data(path: str) -> bool:
    """Return whether a file is not hidden."""
    return not path.rpartition("/")[2].startswith((".", "_"))


def in_shares(sizes: Mapping[str, int], share_bytes: int) -> list[list[str]]:
    """Divide files, in order, into shares of about this size, each below it but for its last file."""
    before = accumulate(sizes.values(), initial=0)
    shares = groupby(zip(sizes, before, strict=False), key=lambda one: one[1] // share_bytes)
    return [[path for path, _ in share] for _, share in shares]


def opened(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a root and its path there. Raises BadOption."""
    scheme, separator, rest = root.partition(":")
    if not separator or "/" in scheme or scheme == "file":
        # Without pyarrow, which decodes paths with a scheme as URLs; Spark does not.
        return fs.LocalFileSystem(), str(Path(root.removeprefix("file:").replace("///", "/")).absolute())
    try:
        system, path = fs.FileSystem.from_uri(f"{_OF_ARROW.get(scheme, scheme)}:{rest}")
    # pyarrow's errors for an unknown scheme and for a missing HDFS library.
    except (ArrowInvalid, OSError) as error:
        raise BadOption(f"--tables {root} cannot be opened: {error}") from error
    return system, str(path).rstrip("/")


def _conditional(root: str) -> Any:
    """Return a client of the store that can write only absent files; None if obstore does not know the store."""
    with suppress(ImportError):
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        with suppress(BaseError, ValueError):
            # Endpoints without TLS are for tests and for stores inside one's own network.
            return from_url(root, client_options={"allow_http": True})
    return None
