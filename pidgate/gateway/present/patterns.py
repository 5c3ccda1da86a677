"""What a user does, in the words of `pidgate who`, from the events that this gateway has in memory.

Events are read in turns with the traffic, those of one user only, and what was found is kept for a while. Import only
after the listeners are up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Final

from pidgate.events.redaction import UserNames
from pidgate.gateway.state.recent_events import RecentEvents
from pidgate.gateway.topics.records import EventRecord
from pidgate.quota.entities import User
from pidgate.who.findings import findings
from pidgate.who.intake import Intake
from pidgate.who.painting import user_pictures
from pidgate.who.picture import Window
from pidgate.who.span import Span
from pidgate.who.tally import Tally

HOUR_MS: Final = 3_600_000
KEPT_MS: Final = 15_000
MOST_KEPT: Final = 20
"""Users: as many as pages are open."""
SEARCHED_PER_TURN: Final = 500
"""Events that are searched for a name: less than 1 ms."""
READ_PER_TURN: Final = 10
"""Events that are decoded: some 1 ms."""
MOST_READ: Final = 5_000


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern: its name, its sentence and the remedy."""

    kind: str
    text: str
    remedy: str


class Patterns:
    """Finds the patterns of a user in the last hour, as far as memory reaches."""

    def __init__(self, recent: RecentEvents, names: UserNames) -> None:
        self._recent = recent
        self._names = names
        self._kept: OrderedDict[User, tuple[int, list[Found]]] = OrderedDict()

    async def of(self, user: User, wall_ms: int) -> list[Found]:
        """Return the patterns of a user, trouble first; empty without new ids in memory."""
        kept = self._kept.get(user)
        if kept is not None and 0 <= wall_ms - kept[0] < KEPT_MS:
            return kept[1]
        found = await self._find(self._names.in_events(user), wall_ms)
        self._kept[user] = wall_ms, found
        self._kept.move_to_end(user)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _find(self, name: str, wall_ms: int) -> list[Found]:
        since_ms = max(wall_ms - HOUR_MS, self._recent.whole_from_wall_ms)
        records = await self._records(name, since_ms)
        tally = Tally(name)
        intake = Intake(tally, Span(since_ms, wall_ms, since_ms, len(records)))
        for first in range(0, len(records), READ_PER_TURN):
            intake.take(records[first : first + READ_PER_TURN])
            await asyncio.sleep(0)
        window = Window(since_ms, wall_ms, wall_ms - HOUR_MS)
        pictures = user_pictures(tally, window, None)
        return [
            Found(str(one.kind), one.text, one.remedy)
            for picture in pictures
            if picture.user == name and picture.new_ids
            for one in findings(picture, window)
        ]

    async def _records(self, name: str, since_ms: int) -> list[EventRecord]:
        """Return the newest events that name the user, oldest first."""
        needle = f'"user":{encode_basestring_ascii(name)}'.encode()
        records = []
        for offset, (at_ms, value) in enumerate(self._recent.since(since_ms)):
            if offset % SEARCHED_PER_TURN == 0:
                await asyncio.sleep(0)
            if needle in value:
                records.append(EventRecord(0, offset, at_ms, value))
        return records[-MOST_READ:]
