"""The budget pauses who comes when it is spent, and lets them go on in turn."""

from gateway.buffers import BufferBudget


def test_waiters_resume_in_order_as_soon_as_there_is_room() -> None:
    budget = BufferBudget(100)
    resumed: list[str] = []

    def go_on(name: str) -> None:
        resumed.append(name)
        budget.take(60)

    budget.take(100)
    assert budget.is_full
    for name in ("first", "second", "third"):
        budget.wait(name, lambda name=name: go_on(name))  # type: ignore[misc]
    budget.leave("second")
    budget.give_back(40)
    assert resumed == ["first"]
    budget.give_back(60)
    assert resumed == ["first", "third"]
    assert budget.used_bytes == 120
