"""The screen of `pidgate top`: who waits now and the users of one gateway, live on a terminal of 80 x 24.

The same draws as the status page (GET /v1/present). Actions are checked first, and done after a `y`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from pidgate.cli.admin_client import BadUsage, Failed, Gateway, JsonObject
from pidgate.units import about_duration, number, printable

DRAW_EVERY_S: Final = 2.0
MOST_ALERTS: Final = 3
MOST_WAITS: Final = 20
SORTS: Final = ("", "user", "new", "tokens", "waiting", "refused", "bytes")
BARS: Final = " ▁▂▃▄▅▆▇█"
WAIT_COLUMNS: Final = (("USER", 12), ("CLIENT", 14), ("SINCE", 7), ("UNTIL", 7), ("GIVES UP", 8), ("WHY", 60))
USER_COLUMNS: Final = (
    ("USER", 16), ("NEW/1h", 6), ("QUOTA", 12), ("TOKENS", 8), ("WAIT", 10), ("REFUSED", 7), ("60 MIN", 12)
)  # fmt: skip


class Prompt(ModalScreen[str | None]):
    """Asks for one line; None: given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(self._question, markup=False)
            yield Input(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Told(ModalScreen[bool]):
    """Shows lines; with a question, `y` is True."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n,q,enter", "dismiss(False)", "back"),
        Binding("y", "yes", "do it"),
    ]

    def __init__(self, lines: list[str], question: str = "") -> None:
        super().__init__()
        self._text, self._question = "\n".join(lines), question

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(self._text, markup=False)
            yield Static(self._question or "Esc goes back.", markup=False)

    def action_yes(self) -> None:
        self.dismiss(bool(self._question))


class Top(App[None]):
    """One gateway."""

    CSS = """
    #head, #alerts { height: auto; }
    #alerts { color: $error; }
    #waits { height: auto; max-height: 40%; }
    #users { height: 1fr; }
    ModalScreen { align: center middle; }
    .box { width: 90%; height: auto; max-height: 90%; border: round $primary; padding: 0 1; background: $surface; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("r", "raise_rate", "raise"),
        Binding("b", "block", "block"),
        Binding("o", "observe", "observe"),
        Binding("l", "release", "release"),
        Binding("u", "undo", "undo"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway
        self._find = self._sort = ""
        self._draw: JsonObject = {}
        self._undo: JsonObject | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="head", markup=False)
        yield Static("", id="alerts", markup=False)
        yield DataTable[str](id="waits", cursor_type="row")
        yield DataTable[str](id="users", cursor_type="row")
        yield Footer()

    async def on_mount(self) -> None:
        for name, columns in (("waits", WAIT_COLUMNS), ("users", USER_COLUMNS)):
            table = self._table(name)
            for title, width in columns:
                table.add_column(title, width=width, key=title)
        self._table("users").focus()
        await self._refresh()
        self.set_interval(DRAW_EVERY_S, self._refresh)

    def _table(self, name: str) -> DataTable[str]:
        table: DataTable[str] = self.screen_stack[0].query_one(f"#{name}", DataTable)
        return table

    async def _refresh(self) -> None:
        head = self.screen_stack[0].query_one("#head", Static)
        try:
            self._draw = await asyncio.to_thread(
                partial(self._gateway.get, "/v1/present", view="first", find=self._find, sort=self._sort)
            )
        except (BadUsage, Failed) as error:
            head.update(f"Not live: {error}")
            return
        head.update(heading(self._draw["head"], self._find, self._sort))
        alerts = self._draw["alerts"]
        lines = [f"! {printable(one['text'])}" for one in alerts[:MOST_ALERTS]]
        if len(alerts) > MOST_ALERTS:
            lines.append(f"  ({len(alerts) - MOST_ALERTS} more alerts)")
        self.screen_stack[0].query_one("#alerts", Static).update("\n".join(lines))
        now_ms = self._draw["head"]["wall_ms"]
        self._fill("waits", [wait_row(one, now_ms) for one in self._draw["waits"]["rows"][:MOST_WAITS]])
        self._fill("users", [user_row(one) for one in self._draw["users"]["rows"]])

    def _fill(self, name: str, rows: list[tuple[str, ...]]) -> None:
        table = self._table(name)
        at = table.cursor_row
        table.clear()
        for row in rows:
            table.add_row(*row)
        if rows:
            table.move_cursor(row=min(at, len(rows) - 1), animate=False)

    # ---- keys ------------------------------------------------------------------------------------------

    def _chosen(self) -> JsonObject | None:
        """Return the row under the cursor, of a wait or of a user."""
        name = "waits" if self._table("waits").has_focus else "users"
        part = self._draw.get(name)
        rows = [] if part is None else part["rows"]
        at = self._table(name).cursor_row
        return rows[at] if 0 <= at < len(rows) else None

    async def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        chosen = self._chosen()
        if chosen is not None and chosen["user"]:
            await self._explain(chosen["user"])

    async def _explain(self, user: str) -> None:
        try:
            found = await asyncio.to_thread(partial(self._gateway.get, "/v1/present", view="user", user=user))
        except (BadUsage, Failed) as error:
            self.notify(str(error), severity="error", markup=False)
            return
        lines = [*found["lines"]]
        for wait in found["waits"]["rows"]:
            lines.append(
                f"{printable(wait['client_id'])} at {printable(wait['address'])} waits: {wait['says']}"
            )
        lines += [f"{one['kind']}: {one['text']}" for one in found["patterns"]]
        self.push_screen(Told(lines))

    def action_filter(self) -> None:
        def use(text: str | None) -> None:
            self._find = self._find if text is None else text
            self.call_later(self._refresh)

        self.push_screen(Prompt("Users whose name holds:", self._find), use)

    async def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        await self._refresh()

    def action_raise_rate(self) -> None:
        chosen = self._chosen()
        if chosen is None or not chosen["user"]:
            return

        def use(text: str | None) -> None:
            rate, _, lasts = (text or "").partition(" ")
            if rate.replace(".", "", 1).isdigit():
                value = float(rate) if "." in rate else int(rate)
                self._change(chosen["user"], "producer_ids_rate", value, lasts.strip() or "2h")

        question = f"New ids per window of {chosen['name']}, and for how long:"
        self.push_screen(Prompt(question, "500 2h"), use)

    def action_block(self) -> None:
        self._with_user(lambda user: self._change(user, "producer_ids_rate", 0, "2h"))

    def action_observe(self) -> None:
        self._with_user(lambda user: self._change(user, "mode", "observe", "2h"))

    def action_release(self) -> None:
        chosen = self._chosen()
        producer_id = None if chosen is None else chosen.get("producer_id")
        if chosen is None or producer_id is None:
            self.notify("Tab to an id that waits, then l releases it.")
            return
        body = {"deed": "release", "user": chosen["user"], "producer_id": producer_id, "set_by": author()}
        self.run_worker(self._act("/v1/commands", body))

    def action_undo(self) -> None:
        if self._undo is None:
            self.notify("Nothing to undo.")
            return
        self.run_worker(self._act("/v1/quotas/changes", {**self._undo, "set_by": author()}))

    def _with_user(self, use: Callable[[str], None]) -> None:
        chosen = self._chosen()
        if chosen is not None and chosen["user"]:
            use(chosen["user"])

    def _change(self, user: str, setting: str, value: float | str, lasts: str) -> None:
        change = {"user": user, "setting": setting, "action": "set", "value": value, "for": lasts}
        self.run_worker(self._act("/v1/quotas/changes", {"changes": [change], "set_by": author()}))

    async def _act(self, path: str, body: JsonObject) -> None:
        """Check an action, show what it does, and do it after a `y`."""
        try:
            told = await asyncio.to_thread(self._gateway.post, path, {**body, "only_check": True})
            lines = [told["command"], *told["says"], f"Acts on {told['gateways']} gateway(s)."]
            if not await self.push_screen_wait(Told(lines, "y does it, Esc goes back.")):
                return
            done = await asyncio.to_thread(self._gateway.post, path, body)
        except (BadUsage, Failed) as error:
            self.notify(str(error), severity="error", timeout=10, markup=False)
            return
        self._undo = done["undo"]
        self.notify(f"Done: {done['command']}" + ("; u undoes it" if done["undo"] else ""), markup=False)
        await self._refresh()


# ---- rows ----------------------------------------------------------------------------------------------


def author() -> str:
    return f"top:{os.environ.get('USER') or os.getuid()}"


def heading(head: JsonObject, find: str, sort: str) -> str:
    """Return the lines at the top."""
    name = printable(head["cluster"] or head["gateway"])
    state = "" if head["is_ready"] else "  NOT READY"
    mode = head["mode"]["value"].upper()
    first = f"pidgate  {name}   {head['gateways']} gateway(s){state}   brokers {head['brokers_up']}/{head['brokers']}"
    oldest = head["oldest_wait_ms"]
    wait = "" if oldest is None else f"   OLDEST WAIT {about_duration(oldest)}"
    chosen = (f"   /{printable(find)}" if find else "") + (f"   sort {sort}" if sort else "")
    rates = f" new ids {number(head['new_per_s'])}/s   refused/1h {number(head['refused_1h'])}"
    brokers = [_states(head["states"]), head["id_blocks"] and head["id_blocks"]["says"]]
    third = "   ".join(part for part in brokers if part)
    return f"{first}   {mode}\n{rates}   waiting {number(head['waiting'])}{wait}{chosen}\n {third}".rstrip()


def _states(states: JsonObject | None) -> str:
    if states is None:
        return ""
    most = "" if states["capacity"] is None else f" of {number(states['capacity'])}"
    return f"states {number(states['count'])}{most} (broker {states['node_id']})"


def wait_row(row: JsonObject, now_ms: int) -> tuple[str, ...]:
    return (
        printable(row["name"]),
        printable(row["client_id"]),
        about_duration(max(0, now_ms - row["since_wall_ms"])),
        _left(row["until_wall_ms"], now_ms),
        _left(row["gives_up_wall_ms"], now_ms),
        printable(row["says"]),
    )


def user_row(row: JsonObject) -> tuple[str, ...]:
    letter = "x" if row["exempt"] else "E" if row["mode"] == "enforce" else "o"
    rate = "no limit" if row["rate"] is None else number(row["rate"])
    waiting = f"{row['waiting']} {about_duration(row['oldest_waiting_ms'])}" if row["waiting"] else "-"
    return (
        printable(row["name"]),
        number(row["new_1h"]),
        f"{rate} {letter}{'*' if row['is_run_time'] else ''}",
        "-" if row["tokens"] is None else number(row["tokens"]),
        waiting,
        number(row["refused_1h"]) if row["refused_1h"] else "-",
        bars(row["minutes"]),
    )


def bars(minutes: list[int]) -> str:
    """Return the last hour in twelve signs, five minutes each."""
    sums = [sum(minutes[at : at + 5]) for at in range(0, len(minutes), 5)]
    most = max([*sums, 1])
    return "".join(BARS[-(-(len(BARS) - 1) * one // most)] for one in sums)


def _left(until_ms: Any, now_ms: int) -> str:
    if until_ms is None:
        return "-"
    return "now" if until_ms <= now_ms else about_duration(until_ms - now_ms)
