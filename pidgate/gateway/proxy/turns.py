"""Time of the event loop, shared by accounts: a user, or all connections before a login. PURE.

An account does 10 ms of work in a turn of the loop (protocol/work.py). Further reads and wake-ups of its connections
wait. Each turn serves one account that waits, in a round, and within the account its addresses, and their connections,
in turn. So a client waits behind one slice of every other account, however many connections each of them has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidgate.protocol.work import JUDGED_PER_TURN

SLICE: Final = JUDGED_PER_TURN // 8
"""Work of one connection while others of its account wait."""


class Account:
    """The time of one account, and its bytes that are not counted for its user yet.

    `spent`: its work since `round`, in the units of JUDGED_PER_TURN.
    """

    __slots__ = ("bytes_in", "bytes_out", "connections", "most", "name", "round", "spent", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.spent = 0
        self.most = JUDGED_PER_TURN
        """Value of `spent` at which the present read or wake-up has to end."""
        self.round = 0
        self.waiting: dict[str, dict[object, Callable[[], None]]] = {}
        """Callbacks that continue, by address, in order. The key is the waiting object."""

    @property
    def is_over(self) -> bool:
        """Return whether the present read or wake-up has to leave the rest for another turn."""
        return self.spent >= self.most

    def add(self, address: str, who: object, go_on: Callable[[], None]) -> None:
        self.waiting.setdefault(address, {})[who] = go_on

    def take_next(self) -> Callable[[], None]:
        """Remove and return the callback that is next, and move its address to the end."""
        address = next(iter(self.waiting))
        alike = self.waiting.pop(address)
        go_on = alike.pop(next(iter(alike)))
        if alike:
            self.waiting[address] = alike
        return go_on


class Turns:
    """The accounts of a process, and the round of those that wait."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        count_bytes: Callable[[str, int, int], None] = lambda _name, _bytes_in, _bytes_out: None,
    ) -> None:
        """`call_soon`: call in the next turn of the event loop. `count_bytes`: count bytes of an account's user."""
        self._count_bytes = count_bytes
        self._call_soon = call_soon
        self._accounts: dict[str, Account] = {}
        self._waiting: dict[Account, None] = {}
        """Accounts that wait, the next one first."""
        self._round = 1
        self._now_ms = 0

    # ---- accounts --------------------------------------------------------------------------------------

    def join(self, name: str) -> Account:
        """Return the account of one more connection. `leave` it once."""
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(name)
        account.connections += 1
        return account

    def leave(self, account: Account) -> None:
        account.connections -= 1
        if not account.connections:
            self._count(account)
            del self._accounts[account.name]

    def count_bytes(self) -> None:
        """Count the bytes of all accounts for their users."""
        for account in list(self._accounts.values()):
            self._count(account)

    def _count(self, account: Account) -> None:
        bytes_in, bytes_out = account.bytes_in, account.bytes_out
        if bytes_in or bytes_out:
            account.bytes_in = account.bytes_out = 0
            self._count_bytes(account.name, bytes_in, bytes_out)

    # ---- turns -----------------------------------------------------------------------------------------

    def has_time(self, account: Account, now_ms: int) -> bool:
        """Return whether a read or a wake-up of the account may be worked on now, up to `account.most`.

        `now_ms` is read once in a turn of the loop. While accounts wait, a round lasts until each was served.
        """
        if now_ms != self._now_ms and not self._waiting:
            self._now_ms = now_ms
            self._round += 1
        if account.round != self._round and not account.waiting:
            account.round = self._round
            account.spent = 0
            account.most = JUDGED_PER_TURN
        return not account.is_over

    def wait(self, account: Account, address: str, who: object, go_on: Callable[[], None]) -> None:
        """Call `go_on` when it is the turn of `who`. It works up to `account.most`, and may wait again."""
        account.add(address, who, go_on)
        if not self._waiting:
            self._call_soon(self._serve)
        self._waiting.setdefault(account)

    def _serve(self) -> None:
        """Give the first account that waits its time."""
        account = next(iter(self._waiting))
        if account.round == self._round:
            self._round += 1
        account.round = self._round
        account.spent = 0
        try:
            while account.waiting and account.spent < JUDGED_PER_TURN:
                go_on = account.take_next()
                account.most = (
                    min(account.spent + SLICE, JUDGED_PER_TURN) if account.waiting else JUDGED_PER_TURN
                )
                go_on()
        finally:
            account.most = JUDGED_PER_TURN
            del self._waiting[account]
            if account.waiting:
                self._waiting[account] = None
            if self._waiting:
                self._call_soon(self._serve)
