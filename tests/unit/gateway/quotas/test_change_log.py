"""Whatever is told at several gateways, in whatever order it reaches the topic: all end with what the topic says.

Gateways are ledgers, the topic is a list. What a client of Kafka may do to records on their way is done here: they
wait, they are written twice, and copies come late; readers lag; gateways start again from their file.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from pidgate.gateway.quotas.change_log import (
    ChangeLog,
    LogEntry,
    RecordUnreadable,
    decode,
    encode,
    key_of,
    key_of_target,
    target_of,
)
from pidgate.quota.changes import Action, Change, Command, CommandType, Setting, Target
from tests.support.rules import rule

RATE, MODE = Setting.PRODUCER_IDS_RATE, Setting.MODE
ALICE = Target(RATE, "alice")


def rate(value: int, target: Target = ALICE, *, wall_ms: int = 0, through: str = "") -> Change:
    until = 10**15 if target.temporary else None
    return Change(
        target=target,
        action=Action.SET,
        value=value,
        until_wall_ms=until,
        set_wall_ms=wall_ms,
        set_through=through,
    )


def reset(target: Target = ALICE) -> Change:
    return Change(target=target, action=Action.RESET)


def record(told: LogEntry) -> tuple[bytes, bytes]:
    return key_of(told.what), encode(told)


def read(run: str, *records: tuple[bytes, bytes]) -> ChangeLog:
    """One that has read these to the end."""
    ledger = ChangeLog(run, has_topic=True)
    for key, value in records:
        ledger.apply(key, value)
    ledger.finish_reading()
    return ledger


# One ledger


def test_a_change_is_on_top_until_it_is_read_and_then_its_place_counts() -> None:
    here = read("here")
    own, others = here.append(rate(1)), LogEntry("there", 1, rate(2))

    here.apply(*record(others))
    assert here.changes() == {ALICE: rate(1)}
    here.apply(*record(own))
    assert here.changes() == {ALICE: rate(1)}
    here.apply(*record(replace(others, seq=2)))
    assert here.changes() == {ALICE: rate(2)}


def test_an_own_change_that_was_read_before_anothers_is_overtaken_by_it() -> None:
    here = read("here")
    own = here.append(rate(1))
    here.apply(*record(own))
    here.apply(*record(LogEntry("there", 1, rate(2))))
    assert here.changes() == {ALICE: rate(2)}


def test_what_is_forgotten_stays_forgotten_for_those_who_come_later() -> None:
    records = [record(LogEntry("a", 1, rate(1))), record(LogEntry("a", 2, reset()))]
    assert read("b", *records).changes() == {}
    # Compaction leaves the newest.
    assert read("b", records[1]).changes() == {}
    assert read("b", records[0], (records[0][0], b"")).changes() == {}


def test_until_the_end_is_read_what_is_known_holds_and_then_the_topic_does() -> None:
    known = read(
        "a", record(LogEntry("a", 1, rate(1))), record(LogEntry("a", 2, rate(5, Target(RATE, "bob"))))
    )
    here = ChangeLog("b", has_topic=True)
    here.restore(known.to_keep())
    assert set(here.changes()) == {ALICE, Target(RATE, "bob")}

    here.apply(*record(LogEntry("a", 3, rate(3))))
    assert here.changes()[ALICE] == rate(1)
    assert not here.is_read
    assert here.finish_reading() == []
    assert here.is_read
    assert here.changes() == {ALICE: rate(3)}


def test_what_an_earlier_run_did_not_get_written_is_written_by_the_next() -> None:
    before = read("a")
    told = before.append(rate(1))
    here = ChangeLog("b", has_topic=True)
    here.restore(before.to_keep())
    here.apply(*record(LogEntry("c", 1, rate(2))))
    assert here.changes() == {ALICE: rate(1)}
    assert here.finish_reading() == [told]
    assert here.changes() == {ALICE: rate(1)}


@pytest.mark.parametrize("was_told", ["acknowledged", "read"])
def test_what_it_did_get_written_is_not_written_again(was_told: str) -> None:
    before = read("a")
    told = before.append(rate(1))
    if was_told == "acknowledged":
        before.acknowledge(told)
    here = ChangeLog("b", has_topic=True)
    here.restore(before.to_keep())
    records = [record(told)] if was_told == "read" else []
    for one in [*records, record(LogEntry("c", 1, rate(2)))]:
        here.apply(*one)
    assert here.finish_reading() == []
    assert here.changes() == {ALICE: rate(2)}


def test_a_change_made_while_the_past_is_read_stays_on_top_of_it() -> None:
    here = ChangeLog("a", has_topic=True)
    own = here.append(rate(1))
    here.apply(*record(LogEntry("c", 1, rate(2))))
    assert here.finish_reading() == []
    assert here.changes() == {ALICE: rate(1)}
    here.apply(*record(own))
    here.apply(*record(LogEntry("c", 2, rate(3))))
    assert here.changes() == {ALICE: rate(3)}


def test_a_late_copy_of_an_own_change_is_followed_by_what_held_before_it() -> None:
    here = read("a")
    first = here.append(rate(1))
    here.apply(*record(first))
    second = here.append(rate(2))
    here.apply(*record(second))

    again = here.apply(*record(first))
    assert again is not None
    assert (again.what, again.seq) == (rate(2), 3)
    assert here.changes() == {ALICE: rate(2)}
    assert here.apply(*record(again)) is None
    assert here.changes() == {ALICE: rate(2)}


def test_commands_of_the_past_are_not_done() -> None:
    command = Command(type=CommandType.REFILL, user="alice")
    here = ChangeLog("a", has_topic=True)
    assert here.apply(*record(LogEntry("b", 1, command))) is None
    here.finish_reading()
    live = LogEntry("b", 2, command)
    assert here.apply(*record(live)) == live
    assert here.apply(key_of(command), b"") is None


def test_without_a_topic_a_change_is_kept_at_once_and_forgotten_at_once() -> None:
    here = ChangeLog("a", has_topic=False)
    here.append(rate(1))
    assert here.is_read
    assert [(told.what, is_pending) for told, is_pending in here.to_keep()] == [(rate(1), False)]
    here.append(reset())
    assert (here.changes(), here.to_keep()) == ({}, [])
    assert here.latest(ALICE) == reset()


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 5_000,
        b'{"v":2,"readable_since":2}',
        b'{"v":1,"readable_since":1,"run":"a","seq":1,"change":"wind","user":null,"action":"set","value":1,"set_wall_ms":1}',
        b'{"v":1,"readable_since":1,"run":"a","seq":true,"change":"mode","user":null,"action":"reset","value":null,"set_wall_ms":1}',
        encode(LogEntry("a", 1, rate(1, Target(RATE, "bob")))),
        encode(LogEntry("b", 1, rate(10**400))),
        encode(LogEntry("b", 1, replace(rate(1), set_wall_ms=-(10**400)))),
        encode(LogEntry("b", 10**400, rate(1))),
    ],
)
def test_what_cannot_be_understood_is_counted_and_in_nobodys_way(value: bytes) -> None:
    here = read("a", record(LogEntry("a", 1, rate(7))))
    assert here.apply(key_of_target(ALICE), value) is None
    assert here.unreadable == 1
    assert here.last_unreadable
    assert here.changes() == {ALICE: rate(7)}


@pytest.mark.parametrize("user", [None, "alice", "a:b", ":", "Zoë", "\ud800", "temporary:x"])
@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("setting", list(Setting))
def test_a_target_has_a_key_of_its_own(user: str | None, temporary: bool, setting: Setting) -> None:
    target = Target(setting, user, temporary)
    assert target_of(key_of_target(target)) == target
    told = LogEntry("run", 3, Change(target=target, action=Action.RESET, set_by="ü", set_wall_ms=5, note="n"))
    assert decode(key_of(told.what), encode(told)) == told


def test_other_keys_are_nobodys() -> None:
    for key in (
        b"",
        b"change",
        b"change:mode",
        b"change:wind:standing",
        b"change:mode:now:x",
        b"\xff:mode:standing",
    ):
        assert target_of(key) is None
    command = LogEntry(
        "a", 1, Command(type=CommandType.RELEASE, user="a:b", producer_id=7, set_by="x", set_wall_ms=1)
    )
    assert decode(b"command:release:a:b:7", encode(command)) == command
    with pytest.raises(RecordUnreadable):
        decode(b"command:release:a:b:8", encode(command))


# Several, over a topic that is a list


@dataclass
class Gateway:
    ledger: ChangeLog
    at: int = 0
    outgoing: list[LogEntry] = field(default_factory=list)
    under_way: list[LogEntry] = field(default_factory=list)
    """Copies that may still come, or never."""


class Fleet:
    """`number` gateways; every step is drawn."""

    def __init__(self, seed: int, number: int, make: Callable[[str], ChangeLog]) -> None:
        self.draw = random.Random(seed)
        self.make = make
        self.log: list[tuple[bytes, bytes]] = []
        self.runs = 0
        self.gateways = [Gateway(self.started()) for _ in range(number)]

    def started(self) -> ChangeLog:
        self.runs += 1
        return self.make(f"run{self.runs}")

    def step(self) -> None:
        gateway = self.draw.choice(self.gateways)
        what = self.draw.choices(
            [self.tell, self.write, self.late_copy, self.hear, self.restart], [4, 5, 1, 10, 0.3]
        )[0]
        what(gateway)

    def tell(self, gateway: Gateway) -> None:
        target = Target(RATE, self.draw.choice(["alice", "bob"]), self.draw.random() < 0.2)
        change = reset(target)
        if self.draw.random() < 0.8:
            # Clocks go wrong, too.
            change = rate(self.draw.randrange(10**6), target, wall_ms=self.draw.randrange(10**6))
        gateway.outgoing.append(gateway.ledger.append(change))

    def write(self, gateway: Gateway) -> None:
        if not gateway.outgoing:
            return
        told = gateway.outgoing[0]
        fate = self.draw.random()
        if fate < 0.9:
            self.log.append(record(told))
        elif fate < 0.95:
            gateway.under_way.append(told)
        if fate < 0.85:
            gateway.outgoing.pop(0)
            gateway.ledger.acknowledge(told)

    def late_copy(self, gateway: Gateway) -> None:
        if gateway.under_way:
            self.log.append(record(gateway.under_way.pop()))

    def hear(self, gateway: Gateway) -> None:
        for key, value in self.log[gateway.at : gateway.at + self.draw.randrange(1, 6)]:
            gateway.at += 1
            again = gateway.ledger.apply(key, value)
            if again is not None:
                gateway.outgoing.append(again)
        if gateway.at == len(self.log) and not gateway.ledger.is_read:
            gateway.outgoing += gateway.ledger.finish_reading()

    def restart(self, gateway: Gateway) -> None:
        kept = gateway.ledger.to_keep()
        gateway.ledger, gateway.at = self.started(), 0
        gateway.ledger.restore(kept)
        gateway.outgoing, gateway.under_way = [], []

    def settle(self) -> None:
        for gateway in self.gateways:
            gateway.under_way.clear()
        while any(gateway.outgoing or gateway.at < len(self.log) for gateway in self.gateways):
            for gateway in self.gateways:
                while gateway.outgoing:
                    self.write(gateway)
                self.hear(gateway)
                gateway.under_way.clear()
        for gateway in self.gateways:
            self.hear(gateway)

    def compacted(self) -> list[tuple[bytes, bytes]]:
        newest = {key: at for at, (key, _) in enumerate(self.log)}
        return [one for at, one in enumerate(self.log) if newest[one[0]] == at]


def disagreements(make: Callable[[str], ChangeLog], rounds: int, steps: int = 60) -> int:
    """In how many rounds not all gateways, and one that starts when all is over, end with the same."""
    found = 0
    for seed in range(rounds):
        fleet = Fleet(seed, 3, make)
        for _ in range(steps):
            fleet.step()
        fleet.settle()
        ends = [gateway.ledger.changes() for gateway in fleet.gateways]
        for log in (fleet.log, fleet.compacted()):
            late = make("late")
            for key, value in log:
                late.apply(key, value)
            late.finish_reading()
            ends.append(late.changes())
        found += any(end != ends[0] for end in ends)
    return found


def with_topic(run: str) -> ChangeLog:
    return ChangeLog(run, has_topic=True)


@rule("Quota changes apply in the order of the topic.", "fleet")
def test_all_end_with_the_same() -> None:
    assert disagreements(with_topic, rounds=1_500) == 0
