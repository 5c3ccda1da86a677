"""`pidgate top` before a whole gateway, on a screen of 80 x 24."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from pidgate.cli.admin_address import AdminAddress
from pidgate.cli.admin_client import Gateway
from pidgate.cli.top_screen import Top, bars, heading
from pidgate.gateway.config.local_token import token_of
from pidgate.gateway.present.words import id_blocks
from pidgate.units import Address
from tests.support.command_line import typed
from tests.unit.gateway.admin.test_page import QUOTAS, Site
from tools.sandbox.gateway import GatewayProcess

SIZE = (80, 24)
WITHIN_S = 20.0


def shown(use: Callable[[Pilot[None], Site], Awaitable[None]]) -> None:
    """Run it against a gateway in a process of its own, whose broker does not answer."""

    async def run(site: Site) -> None:
        gateway = Gateway(AdminAddress(Address("127.0.0.1", site.port)), token_of(site.port))
        async with Top(gateway).run_test(size=SIZE) as pilot:
            await pilot.pause()
            await use(pilot, site)

    gateway = GatewayProcess("127.0.0.1:1", quotas=QUOTAS)
    gateway.config["admin"]["writable"] = True
    with ExitStack() as stack:
        stack.push(gateway.__exit__)
        gateway.start(wait=False)
        give_up_s = time.monotonic() + WITHIN_S
        while not gateway.status("/livez"):
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        asyncio.run(run(Site(gateway.admin_port)))


def text_of(pilot: Pilot[None], name: str) -> str:
    return str(pilot.app.screen.query(f"#{name}, Static").first(Static).render())


def cells(pilot: Pilot[None]) -> list[Any]:
    table = pilot.app.screen_stack[0].query_one("#users", DataTable)
    return [table.get_row_at(at) for at in range(table.row_count)]


async def until(pilot: Pilot[None], is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_true():
            await pilot.pause(0.05)


def test_users_are_shown_an_action_is_checked_done_and_undone() -> None:
    async def use(pilot: Pilot[None], site: Site) -> None:
        def rate() -> Any:
            return site.ask("GET", "/v1/quotas?user=alice")[1]["entries"][0]["effective_rate"]["value"]

        await until(pilot, lambda: bool(cells(pilot)))
        assert cells(pilot)[0][:3] == ["alice", "0", "2 E"]
        assert "brokers" in text_of(pilot, "head")
        head = site.ask("GET", "/v1/present?view=first")[1]["head"]
        head["states"] = {"count": 1_900_000, "capacity": 6_000_000, "node_id": 4}
        head["id_blocks"] = {"says": id_blocks(12, 10**9)}
        assert all(len(line) <= SIZE[0] for line in heading(head, "", "").splitlines())
        await pilot.press("b")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        asked = str(pilot.app.screen.query(Static).first().render())
        assert "pidgate quotas block alice --for 2h" in asked
        assert "every new producer id of alice is refused" in asked
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert rate() == 2
        await pilot.press("b")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("y")
        await until(pilot, lambda: rate() == 0)
        await until(pilot, lambda: cells(pilot)[0][2] == "0 E*")
        await pilot.press("u")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("y")
        await until(pilot, lambda: rate() == 2)
        await pilot.press("enter")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        assert "alice: quota 2 per 1h (file)" in str(pilot.app.screen.query(Static).first().render())

    shown(use)


def test_a_gateway_that_does_not_answer_is_named() -> None:
    done = typed("top", "--admin", "127.0.0.1:1")
    assert done.returncode == 2
    assert "127.0.0.1:1 does not answer" in done.stderr


def test_an_hour_is_twelve_signs() -> None:
    assert bars([0] * 55 + [1, 0, 0, 0, 0]) == " " * 11 + "█"
    assert len(bars(list(range(60)))) == 12
    assert bars([]) == ""
