"""A snapshot: all users at one moment, in one file. Format version 2, in the container of frames.py.

    kind  head                                                                   body
    1     written_wall_ms, offsets {partition: next offset},                     -
          grace_until_wall_ms (or null)                 exactly one, first
    2     cluster: bucket [units, token_units, rate_milli,       at most one     -
          rehearsed_units]
    3     user (or null), seed, bucket (or null), grace_admitted,                bits of all layers, one
          layers [[design_count, bits, hashes, count, newest_of,                 after another, each
          slice_age_ms, used_age_ms, transactional],     one for each user       ceil(bits / 8) bytes
          ...], transactional_ids {bucket, grace_admitted,                       (those of transactional_ids
          layers}, if a rate limits them                                         behind the user's own)

`transactional` is 1 for ids used in transactions and 0 for others; a layer without it holds both, and so a reader
that does not know it takes them. Ages count from `written_wall_ms`. A key that is missing has its default, one that is
not known is passed over:
so version 2 may add keys, and a reader of version 1 goes on reading it. What version 2 must read of version 1 is
recorded in tests/data/state-v1. A change that version 1 would misunderstand raises READABLE_SINCE, and `read`
then branches on the version of the file; version 1 sets such a file aside as newer.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from pidgate.gateway.state.state_dir import files, frames
from pidgate.gateway.state.state_dir.frames import Frame, SnapshotUnreadable
from pidgate.quota.user_state import BucketState, LayerState, TransactionalIdsState, UserState

SNAPSHOT_VERSION: Final = 2
READABLE_SINCE: Final = 1

_ABOUT: Final = 1
_CLUSTER: Final = 2
_USER: Final = 3
_LAYER: Final = ("design_count", "bits", "hashes", "count", "newest_of", "slice_age_ms", "used_age_ms")


@dataclass(frozen=True, slots=True)
class About:
    """Of all users: when the snapshot was taken, and the next offsets of the events topic to apply."""

    written_wall_ms: int
    offsets: dict[int, int]
    grace_until_wall_ms: int | None


@dataclass(frozen=True, slots=True)
class Contents:
    """A snapshot, read to its end and whole."""

    about: About
    cluster_bucket: BucketState | None
    users: list[UserState]


class SnapshotWriter:
    """Writer of a snapshot beside the others, which then puts it in place. All raise OSError; then call `abandon`."""

    def __init__(self, directory: Path, generation: int) -> None:
        self._directory = directory
        self._partial = directory / files.partial_name(generation)
        self._path = directory / files.snapshot_name(generation)
        self._file: IO[bytes] | None = None
        self._frames = 0

    def begin(self, about: About, cluster_bucket: BucketState | None) -> None:
        self._file = os.fdopen(files.create(self._partial), "wb")
        self._file.write(frames.prelude(SNAPSHOT_VERSION, READABLE_SINCE))
        self._frame(_ABOUT, asdict(about))
        if cluster_bucket is not None:
            self._frame(_CLUSTER, {"bucket": _bucket(cluster_bucket)})

    def add(self, users: Sequence[UserState]) -> None:
        for user in users:
            names = () if user.transactional_ids is None else user.transactional_ids.layers
            self._frame(_USER, _user_head(user), [layer.data for layer in (*user.layers, *names)])

    def finish(self, keep_from_generation: int) -> int:
        """Sync it, put it in place, delete older files; return the size in bytes. Raises OSError."""
        file = self._opened()
        file.writelines(frames.end(self._frames))
        file.flush()
        os.fsync(file.fileno())
        size_bytes = file.tell()
        file.close()
        os.rename(self._partial, self._path)
        files.sync_directory(self._directory)
        # What cannot be deleted now is deleted next time; the snapshot is in place.
        with contextlib.suppress(OSError):
            files.retire(self._directory, keep_from_generation)
        return size_bytes

    def abandon(self) -> None:
        """Remove the partial file. Never raises."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _frame(self, kind: int, head: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
        self._opened().writelines(frames.frame(kind, head, parts))
        self._frames += 1

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise OSError("the snapshot was not begun")
        return self._file


def read(path: Path) -> Contents:
    """Return the whole snapshot. Raises SnapshotUnreadable when any of it is damaged, OSError."""
    about: About | None = None
    cluster: BucketState | None = None
    users: list[UserState] = []
    try:
        for frame in frames.read(path, SNAPSHOT_VERSION):
            if frame.kind == _ABOUT:
                about = _read_about(frame.head)
            elif frame.kind == _CLUSTER:
                cluster = _read_bucket(frame.head["bucket"])
            elif frame.kind == _USER:
                users.append(_read_user(frame))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise SnapshotUnreadable(f"holds what no snapshot holds ({error!r})") from error
    if about is None:
        raise SnapshotUnreadable("does not say when it was written")
    return Contents(about, cluster, users)


def _read_about(head: dict[str, Any]) -> About:
    grace = head.get("grace_until_wall_ms")
    offsets = {int(partition): int(offset) for partition, offset in head.get("offsets", {}).items()}
    return About(int(head["written_wall_ms"]), offsets, None if grace is None else int(grace))


def _bucket(bucket: BucketState | None) -> list[int] | None:
    if bucket is None:
        return None
    values = [bucket.units, bucket.token_units, bucket.rate_milli]
    return values if bucket.rehearsed_units is None else [*values, bucket.rehearsed_units]


def _read_bucket(values: list[int] | None) -> BucketState | None:
    return None if values is None else BucketState(*map(int, values[:4]))


def _user_head(user: UserState) -> dict[str, Any]:
    head: dict[str, Any] = {
        "user": user.user,
        "seed": user.seed,
        "bucket": _bucket(user.bucket),
        "grace_admitted": user.grace_admitted,
        "layers": [_layer_head(layer) for layer in user.layers],
    }
    names = user.transactional_ids
    if names is not None:
        head["transactional_ids"] = {
            "bucket": _bucket(names.bucket),
            "grace_admitted": names.grace_admitted,
            "layers": [_layer_head(layer) for layer in names.layers],
        }
    return head


def _layer_head(layer: LayerState) -> list[int]:
    values: list[int] = [getattr(layer, name) for name in _LAYER]
    return values if layer.transactional is None else [*values, int(layer.transactional)]


def _read_user(frame: Frame) -> UserState:
    head = frame.head
    layers, at = _read_layers(head["layers"], frame.body, 0)
    names: TransactionalIdsState | None = None
    if found := head.get("transactional_ids"):
        of_names, _ = _read_layers(found["layers"], frame.body, at)
        bucket, grace = _read_bucket(found.get("bucket")), int(found.get("grace_admitted", 0))
        names = TransactionalIdsState(of_names, bucket, grace)
    user = head["user"]
    if user is None:
        user = ""  # the name of everybody unidentified, once
    if not isinstance(user, str):
        raise ValueError(f"a user is called {user!r}")
    return UserState(
        user=user,
        seed=int(head["seed"]),
        layers=layers,
        bucket=_read_bucket(head.get("bucket")),
        grace_admitted=int(head.get("grace_admitted", 0)),
        transactional_ids=names,
    )


def _read_layers(heads: list[list[int]], body: bytes, at: int) -> tuple[tuple[LayerState, ...], int]:
    """Return the layers whose bits begin at `at`, and where they end."""
    layers = []
    for values in heads:
        fields = dict(zip(_LAYER, map(int, values), strict=False))
        size = (fields["bits"] + 7) // 8
        data = body[at : at + size]
        if fields["bits"] < 1 or fields["hashes"] < 1 or len(data) < size:
            raise ValueError(f"a layer of {fields['bits']} bits has {len(data)} bytes")
        at += size
        transactional = None if len(values) <= len(_LAYER) else bool(values[len(_LAYER)])
        layers.append(LayerState(**fields, data=data, transactional=transactional))
    return tuple(layers), at
