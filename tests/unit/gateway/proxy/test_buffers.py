"""The budget pauses who comes when it is spent, and lets them go on in turn."""

from pidgate.gateway.proxy.buffers import BufferBudget


class Waiters:
    """Owners that take 60 bytes each when they are resumed."""

    def __init__(self, budget: BufferBudget, *names: str) -> None:
        self.budget = budget
        self.resumed: list[str] = []
        for name in names:
            budget.wait(name, lambda name=name: self.go_on(name))  # type: ignore[misc]

    def go_on(self, name: str) -> None:
        self.resumed.append(name)
        self.budget.take(60)


def test_one_waiter_goes_ahead_and_the_others_wait_for_it() -> None:
    budget = BufferBudget(100)
    budget.take(100)
    waiters = Waiters(budget, "first", "second", "third")
    assert waiters.resumed == ["first"]
    assert not budget.must_wait("first")
    assert budget.must_wait("second")
    assert budget.is_waited_for
    budget.leave("first")
    assert waiters.resumed == ["first", "second"]
    assert budget.used_bytes == 220


def test_waiters_resume_in_order_as_soon_as_there_is_room() -> None:
    budget = BufferBudget(100)
    budget.take(100)
    waiters = Waiters(budget, "ahead", "second", "gone", "last")
    budget.leave("gone")
    budget.give_back(100)
    assert waiters.resumed == ["ahead", "second"]
    assert budget.used_bytes == 120
    budget.give_back(60)
    assert waiters.resumed == ["ahead", "second", "last"]
    assert not budget.is_waited_for
