"""The budget: its halves, a user's share, who waits and who goes ahead."""

from pidgate.gateway.proxy.buffers import BEFORE_LOGIN, LITTLE, BudgetShare, BufferBudget, Half, Purpose
from tests.support.payer import Payer
from tests.support.rules import rule


class Waiters:
    """Waiters of one user each, who take 60 bytes when they are resumed."""

    def __init__(self, half: Half, *owners: str) -> None:
        self.half = half
        self.resumed: list[str] = []
        for owner in owners:
            half.wait(owner, owner, 60, lambda owner=owner: self.go_on(owner))  # type: ignore[misc]

    def go_on(self, owner: str) -> None:
        self.resumed.append(owner)
        self.half.hold(owner, 60)


@rule("One waiting frame at a time is completed, so full memory cannot deadlock.", "memory")
def test_one_waiter_goes_ahead_and_the_others_wait_for_it() -> None:
    half = Half(100)
    half.hold("somebody", 100)
    waiters = Waiters(half, "first", "second", "third")
    assert waiters.resumed == ["first"]
    assert half.may_take("first", "first", 1_000)
    assert not half.may_take("second", "second", 1)
    assert half.is_waited_for
    half.leave("first")
    assert waiters.resumed == ["first", "second"]
    assert half.used_bytes == 220


def test_waiters_resume_as_soon_as_there_is_room_for_them() -> None:
    half = Half(200)
    half.hold("somebody", 200)
    waiters = Waiters(half, "ahead", "second", "gone", "last")
    half.leave("gone")
    half.give_back("somebody", 200)
    assert waiters.resumed == ["ahead", "second"]
    half.give_back("ahead", 60)
    assert waiters.resumed == ["ahead", "second", "last"]
    assert not half.is_waited_for


@rule("A user holds at most as much memory for frames and filters as is left to others.", "memory")
def test_who_finds_no_room_keeps_no_other_user_waiting() -> None:
    half = Half(1_000)
    half.hold("ahead", 900)
    half.wait("a", "ahead", 50, lambda: None)
    resumed = list[str]()
    half.wait("large", "alice", 900, lambda: resumed.append("large"))
    assert half.may_take("small", "bob", 40)
    assert not half.may_take("alice's next", "alice", 40)
    assert resumed == []


def leaves_as_much_to_others(half: Half) -> bool:
    """The rule: whatever a user takes in steps, as much is left free; then others may take half of that."""
    for user in ("mallory", "bob", "carol"):
        while half.may_take(user, user, 10):
            half.hold(user, 10)
    held = [half._held_bytes.get(user, 0) for user in ("mallory", "bob", "carol")]
    return held[0] <= 500 and held[1] >= 200 and held[2] >= 100


@rule("A user holds at most as much memory for frames and filters as is left to others.", "memory")
def test_a_user_holds_no_more_than_is_left_to_others() -> None:
    assert leaves_as_much_to_others(Half(1_000))


def test_before_login_all_connections_together_hold_little() -> None:
    half = Half(1_600)
    assert half.has_room(BEFORE_LOGIN, 1_600 // LITTLE)
    assert not half.has_room(BEFORE_LOGIN, 1_600 // LITTLE + 1)
    assert half.has_room("alice", 800)


def test_many_that_wait_are_resumed_in_a_loop() -> None:
    """Not one by the other: each gives back what it held while it waited."""
    budget = BufferBudget(1_000_000)
    full = BudgetShare(budget, Payer("full"))
    full.hold(Purpose.LARGE_FRAME, 1_000_000)
    shares = [BudgetShare(budget, Payer("alice")) for _ in range(5_000)]
    for share in shares:
        share.hold(Purpose.WAITING, 5)
        share.wait(share, Purpose.LARGE_FRAME, 6, lambda share=share: share.hold(Purpose.WAITING, 0))  # type: ignore[misc]
    full.hold(Purpose.LARGE_FRAME, 0)
    assert not budget.large.is_waited_for
    assert budget.used_bytes == 0


def test_no_table_keeps_a_user_who_holds_nothing() -> None:
    budget = BufferBudget(1_000_000)
    for number in range(100):
        share = BudgetShare(budget, Payer(f"user-{number}"))
        for purpose in Purpose:
            share.hold(purpose, 100)
        for purpose in Purpose:
            share.hold(purpose, 0)
    assert budget.small._held_bytes == budget.large._held_bytes == {}


def test_whose_memory_it_is_is_asked_when_it_begins_to_be_held() -> None:
    budget, payer = BufferBudget(1_000_000), Payer("before")
    share = BudgetShare(budget, payer)
    share.hold(Purpose.HELD, 10)
    payer.name = "after"
    share.hold(Purpose.TO_CLIENT, 10)
    assert budget.large._held_bytes == {"before": 20}
    share.hold(Purpose.HELD, 0)
    share.hold(Purpose.TO_CLIENT, 0)
    share.hold(Purpose.HELD, 10)
    assert budget.large._held_bytes == {"after": 10}
