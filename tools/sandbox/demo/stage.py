"""Progress of the demo: a live picture on a terminal, otherwise a line every two seconds."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pidgate.load.journal import ProducerJournal
from tools.sandbox.demo.findings import Fate, ids_by, ids_refused
from tools.sandbox.demo.plan import ALICE, BOB, PARTITIONS
from tools.sandbox.demo.sparks import spark
from tools.sandbox.demo.watch import Point
from tools.sandbox.play import Clocked

_LINE_EVERY_S = 2.0
_SPARK_CELLS = 40


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment of an attack."""

    title: str
    of_s: float
    points: Sequence[Point]
    bystanders: Mapping[str, Counter[str]]
    mallory: Sequence[ProducerJournal]
    crash_loop: Counter[str]
    heap_mb: int

    @property
    def now(self) -> Point:
        return self.points[-1]

    def mallory_ids(self) -> str:
        """Return how many of mallory's ids have which fate."""
        fates = sum((ids_by(journal) for journal in self.mallory), Counter[Fate]())
        refused = sum(ids_refused(journal) for journal in self.mallory)
        return (
            f"{fates[Fate.ACKNOWLEDGED]:,} in, {refused:,} refused, {fates[Fate.WAITING]:,} waiting, "
            f"{fates[Fate.GAVE_UP]:,} gave up"
        )


class Stage(Clocked):
    """Display of the demo: lines above a live picture on a terminal, otherwise a limited number of lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = (
            Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        )
        self._next_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print the start of a step."""
        if self._live is not None:
            self._live.update(Text(""), refresh=True)
        super().say(text)

    def show(self, scene: Scene) -> None:
        """Show a moment of the current step."""
        if self._live is not None:
            self._live.update(_picture(scene, ascii_only=self.console.options.ascii_only), refresh=True)
            return
        now_s = time.monotonic()
        if now_s >= self._next_s or not scene.now.alive:
            self._next_s = now_s + _LINE_EVERY_S
            self.say(_line(scene))


def _line(scene: Scene) -> str:
    now = scene.now
    good = ", ".join(f"{user} {scene.bystanders[user]['acknowledged']:,}" for user in (ALICE, BOB))
    return (
        f"{now.at_s:4.1f} of {scene.of_s:.0f} s: {'heap' if now.alive else 'DEAD, heap'} {now.heap_used_mb} of "
        f"{scene.heap_mb} MB, {now.ids:,} ids per partition; acknowledged: {good}; mallory "
        f"{scene.mallory_ids()}; "
        f"carol started {scene.crash_loop['sent']} times"
    )


def _picture(scene: Scene, *, ascii_only: bool) -> Panel:
    now = scene.now
    heaps = [point.heap_used_mb for point in scene.points]
    ids = [point.ids for point in scene.points]
    times = [point.at_s for point in scene.points]

    def curve(values: Sequence[int], top: int) -> str:
        return spark(times, values, cells=_SPARK_CELLS, until=scene.of_s, top=top, ascii_only=ascii_only)

    broker = Table.grid(padding=(0, 2))
    broker.add_row("time", ProgressBar(total=scene.of_s, completed=now.at_s, width=_SPARK_CELLS))
    broker.add_row("broker", "[green]alive[/]" if now.alive else "[bold red]DEAD[/]")
    broker.add_row("heap", f"{curve(heaps, scene.heap_mb)} {now.heap_used_mb} of {scene.heap_mb} MB")
    broker.add_row(
        "ids", f"{curve(ids, max(*ids, 100))} {now.ids:,} in each of {PARTITIONS['clicks']} partitions"
    )
    people = Table.grid(padding=(0, 2))
    for user in (ALICE, BOB):
        counts = scene.bystanders[user]
        people.add_row(user, f"{counts['acknowledged']:,} acknowledged of {counts['sent']:,} sent")
    people.add_row("mallory", f"ids: {scene.mallory_ids()}")
    lives = scene.crash_loop
    people.add_row("carol", f"crashed {lives['sent']} times, {lives['acknowledged']} records acknowledged")
    return Panel(Group(broker, people), title=scene.title, title_align="left")
