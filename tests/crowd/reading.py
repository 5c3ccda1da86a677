"""What a crowd's producers were told, against the log, without keeping either: a count for each producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pidgate.load.journal import read_value
from tools.sandbox.log_checker import LogRecord


@dataclass(slots=True)
class Found:
    """Faults by kind and producer, and the records of those who are not checked."""

    records: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    never_sent: list[str] = field(default_factory=list)
    in_flight: int = 0
    """Records in the log whose answer never came: at most one of a producer, at the end."""
    others: Counter[str] = field(default_factory=Counter)
    """Records of rogues, by producer."""

    @property
    def problems(self) -> list[str]:
        return [
            f"{len(names)} {kind}: {', '.join(names[:5])}"
            for kind, names in (
                ("lost", self.lost),
                ("doubled", self.doubled),
                ("reordered", self.reordered),
                ("never sent", self.never_sent),
            )
            if names
        ]


def check(acknowledged: Mapping[str, int], rogues: Collection[str], log: Iterable[LogRecord]) -> Found:
    """Of each producer the log has to hold 0 to acknowledged - 1, each once and in order, and perhaps one more.

    `log`: in the order of offsets within each partition; a producer writes to one of them.
    """
    found = Found()
    expected = dict.fromkeys(acknowledged, 0)
    for record in log:
        label = read_value(record.value)
        name = label.producer if label is not None else ""
        found.records += 1
        if label is None or name not in expected:
            if name in rogues:
                found.others[name] += 1
            else:
                found.never_sent.append(f"{record.value[:40]!r} at {record.partition}:{record.offset}")
            continue
        place = f"{name} #{label.n} at {record.partition}:{record.offset}"
        if label.n < expected[name]:
            found.doubled.append(place)
        elif label.n > expected[name]:
            found.reordered.append(f"{place}, #{expected[name]} is missing before it")
        expected[name] = max(expected[name], label.n + 1)
    for name, written in expected.items():
        told = acknowledged[name]
        if written < told:
            found.lost.append(f"{name} #{written} to #{told - 1}")
        elif written > told + 1:
            found.never_sent.append(f"{name} #{told + 1}")
        else:
            found.in_flight += written - told
    return found
