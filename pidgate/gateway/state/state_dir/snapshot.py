"""A snapshot file: a save of all users, followed by saves of the users changed since.

    file   the line "pidgate snapshot 3", then saves: the first one of all users, each further one of the changed users
    save   about, user, user, ..., end

    kind  head                                                                      body
    1     about  written_wall_ms, offsets {partition: next offset},                 -
                 grace_until_wall_ms (or null), cluster_bucket (or null),
                 incarnation, seq
    2     user   user, secrets [plain, transactional], bucket (or null),            bits of all layers, one after
                 grace_admitted, layers, transactional_ids (or null)                another, ceil(bits / 8) bytes each
                 {secret, bucket, grace_admitted, layers}
    3     end    users (how many the save holds)                                    -

    bucket  [units, token_units, rate_milli, rehearsed_units (or null)]
    layer   [design_count, bits, hashes, count, newest_of, slice_age_ms, used_age_ms, transactional (0 or 1)];
            hashes 0: a slice of the exact set, whose bits are its ids in order, 8 bytes each, little-endian
    secret  128 bits, as a number: what a filter hashes together with an id

The first save is renamed into place, so it is whole or absent. A later save counts from its end frame on: a save torn
by a kill is ignored. The latest state of a user counts. Ages refer to `written_wall_ms` of the save. A file with
another first line is not read: the events topic holds the same state.

Everything here blocks, except `encode_user`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pidgate.gateway.state.state_dir import files, frames
from pidgate.gateway.state.state_dir.frames import Encoded, Frame, FrameDamaged, FrameTorn
from pidgate.quota.layered_filter import SECRET_BYTES, LayerState
from pidgate.quota.restoring import BucketState, TransactionalIdsState, UserState

FIRST_LINE: Final = b"pidgate snapshot 3\n"

_ABOUT: Final = 1
_USER: Final = 2
_END: Final = 3
_LAYER: Final = (
    "design_count",
    "bits",
    "hashes",
    "count",
    "newest_of",
    "slice_age_ms",
    "used_age_ms",
    "transactional",
)


class SnapshotUnreadable(Exception):
    """No save of the file is usable. The text is the reason."""


@dataclass(frozen=True, slots=True)
class About:
    """Contents of a save other than users.

    `offsets`: the next offsets of the events topic to apply, by partition. `incarnation`: of the gateway that wrote
    it; `seq`: of its latest event when the save began, so balances of its events up to that one are older than the
    save, whenever the topic took them.
    """

    written_wall_ms: int
    offsets: dict[int, int]
    grace_until_wall_ms: int | None = None
    cluster_bucket: BucketState | None = None
    incarnation: str = ""
    seq: int = 0


class SavedUser(NamedTuple):
    """A user's state, with the time of its writing."""

    state: UserState
    written_wall_ms: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of all complete saves of a file.

    `damage`: why the bytes after them cannot be read; empty if there are none, or a torn save.
    """

    about: About
    users: list[SavedUser]
    torn_bytes: int
    damage: str


class SnapshotFile:
    """The file of one generation, open for writing.

    All methods raise OSError. After an error the file may end with a torn save, and must not be written to
    again.
    """

    def __init__(self, directory: Path, generation: int) -> None:
        self._directory = directory
        self._partial = directory / files.partial_name(generation)
        self._path = directory / files.snapshot_name(generation)
        self._fd: int | None = None
        self._users = 0
        self.size_bytes = 0

    def create(self) -> None:
        """Create the file under its partial name."""
        self._fd = files.create(self._partial)
        files.write_all(self._fd, FIRST_LINE)
        self.size_bytes = len(FIRST_LINE)

    def begin_save(self, about: About) -> None:
        self._users = 0
        self._write([frames.encode(_ABOUT, _about_head(about))])

    def add_users(self, users: Sequence[Encoded]) -> None:
        self._users += len(users)
        self._write(users)

    def end_save(self) -> None:
        """End the save and sync it to disk."""
        self._write([frames.encode(_END, {"users": self._users})])
        os.fsync(self._opened())

    def put_in_place(self, keep_from_generation: int) -> None:
        """Rename the file to its final name, and delete older ones."""
        os.rename(self._partial, self._path)
        files.sync_directory(self._directory)
        # A failed deletion is retried next time; the snapshot is in place.
        with contextlib.suppress(OSError):
            files.retire(self._directory, keep_from_generation)

    def close(self) -> None:
        """Close the file, and remove it if it was not renamed to its final name. Never raises."""
        fd, self._fd = self._fd, None
        with contextlib.suppress(OSError):
            if fd is not None:
                os.close(fd)
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _write(self, encoded: Iterable[Encoded]) -> None:
        self.size_bytes += frames.write(self._opened(), encoded)

    def _opened(self) -> int:
        if self._fd is None:
            raise OSError("the snapshot file is not open")
        return self._fd


def encode_user(user: UserState) -> Encoded:
    """Encode a user. The bits of its layers are copied later, at their writing."""
    names = user.transactional_ids
    head = {
        "user": user.user,
        "secrets": user.secrets,
        "bucket": _bucket(user.bucket),
        "grace_admitted": user.grace_admitted,
        "layers": _layer_heads(user.layers),
        "transactional_ids": None
        if names is None
        else {
            "secret": names.secret,
            "bucket": _bucket(names.bucket),
            "grace_admitted": names.grace_admitted,
            "layers": _layer_heads(names.layers),
        },
    }
    layers = user.layers if names is None else (*user.layers, *names.layers)
    return frames.encode(_USER, head, [layer.data for layer in layers])


def read(path: Path) -> Contents:
    """Read the file up to a torn or damaged save. Raises SnapshotUnreadable, OSError."""
    about: About | None = None
    users: dict[str, SavedUser] = {}
    damage, used_bytes = "", 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.readline(len(FIRST_LINE)) != FIRST_LINE:
            raise SnapshotUnreadable(f"does not begin with {FIRST_LINE.decode().strip()!r}")
        save: list[Frame] = []
        try:
            for frame in frames.read(file, size):
                save.append(frame)
                if frame.kind == _END:
                    about, states = _read_save(save)
                    for state in states:
                        users[state.user] = SavedUser(state, about.written_wall_ms)
                    used_bytes = frame.end
                    save.clear()
        except FrameTorn:
            pass
        except FrameDamaged as error:
            damage = str(error)
    if about is None:
        raise SnapshotUnreadable(damage or "ends too early")
    return Contents(about, list(users.values()), 0 if damage else size - used_bytes, damage)


def _read_save(save: list[Frame]) -> tuple[About, list[UserState]]:
    first, *between, end = save
    try:
        if first.kind != _ABOUT or end.head["users"] != len(between):
            raise ValueError("not all frames of the save are there")
        about = _read_about(first.head)
        return about, [_read_user(frame) for frame in between]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise FrameDamaged(f"has invalid contents ({error!r})") from error


def _about_head(about: About) -> dict[str, Any]:
    return {
        "written_wall_ms": about.written_wall_ms,
        "offsets": about.offsets,
        "grace_until_wall_ms": about.grace_until_wall_ms,
        "cluster_bucket": _bucket(about.cluster_bucket),
        "incarnation": about.incarnation,
        "seq": about.seq,
    }


def _read_about(head: dict[str, Any]) -> About:
    grace = head["grace_until_wall_ms"]
    offsets = {int(partition): int(offset) for partition, offset in head["offsets"].items()}
    return About(
        int(head["written_wall_ms"]),
        offsets,
        None if grace is None else int(grace),
        _read_bucket(head["cluster_bucket"]),
        str(head["incarnation"]),
        int(head["seq"]),
    )


def _bucket(bucket: BucketState | None) -> list[int | None] | None:
    if bucket is None:
        return None
    return [bucket.units, bucket.token_units, bucket.rate_milli, bucket.rehearsed_units]


def _read_bucket(values: list[int | None] | None) -> BucketState | None:
    if values is None:
        return None
    *plain, rehearsed = values
    units, token_units, rate_milli = map(int, plain)  # type: ignore[arg-type]
    return BucketState(units, token_units, rate_milli, None if rehearsed is None else int(rehearsed))


def _layer_heads(layers: Iterable[LayerState]) -> list[list[int]]:
    return [[int(getattr(layer, name)) for name in _LAYER] for layer in layers]


def _read_user(frame: Frame) -> UserState:
    if frame.kind != _USER:
        raise ValueError(f"a frame of kind {frame.kind} among users")
    head = frame.head
    user = head["user"]
    if not isinstance(user, str):
        raise ValueError(f"a user is called {user!r}")
    layers, at = _read_layers(head["layers"], frame.body, 0)
    names: TransactionalIdsState | None = None
    if found := head["transactional_ids"]:
        of_names, _ = _read_layers(found["layers"], frame.body, at)
        secret, bucket = _secret(found["secret"]), _read_bucket(found["bucket"])
        names = TransactionalIdsState(secret, of_names, bucket, int(found["grace_admitted"]))
    plain, transactional = map(_secret, head["secrets"])
    bucket, grace_admitted = _read_bucket(head["bucket"]), int(head["grace_admitted"])
    return UserState(user, (plain, transactional), layers, bucket, grace_admitted, names)


def _secret(number: int) -> int:
    if not 0 <= int(number) < 1 << 8 * SECRET_BYTES:
        raise ValueError("a secret has more than 128 bits")
    return int(number)


def _read_layers(heads: list[list[int]], body: bytes, at: int) -> tuple[tuple[LayerState, ...], int]:
    """Return the layers with bits from `at` on, and the end of the bits."""
    layers = []
    for values in heads:
        *numbers, transactional = map(int, values)
        fields = dict(zip(_LAYER[:-1], numbers, strict=True))
        size = (fields["bits"] + 7) // 8
        data = body[at : at + size]
        if fields["bits"] < 1 or fields["hashes"] < 0 or len(data) < size:
            raise ValueError(f"a layer of {fields['bits']} bits has {len(data)} bytes")
        at += size
        layers.append(LayerState(**fields, data=data, transactional=bool(transactional)))
    return tuple(layers), at
