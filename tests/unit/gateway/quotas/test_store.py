"""A gateway's quotas without Kafka: what may be changed, when it holds, until when, and what a restart finds."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterator, MutableMapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from pidgate.gateway.config.loading import parse
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.quotas.administration import InForce, Kept, NotAllowed
from pidgate.gateway.quotas.change_log import LogEntry, Restored
from pidgate.gateway.quotas.store import CHANGES_FILE, QuotaStore, kept_changes
from pidgate.gateway.state.state_dir.kept_file import FileUnreadable
from pidgate.gateway.topics.own_client import OwnClient
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from pidgate.quota.entities import resolve
from pidgate.quota.settings import Mode

RATE, MODE = Setting.PRODUCER_IDS_RATE, Setting.MODE
START_MS = 1_700_000_000_000
FILE_TEXT = """
  mode: enforce
  default: {producer_ids_rate: 50}
  users:
    alice: {producer_ids_rate: 100, owner: team-a}
    bob: {mode: observe}
"""


def settings_of(
    quotas: str = FILE_TEXT, *, rules: str = "runtime_wins", state_dir: Path | None = None
) -> Settings:
    return parse(
        f"""
cluster: {{bootstrap_servers: ["127.0.0.1:1"]}}
gateway_id: gw-1
events: {{enabled: false}}
{"" if state_dir is None else f"state_dir: {state_dir}"}
quotas:
{quotas}
  runtime_changes: {rules}
"""
    )


class Clock:
    def __init__(self) -> None:
        self.wall_ms = START_MS

    def __call__(self) -> int:
        return self.wall_ms


class Gateway:
    """A book, and what it told."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.book = QuotaStore(settings, self, OwnClient.from_settings(settings), token_hex(6), self.clock)
        self.administration = self.book
        self.told: list[InForce] = []
        self.commands: list[Command] = []
        self._changed = asyncio.Event()

    def quotas_changed(self, in_force: InForce) -> None:
        self.told.append(in_force)
        self._changed.set()

    def command_given(self, command: Command) -> None:
        self.commands.append(command)

    def topic_id_learnt(self, topic_id: bytes) -> None: ...

    async def changed(self) -> None:
        async with asyncio.timeout(10):
            await self._changed.wait()
        self._changed.clear()

    def rate(self, user: str) -> int | None:
        return resolve(self.book.in_force.quotas, user).rate_milli

    def mode(self, user: str) -> Mode:
        return resolve(self.book.in_force.quotas, user).mode


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as found:
        yield found


def named(lines: Sequence[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == event]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def rate(user: str | None, value: int, *, until_ms: int | None = None, note: str = "") -> Change:
    return Change(
        target=Target(RATE, user, until_ms is not None),
        action=Action.SET,
        value=value,
        until_wall_ms=until_ms,
        set_by="operator",
        note=note,
    )


def mode(user: str | None, value: Mode, *, until_ms: int | None = None) -> Change:
    target = Target(MODE, user, until_ms is not None)
    return Change(target=target, action=Action.SET, value=value, until_wall_ms=until_ms, set_by="operator")


def without_value(setting: Setting, user: str | None, action: Action, *, temporary: bool = False) -> Change:
    return Change(target=Target(setting, user, temporary), action=action, set_by="operator")


# What holds


def test_a_change_is_in_force_at_once_and_told_once(lines: list[MutableMapping[str, Any]]) -> None:
    async def test() -> None:
        gateway = Gateway(settings_of())
        assert (gateway.rate("alice"), gateway.book.in_force.version) == (100_000, 1)
        kept = asyncio.ensure_future(
            gateway.administration.change([rate("alice", 7_500), rate("carol", 0), mode("bob", Mode.ENFORCE)])
        )
        assert await kept is Kept.MEMORY
        assert len(gateway.told) == 1
        assert gateway.told[0] is gateway.book.in_force
        assert gateway.book.in_force.version == 2
        assert [gateway.rate(user) for user in ("alice", "carol", "dave")] == [7_500, 0, 50_000]
        assert gateway.mode("bob") is Mode.ENFORCE
        assert gateway.book.in_force.in_file == settings_of().to_quotas()
        assert {change.set_through for change in gateway.book.in_force.changes} == {"gw-1"}
        assert {change.set_wall_ms for change in gateway.book.in_force.changes} == {START_MS}

        await gateway.book.change([rate("alice", 7_500)])
        assert len(gateway.told) == 1

    run(test())
    alice, *_ = [line for line in named(lines, "quotas_changed") if line["user"] == "alice"]
    assert (alice["before"], alice["value"], alice["set_by"]) == ("100", "7.5", "operator")


def test_reset_gives_back_what_the_file_says(lines: list[MutableMapping[str, Any]]) -> None:
    async def test() -> None:
        gateway = Gateway(settings_of())
        before = gateway.book.in_force
        await gateway.book.change([rate("alice", 1)])
        await gateway.book.change([without_value(RATE, "alice", Action.REMOVE)])
        assert gateway.rate("alice") == 50_000
        await gateway.book.change([without_value(RATE, "alice", Action.RESET)])
        after = gateway.book.in_force
        assert (after.quotas, after.provenance, after.changes) == (before.quotas, before.provenance, ())

    run(test())
    assert [line["action"] for line in named(lines, "quotas_changed")] == ["set", "remove", "reset"]


def test_a_temporary_change_ends_by_itself(lines: list[MutableMapping[str, Any]]) -> None:
    async def test() -> None:
        gateway = Gateway(settings_of())
        gateway.book.start()
        await gateway.book.change([rate("alice", 1), rate("alice", 2, until_ms=START_MS + 20)])
        await gateway.changed()
        assert gateway.rate("alice") == 2
        gateway.clock.wall_ms += 20
        await gateway.changed()
        assert gateway.rate("alice") == 1
        assert [change.value for change in gateway.book.in_force.changes] == [1]
        await gateway.book.stop()

    run(test())
    (ended,) = named(lines, "quota_change_ended")
    assert (ended["user"], ended["before"], ended["value"]) == ("alice", "0.002", "0.001")


def test_a_clock_that_jumps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidgate.gateway.quotas.store.CHECK_EVERY_S", 0.02)

    async def test() -> None:
        gateway = Gateway(settings_of())
        gateway.book.start()
        await gateway.book.change([mode(None, Mode.OBSERVE, until_ms=START_MS + 3_600_000)])
        await gateway.changed()
        assert gateway.mode("alice") is Mode.OBSERVE
        gateway.clock.wall_ms += 3_600_000
        await gateway.changed()
        assert gateway.mode("alice") is Mode.ENFORCE
        gateway.clock.wall_ms -= 3_600_000
        await gateway.changed()
        assert gateway.mode("alice") is Mode.OBSERVE
        await gateway.book.stop()

    run(test())


def test_another_file_holds_at_once_and_changes_stay(lines: list[MutableMapping[str, Any]]) -> None:
    async def test() -> None:
        gateway = Gateway(settings_of())
        await gateway.book.change([rate("alice", 1), rate("carol", 2)])
        gateway.book.file_changed(settings_of("  users: {alice: {producer_ids_rate: 9, owner: x}}"))
        assert [gateway.rate(user) for user in ("alice", "carol", "dave")] == [1, 2, None]
        assert gateway.book.in_force.provenance["alice"].owner == "x"
        gateway.book.file_changed(
            settings_of("  users: {alice: {producer_ids_rate: 9, owner: x}}", rules="file_wins")
        )
        assert [gateway.rate(user) for user in ("alice", "carol")] == [9_000, 2]
        assert gateway.book.in_force.provenance["alice"].source == "file"
        assert len(gateway.book.in_force.changes) == 2, "kept, though not in force"
        told = len(gateway.told)
        gateway.book.file_changed(
            settings_of("  users: {alice: {producer_ids_rate: 9, owner: x}}", rules="file_wins")
        )
        assert len(gateway.told) == told
        gateway.book.file_changed(settings_of("  mode: observe"))
        assert gateway.rate("alice") == 1

    run(test())
    assert len(named(lines, "quotas_changed")) == 2


# What may be changed

ENDS = START_MS + 1


@pytest.mark.parametrize(
    ("rules", "change", "words"),
    [
        ("refused", rate("alice", 1), "runtime_changes is refused"),
        ("refused", mode(None, Mode.ENFORCE), "runtime_changes is refused"),
        ("refused", mode("alice", Mode.OBSERVE), "runtime_changes is refused"),
        ("refused", without_value(RATE, "alice", Action.RESET), "runtime_changes is refused"),
        ("file_wins", rate("alice", 1), "file_wins"),
        ("file_wins", rate(None, 1), "producer_ids_rate of the default user"),
        ("file_wins", mode("bob", Mode.ENFORCE), "which mode user bob has"),
        ("file_wins", rate("alice", 1, until_ms=ENDS), "file_wins"),
        ("file_wins", without_value(RATE, "alice", Action.REMOVE), "file_wins"),
        ("runtime_wins", rate("", 1), "default user"),
        ("runtime_wins", rate("a" * 5_000, 1), "characters"),
        ("runtime_wins", rate("alice", 1, note="n" * 5_000), "characters"),
        ("runtime_wins", rate("alice", 1, until_ms=START_MS), "ended"),
        ("runtime_wins", without_value(RATE, "alice", Action.REMOVE, temporary=True), "needs an end"),
        ("runtime_wins", without_value(MODE, None, Action.REMOVE), "reset"),
    ],
)
def test_what_may_not_be_changed_is_refused_with_a_reason_and_nothing_else_is_done(
    rules: str, change: Change, words: str
) -> None:
    async def test() -> None:
        gateway = Gateway(settings_of(rules=rules))
        with pytest.raises(NotAllowed, match=words):
            gateway.book.check(change)
        allowed = mode(None, Mode.OBSERVE)
        with pytest.raises(NotAllowed):
            await gateway.book.change([allowed, change])
        assert gateway.told == []
        assert gateway.book.in_force.changes == ()

    run(test())


@pytest.mark.parametrize(
    ("rules", "change"),
    [
        ("refused", mode(None, Mode.OBSERVE)),
        ("refused", mode(None, Mode.OBSERVE, until_ms=ENDS)),
        ("refused", without_value(MODE, None, Action.RESET)),
        ("file_wins", mode(None, Mode.ENFORCE)),
        ("file_wins", rate("bob", 1)),
        ("file_wins", mode("alice", Mode.OBSERVE)),
        ("file_wins", without_value(RATE, "alice", Action.RESET)),
    ],
)
def test_what_may_be_changed_nevertheless(rules: str, change: Change) -> None:
    async def test() -> None:
        await Gateway(settings_of(rules=rules)).book.change([change])

    run(test())


# Deeds


def test_a_command_is_done_at_once_and_once() -> None:
    async def test() -> None:
        gateway = Gateway(settings_of())
        command = Command(type=CommandType.RELEASE, user="alice", producer_id=7, set_by="operator")
        assert await gateway.administration.command(command) is Kept.MEMORY
        assert await gateway.administration.command(command) is Kept.MEMORY, "in the same millisecond"
        (done,) = gateway.commands
        assert (done.producer_id, done.set_through, done.set_wall_ms) == (7, "gw-1", START_MS)
        gateway.clock.wall_ms += 1
        await gateway.administration.command(command)
        assert len(gateway.commands) == 2

    run(test())


def test_a_command_that_is_read_back_is_taken_back_though_its_acknowledgement_is_late() -> None:
    async def test() -> None:
        settings = settings_of()
        events = settings.events.model_copy(update={"enabled": True})
        gateway = Gateway(settings.model_copy(update={"events": events}))
        book, topic = gateway.book, gateway.book._topic
        assert topic is not None
        book._finish_reading()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(book.command(Command(type=CommandType.REFILL, user="alice")))
            await asyncio.sleep(0)
            ((key, of_first),) = topic._waiting.items()
            gateway.clock.wall_ms += 1
            second = group.create_task(book.command(Command(type=CommandType.REFILL, user="alice")))
            await asyncio.sleep(0)
            of_second = topic._waiting[key]
            book._apply_records([EventRecord(0, 0, START_MS, of_first.value or b"", key)])
            assert topic._waiting[key] is of_second
            book._apply_records([EventRecord(0, 1, START_MS, of_second.value or b"", key)])
            assert topic._waiting[key].value is None
        assert [first.result(), second.result()] == [Kept.TOPIC] * 2
        assert len(gateway.commands) == 2

    run(test())


def test_who_is_told_and_fails_is_in_nobodys_way(lines: list[MutableMapping[str, Any]]) -> None:
    class Failing(Gateway):
        def quotas_changed(self, in_force: InForce) -> None:
            raise RuntimeError("broken")

        def command_given(self, command: Command) -> None:
            raise RuntimeError("broken")

    async def test() -> None:
        gateway = Failing(settings_of())
        await gateway.book.change([rate("alice", 1)])
        await gateway.book.command(Command(type=CommandType.REFILL, user="alice"))
        assert gateway.rate("alice") == 1

    run(test())
    assert len(named(lines, "unexpected_error")) == 2


# The state directory


def test_a_restart_finds_what_was_changed_before_anything_is_served(tmp_path: Path) -> None:
    clock = Clock()

    async def first() -> None:
        gateway = Gateway(settings_of(state_dir=tmp_path), clock)
        gateway.book.open()
        kept = await gateway.book.change(
            [rate("alice", 1), rate("bob", 2, until_ms=START_MS + 5), mode(None, Mode.OBSERVE)]
        )
        assert kept is Kept.STATE_DIR
        await gateway.book.change([without_value(MODE, None, Action.RESET)])
        # No stop: killed.

    async def second() -> None:
        gateway = Gateway(settings_of(state_dir=tmp_path), clock)
        gateway.book.open()
        assert (gateway.rate("alice"), gateway.rate("bob")) == (1, 2)
        assert gateway.mode("alice") is Mode.ENFORCE
        assert len(gateway.told) == 1
        assert gateway.book.in_force.provenance["alice"].set_by == "operator"

    async def third() -> None:
        clock.wall_ms += 5
        gateway = Gateway(settings_of(state_dir=tmp_path), clock)
        gateway.book.open()
        assert (gateway.rate("alice"), gateway.rate("bob")) == (1, 50_000)

    run(first())
    run(second())
    run(third())
    assert os.stat(tmp_path / CHANGES_FILE).st_mode & 0o777 == 0o600


def test_a_damaged_file_is_set_aside_and_told_of(
    tmp_path: Path, lines: list[MutableMapping[str, Any]]
) -> None:
    (tmp_path / CHANGES_FILE).write_text('{"version": 1')

    async def test() -> None:
        gateway = Gateway(settings_of(state_dir=tmp_path))
        gateway.book.open()
        assert gateway.rate("alice") == 100_000
        assert await gateway.book.change([rate("alice", 1)]) is Kept.STATE_DIR
        await gateway.book.stop()

    run(test())
    (line,) = named(lines, "state_file_set_aside")
    assert (tmp_path / line["kept_as"]).read_text() == '{"version": 1'


def test_a_disk_that_takes_nothing_is_in_nobodys_way(
    tmp_path: Path, lines: list[MutableMapping[str, Any]]
) -> None:
    directory = tmp_path / "state"
    directory.mkdir()

    async def test() -> None:
        gateway = Gateway(settings_of(state_dir=directory))
        gateway.book.open()
        # The way there is gone: this fails for root, too.
        directory.rmdir()
        directory.write_text("a file")
        gateway.book.start()
        assert await gateway.book.change([rate("alice", 1)]) is Kept.MEMORY
        assert gateway.rate("alice") == 1
        directory.unlink()
        gateway.book._check_time()
        assert gateway.book._dir is not None
        assert await gateway.book._dir.kept()
        await gateway.book.stop()

    run(test())
    assert named(lines, "state_not_saved")
    (not_kept,) = named(lines, "quota_change_not_kept")
    assert not_kept["kept"] == "memory"
    assert FILE.decoded((directory / CHANGES_FILE).read_bytes())


def test_changes_that_come_together_are_written_together(tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[int] = []
        held: list[Restored] = []

        def contents() -> list[Restored]:
            seen.append(len(held))
            return list(held)

        store = kept_changes(tmp_path, contents)
        for number in range(50):
            held.append(Restored(LogEntry("run", number, rate(f"user-{number}", number)), False))
            store.changed()
        assert await store.kept()
        assert len(seen) <= 2
        assert store.read() == held

    run(test())


FILE = kept_changes(".", list)
A_FILE = FILE.encoded(
    [
        Restored(LogEntry("run", 1, rate("alice", 5, until_ms=ENDS, note="ü")), True),
        Restored(LogEntry("run", 2, mode(None, Mode.OBSERVE)), False),
    ]
)


def test_a_file_that_was_cut_off_anywhere_is_used_in_no_part() -> None:
    for length in range(len(A_FILE) - 2):
        with pytest.raises(FileUnreadable):
            FILE.decoded(A_FILE[:length])


@given(st.integers(0, len(A_FILE) - 1), st.integers(1, 255))
def test_a_file_with_another_byte_is_refused_or_means_the_same(at: int, other: int) -> None:
    damaged = bytearray(A_FILE)
    damaged[at] ^= other
    try:
        found = FILE.decoded(bytes(damaged))
    except FileUnreadable:
        return
    assert found == FILE.decoded(A_FILE)


def test_a_file_of_a_newer_version_is_left_to_that() -> None:
    newer = json.dumps({**json.loads(A_FILE), "version": 2}).encode()
    with pytest.raises(FileUnreadable, match="version 2"):
        FILE.decoded(newer)
