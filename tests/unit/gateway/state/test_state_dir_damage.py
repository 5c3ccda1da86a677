"""Whatever happens to the bytes of a state directory: the previous good state, a name in the log, never an exception.

Every file is cut off at every position and has every byte changed; hypothesis damages several at once.
"""

import asyncio
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.gateway.state.state_dir import StateDir, files, frames, journal, snapshot
from pidgate.gateway.state.state_dir.frames import SnapshotUnreadable
from pidgate.gateway.state.state_dir.snapshot import About, SnapshotWriter
from tests.support.bounds import examples
from tests.support.state_dirs import Meaning, append_all, meaning, opened, two_generations, users, values

SNAPSHOT_2, SNAPSHOT_3 = "snapshot-00000002", "snapshot-00000003"
JOURNAL_2, JOURNAL_3 = "journal-00000002", "journal-00000003"
ALL_FILES = (SNAPSHOT_2, JOURNAL_2, SNAPSHOT_3, JOURNAL_3)

NEWEST = Meaning(3, users(3), values("c"))
PREVIOUS = Meaning(2, users(2), [*values("b"), *values("c")])
NOTHING = Meaning(None, [], [*values("b"), *values("c")])


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    with TemporaryDirectory() as path, structlog.testing.capture_logs():
        two_generations(Path(path))
        yield Path(path)


class Copy:
    """A copy of a directory that can be put back as it was, because tests look at thousands of damages."""

    def __init__(self, whole: Path, path: Path) -> None:
        self.path = path
        self.contents = {name: (whole / name).read_bytes() for name in ALL_FILES}

    def with_changed(self, changed: dict[str, bytes]) -> Meaning:
        for file in list(self.path.iterdir()):
            file.unlink()
        for name, data in (self.contents | changed).items():
            (self.path / name).write_bytes(data)
        return meaning(self.path)

    def names(self) -> set[str]:
        return {file.name for file in self.path.iterdir()}


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Copy:
    return Copy(whole, tmp_path)


def journal_after(data: bytes) -> list[bytes]:
    """What is left of a journal cut off here: all lines that are whole, but for their newline."""
    return [value for line in data.split(b"\n")[1:] if (value := journal.from_line(line)) is not None]


def test_undamaged(copy: Copy) -> None:
    assert copy.with_changed({}) == NEWEST


@pytest.mark.parametrize("name", [SNAPSHOT_2, SNAPSHOT_3])
def test_a_snapshot_cut_off_anywhere(copy: Copy, name: str) -> None:
    data = copy.contents[name]
    for length in range(len(data)):
        found = copy.with_changed({name: data[:length]})
        assert found == (PREVIOUS if name == SNAPSHOT_3 else NEWEST), length
        assert (f"{SNAPSHOT_3}.damaged-1" in copy.names()) is (name == SNAPSHOT_3)


def test_a_snapshot_with_any_byte_changed_is_not_read(copy: Copy) -> None:
    data = copy.contents[SNAPSHOT_3]
    file = copy.path / "changed"
    for at in range(len(data)):
        for change in (0x01, 0x02, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= change
            file.write_bytes(changed)
            with pytest.raises(SnapshotUnreadable):
                snapshot.read(file)


def test_a_snapshot_with_a_byte_changed_leads_to_the_previous_state(copy: Copy) -> None:
    data = copy.contents[SNAPSHOT_3]
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x01
        assert copy.with_changed({SNAPSHOT_3: bytes(changed)}) == PREVIOUS, at


@pytest.mark.parametrize("name", [JOURNAL_2, JOURNAL_3])
def test_a_journal_cut_off_anywhere(copy: Copy, name: str) -> None:
    """A torn last line is how every kill ends: nothing is set aside for it."""
    data = copy.contents[name]
    for length in range(len(data)):
        found = copy.with_changed({name: data[:length], SNAPSHOT_3: b""})
        left = {JOURNAL_2: data, JOURNAL_3: data} | copy.contents | {name: data[:length]}
        assert found.journal == journal_after(left[JOURNAL_2]) + journal_after(left[JOURNAL_3]), length
        assert {f for f in copy.names() if "damaged" in f} == {f"{SNAPSHOT_3}.damaged-1"}


def test_a_journal_with_any_byte_changed_loses_the_lines_that_it_touches(copy: Copy) -> None:
    data = copy.contents[JOURNAL_3]
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x0A ^ 0x41 if at % 2 else 0xFF
        found = copy.with_changed({JOURNAL_3: bytes(changed)})
        lost = [value for value in values("c") if value not in found.journal]
        assert list(found.journal) == [value for value in values("c") if value not in lost], at
        assert len(lost) <= (2 if data[at] == 0x0A else 1), at
        assert (found.written_wall_ms, found.users) == (3, users(3))


def test_both_snapshots_damaged_is_a_cold_start_with_what_the_journals_hold(copy: Copy) -> None:
    assert copy.with_changed({SNAPSHOT_2: b"?", SNAPSHOT_3: b"?"}) == NOTHING
    assert {f"{SNAPSHOT_2}.damaged-2", f"{SNAPSHOT_3}.damaged-1"} <= copy.names()


def damage(data: bytes, draw: st.DataObject) -> bytes:
    kind = draw.draw(st.sampled_from(["cut", "flip", "zeroes", "garbage behind", "twice", "swap", "random"]))
    at = draw.draw(st.integers(0, len(data)))
    until = draw.draw(st.integers(at, len(data)))
    if kind == "cut":
        return data[:at] + data[until:]
    if kind == "flip":
        flipped = bytearray(data)
        for position in draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=8)):
            flipped[position] ^= draw.draw(st.integers(1, 255))
        return bytes(flipped)
    if kind == "zeroes":
        return data[:at] + bytes(until - at) + data[until:]
    if kind == "garbage behind":
        return data + draw.draw(st.binary(min_size=1, max_size=50))
    if kind == "twice":
        return data[:until] + data[at:]
    if kind == "swap":
        return data[at:] + data[:at]
    return draw.draw(st.binary(max_size=200))


def in_order(found: list[bytes], expected: list[bytes]) -> bool:
    """Whether `found` is part of `expected`, nothing of it twice and nothing out of order."""
    left = iter(expected)
    return all(value in left for value in found)


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_any_damage_to_any_files_leads_to_a_good_state(whole: Path, draw: st.DataObject) -> None:
    with TemporaryDirectory() as path, structlog.testing.capture_logs():
        copy = Copy(whole, Path(path))
        damaged = draw.draw(st.sets(st.sampled_from(ALL_FILES), min_size=1))
        changed = {name: damage(copy.contents[name], draw) for name in sorted(damaged)}
        damaged = {name for name in damaged if changed[name] != copy.contents[name]}
        found = copy.with_changed(changed)

        good = NOTHING
        if SNAPSHOT_2 not in damaged:
            good = PREVIOUS
        if SNAPSHOT_3 not in damaged:
            good = NEWEST
        assert (found.written_wall_ms, found.users) == (good.written_wall_ms, good.users)
        # A piece of a journal that is in it twice or at another place has good checksums; reading a decision
        # twice is harmless, and what is not made up is all that a checksum can promise.
        assert set(found.journal) <= set(good.journal)
        if not damaged & {JOURNAL_2, JOURNAL_3}:
            assert found.journal == good.journal
        assert len([name for name in copy.names() if "damaged" in name]) <= files.DAMAGED_FILES_KEPT


async def run_on(path: Path) -> None:
    """A life after the damage: append, save, append."""
    state_dir, loaded = await opened(path)
    list(loaded.journal)
    await append_all(state_dir, values("d"))
    assert await state_dir.save(users(4), written_wall_ms=4)
    await append_all(state_dir, values("e"))
    await state_dir.close()


@pytest.mark.parametrize("name", ALL_FILES)
def test_a_damaged_directory_is_good_again_after_the_next_snapshot(copy: Copy, name: str) -> None:
    copy.with_changed({name: copy.contents[name][:-3] + b"???"})
    asyncio.run(run_on(copy.path))

    assert meaning(copy.path) == Meaning(4, users(4), values("e"))


def test_a_damaged_line_is_named_and_its_journal_kept_when_it_is_retired(
    copy: Copy, logged: list[MutableMapping[str, Any]]
) -> None:
    data = copy.contents[JOURNAL_3]
    changed = data.replace(b"c-2", b"c-7")
    found = copy.with_changed({JOURNAL_3: changed})
    assert found.journal == [value for value in values("c") if b"c-2" not in value]
    asyncio.run(run_on(copy.path))
    asyncio.run(run_on(copy.path))

    assert (copy.path / f"{JOURNAL_3}.damaged-1").read_bytes() == changed
    assert not (copy.path / JOURNAL_3).exists()
    told = [line for line in logged if line["event"] == "state_file_set_aside"]
    assert {(line["path"], line["reason"], line["kept_as"]) for line in told} == {
        (str(copy.path / JOURNAL_3), "line 4 is damaged", f"{JOURNAL_3}.damaged-1")
    }


def test_the_newest_three_damaged_files_are_kept(copy: Copy) -> None:
    for _ in range(5):
        (copy.path / SNAPSHOT_3).write_bytes(b"?")
        meaning(copy.path)

    assert {name for name in copy.names() if "damaged" in name} == {
        f"{SNAPSHOT_3}.damaged-{number}" for number in (3, 4, 5)
    }


def test_strange_things_in_the_place_of_files(copy: Copy) -> None:
    copy.with_changed({})
    (copy.path / "snapshot-00000008").mkdir()
    (copy.path / "snapshot-00000007").symlink_to("/nowhere")
    (copy.path / "journal-00000009").mkdir()
    (copy.path / "notes.txt").write_text("somebody else's")

    assert meaning(copy.path) == NEWEST
    assert "notes.txt" in copy.names()


def test_a_snapshot_of_a_newer_version_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "newer"
    path.write_bytes(frames.prelude(7, readable_since=snapshot.SNAPSHOT_VERSION + 1))
    with pytest.raises(SnapshotUnreadable, match="newer version"):
        snapshot.read(path)


def test_a_newer_version_that_only_added_something_is_read(tmp_path: Path) -> None:
    path = tmp_path / "newer"
    parts = [
        frames.prelude(7, readable_since=1),
        *frames.frame(1, {"written_wall_ms": 5, "moon": "full"}),
        *frames.frame(9, {"new": "kind"}, [b"with a body"]),
        *frames.frame(3, {"user": "u", "seed": 1, "layers": [], "mood": "good"}),
        *frames.end(3),
    ]
    path.write_bytes(b"".join(parts))

    contents = snapshot.read(path)
    assert contents.about == About(5, {}, None)
    assert [user.user for user in contents.users] == ["u"]


def test_a_journal_of_a_newer_version_is_read_if_it_says_so(tmp_path: Path) -> None:
    lines = [journal.to_line(value) for value in values("a")]
    (tmp_path / "journal-00000001").write_bytes(
        journal.to_line(b'{"journal":9,"readable_since":1,"more":[]}') + b"".join(lines)
    )
    (tmp_path / "journal-00000002").write_bytes(
        journal.to_line(b'{"journal":9,"readable_since":2}') + b"".join(lines)
    )
    loaded = StateDir(tmp_path).load()

    assert list(loaded.journal) == values("a")
    assert loaded.journal.damaged == [
        ("journal-00000002", "was written by a newer version (needs a reader of version 2)")
    ]


@pytest.mark.parametrize(
    "heads",
    [
        [(1, {})],
        [(1, {"written_wall_ms": "soon"})],
        [(1, {"written_wall_ms": 1, "offsets": []})],
        [(3, {"user": "u", "seed": 1, "layers": []})],
        [(1, {"written_wall_ms": 1}), (3, {"user": 5, "seed": 1, "layers": []})],
        [(1, {"written_wall_ms": 1}), (3, {"user": "u", "seed": 1, "layers": [[1, 2, 3]]})],
        [(1, {"written_wall_ms": 1}), (3, {"user": "u", "seed": 1, "layers": [[1, 80, 3, 4, 5, 6, 7]]})],
        [(1, {"written_wall_ms": 1}), (3, {"user": "u", "seed": 1, "layers": [[1, -80, 3, 4, 5, 6, 7]]})],
        [(1, {"written_wall_ms": 1}), (2, {"bucket": [1]})],
    ],
)
def test_good_checksums_around_nonsense(tmp_path: Path, heads: list[tuple[int, dict[str, Any]]]) -> None:
    parts = [frames.prelude(1, 1)]
    for kind, head in heads:
        parts += frames.frame(kind, head)
    (tmp_path / SNAPSHOT_2).write_bytes(b"".join([*parts, *frames.end(len(heads))]))

    assert meaning(tmp_path) == Meaning(None, [], [])
    assert (tmp_path / f"{SNAPSHOT_2}.damaged-1").exists()


def test_a_crash_at_any_step_of_saving_leaves_the_state_before_it(whole: Path, tmp_path: Path) -> None:
    about = About(4, {}, None)
    for step in range(4):
        path = tmp_path / str(step)
        shutil.copytree(whole, path)
        writer = SnapshotWriter(path, 4)
        writer.begin(about, None)
        if step >= 1:
            writer.add(users(4)[:2])
        if step >= 2:
            writer.add(users(4)[2:])
        if step >= 3:
            writer.finish(3)
        crashed = tmp_path / f"{step}-crashed"
        shutil.copytree(path, crashed)
        writer.abandon()

        expected = Meaning(4, users(4), []) if step == 3 else NEWEST
        assert meaning(crashed) == expected, step
        assert not list(crashed.glob("*.partial"))


def test_values_with_newlines_stay_one_line() -> None:
    line = journal.to_line(b'{"a":\n1}')
    assert line.count(b"\n") == 1
    assert journal.from_line(line) == b'{"a": 1}'
