"""Whatever happens to the bytes of a state directory: an earlier whole save, a name in the log, never an exception.

Every file is cut off at every position and has every byte changed (by day every fifth); hypothesis damages several at
once.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.gateway.state.state_dir import About, files, frames
from pidgate.gateway.state.state_dir.snapshot import FIRST_LINE, SnapshotFile, encode_user
from tests.support.bounds import THOROUGH, examples
from tests.support.rules import rule
from tests.support.state_dirs import NOTHING, Meaning, meaning, opened, save, two_generations, users, written

SNAPSHOT_1, SNAPSHOT_2 = "snapshot-00000001", "snapshot-00000002"
ALL_FILES = (SNAPSHOT_1, SNAPSHOT_2)
EVERY = 1 if THOROUGH else 5


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

    def end_of_first_save(self) -> int:
        """Return where the first save of the newest file ends."""
        with (self.path / SNAPSHOT_2).open("rb") as file:
            file.readline()
            return next(found.end for found in frames.read(file, 10_000) if found.kind == 3)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Copy:
    shutil.copy(whole / SNAPSHOT_2, tmp_path)
    return Copy(whole, tmp_path)


def test_a_snapshot_cut_off_anywhere_means_what_its_whole_saves_do(copy: Copy) -> None:
    """A torn save is how a kill may end it: nothing is set aside for it."""
    data, first_save_ends = copy.contents[SNAPSHOT_2], copy.end_of_first_save()
    anywhere = range(0, len(data), EVERY)
    for length in sorted({*anywhere, *range(first_save_ends - 8, first_save_ends + 8), len(data) - 1}):
        found = copy.with_changed({SNAPSHOT_2: data[:length]})
        is_usable = length >= first_save_ends
        assert found == written(3 if is_usable else 2), length
        assert (f"{SNAPSHOT_2}.damaged-1" in copy.names()) is not is_usable


def test_a_snapshot_with_any_byte_changed_means_what_the_saves_before_do(copy: Copy) -> None:
    data, first_save_ends = copy.contents[SNAPSHOT_2], copy.end_of_first_save()
    for at in range(0, len(data), EVERY):
        for change in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= change
            found = copy.with_changed({SNAPSHOT_2: bytes(changed)})
            assert found == written(2 if at < first_save_ends else 3), at


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


@rule("A damaged state directory loses history and never contains wrong data.", "fleet")
@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_any_damage_to_any_files_leads_to_a_good_state(whole: Path, draw: st.DataObject) -> None:
    with TemporaryDirectory() as path, structlog.testing.capture_logs():
        copy = Copy(whole, Path(path))
        damaged = draw.draw(st.sets(st.sampled_from(ALL_FILES), min_size=1))
        changed = {name: damage(copy.contents[name], draw) for name in sorted(damaged)}
        damaged = {name for name in damaged if changed[name] != copy.contents[name]}
        found = copy.with_changed(changed)

        # A save is used whole or not at all; a piece of a file that is in it twice has good checksums.
        good = [written(4), written(3)]
        if SNAPSHOT_2 in damaged:
            good += [written(2), written(1)]
        if damaged == set(ALL_FILES):
            good.append(NOTHING)
        assert found in good
        if SNAPSHOT_2 not in damaged:
            assert found == written(4)
        assert len([name for name in copy.names() if "damaged" in name]) <= files.DAMAGED_FILES_KEPT


async def run_on(path: Path) -> None:
    """A life after the damage."""
    state_dir, _ = await opened(path)
    assert await save(state_dir, users(5), About(5, {}))
    await state_dir.close()


@pytest.mark.parametrize("name", ALL_FILES)
def test_a_damaged_directory_is_good_again_after_the_next_snapshot(copy: Copy, name: str) -> None:
    copy.with_changed({name: copy.contents[name][:-3] + b"???"})
    asyncio.run(run_on(copy.path))

    assert meaning(copy.path) == Meaning(About(5, {}), [(user, 5) for user in users(5)])


def test_a_file_whose_last_save_is_damaged_is_named_and_set_aside(
    copy: Copy, logged: list[MutableMapping[str, Any]]
) -> None:
    changed = copy.contents[SNAPSHOT_2][:-1] + b"?"
    assert copy.with_changed({SNAPSHOT_2: changed}) == written(3)

    assert (copy.path / f"{SNAPSHOT_2}.damaged-1").read_bytes() == changed
    assert not (copy.path / SNAPSHOT_2).exists()
    (line,) = [line for line in logged if line["event"] == "state_file_set_aside"]
    assert (line["path"], line["kept_as"]) == (str(copy.path / SNAPSHOT_2), f"{SNAPSHOT_2}.damaged-1")
    assert line["reason"] == "the checksum of a frame is wrong; the part before it is used"


def test_the_newest_three_damaged_files_are_kept(copy: Copy) -> None:
    for _ in range(5):
        (copy.path / SNAPSHOT_2).write_bytes(b"?")
        meaning(copy.path)

    assert {name for name in copy.names() if "damaged" in name} == {
        f"{SNAPSHOT_2}.damaged-{number}" for number in (3, 4, 5)
    }


def test_strange_things_in_the_place_of_files(copy: Copy) -> None:
    copy.with_changed({})
    (copy.path / "snapshot-00000008").mkdir()
    (copy.path / "snapshot-00000007").symlink_to("/nowhere")
    (copy.path / "notes.txt").write_text("somebody else's")

    assert meaning(copy.path) == written(4)
    assert "notes.txt" in copy.names()


def test_a_snapshot_of_another_format_is_set_aside(
    copy: Copy, logged: list[MutableMapping[str, Any]]
) -> None:
    data = copy.contents[SNAPSHOT_2].replace(FIRST_LINE, b"pidgate snapshot 4\n")
    assert copy.with_changed({SNAPSHOT_2: data}) == written(2)
    (line,) = [line for line in logged if line["event"] == "state_file_set_aside"]
    assert line["reason"] == "does not begin with 'pidgate snapshot 3'"


ABOUT = {
    "written_wall_ms": 1,
    "offsets": {},
    "grace_until_wall_ms": None,
    "cluster_bucket": None,
    "incarnation": "run",
    "seq": 1,
}
USER = {
    "user": "u",
    "secrets": [1, 2],
    "bucket": None,
    "grace_admitted": 0,
    "layers": [],
    "transactional_ids": None,
}


@pytest.mark.parametrize(
    "heads",
    [
        [(2, USER)],
        [(1, {})],
        [(1, ABOUT | {"written_wall_ms": "soon"})],
        [(1, ABOUT | {"offsets": []})],
        [(1, ABOUT | {"cluster_bucket": [1]})],
        [(1, ABOUT | {"seq": "late"})],
        [(1, ABOUT), (2, USER | {"user": 5})],
        [(1, ABOUT), (2, USER | {"user": None})],
        [(1, ABOUT), (2, USER | {"secrets": [1]})],
        [(1, ABOUT), (2, USER | {"secrets": [1, 2**128]})],
        [(1, ABOUT), (2, USER | {"layers": [[1, 2, 3]]})],
        [(1, ABOUT), (2, USER | {"layers": [[1, 80, 3, 4, 5, 6, 7, 0]]})],
        [(1, ABOUT), (2, USER | {"layers": [[1, -80, 3, 4, 5, 6, 7, 0]]})],
        [(1, ABOUT), (4, USER)],
    ],
)
def test_good_checksums_around_nonsense(tmp_path: Path, heads: list[tuple[int, dict[str, Any]]]) -> None:
    encoded = [frames.encode(kind, head) for kind, head in [*heads, (3, {"users": len(heads) - 1})]]
    with (tmp_path / SNAPSHOT_2).open("wb", buffering=0) as file:
        file.write(FIRST_LINE)
        frames.write(file.fileno(), encoded)

    assert meaning(tmp_path) == NOTHING
    assert (tmp_path / f"{SNAPSHOT_2}.damaged-1").exists()


def test_the_nonsense_is_all_that_is_wrong_there(tmp_path: Path) -> None:
    encoded = [frames.encode(*one) for one in ((1, ABOUT), (2, USER), (3, {"users": 1}))]
    with (tmp_path / SNAPSHOT_2).open("wb", buffering=0) as file:
        file.write(FIRST_LINE)
        frames.write(file.fileno(), encoded)
    assert [user.user for user, _ in meaning(tmp_path).users] == ["u"]


def _steps_of_saving(file: SnapshotFile) -> list[Callable[[], None]]:
    encoded = [encode_user(user) for user in users(5)]
    return [
        file.create,
        partial(file.begin_save, About(5, {})),
        partial(file.add_users, encoded),
        file.end_save,
        partial(file.put_in_place, 2),
        partial(file.begin_save, About(6, {})),
        partial(file.add_users, encoded[:1]),
        file.end_save,
    ]


def test_a_crash_at_any_step_of_saving_leaves_the_state_before_it(whole: Path, tmp_path: Path) -> None:
    """A new file, in its place by a rename; and a save that is appended to it."""
    for step in range(9):
        path = tmp_path / str(step)
        shutil.copytree(whole, path)
        file = SnapshotFile(path, 3)
        for take in _steps_of_saving(file)[:step]:
            take()
        crashed = tmp_path / f"{step}-crashed"
        shutil.copytree(path, crashed)
        file.close()

        expected = written(4)
        if step >= 5:
            expected = Meaning(About(5, {}), [(user, 5) for user in users(5)])
        if step == 8:
            expected = Meaning(About(6, {}), [(user, 6 if user.user == "alice" else 5) for user in users(5)])
        assert meaning(crashed) == expected, step
        assert not list(crashed.glob("*.partial"))
