"""Who is next among those that came back: places against a brute-force simulation, fairness, giving up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pidgate.quota.retry_queue import RetryQueue
from tests.support.rules import rule


def come_back(
    queue: RetryQueue, producer_id: int, address: str, client_id: str = "app", now_ms: int = 0
) -> bool:
    return queue.enqueue(producer_id, address, client_id, first_refused_ms=0, now_ms=now_ms)


def simulated_order(rotation: list[tuple[str, list[tuple[str, list[int]]]]]) -> list[int]:
    """Serves head after head: the first client of the first address, then both go to the end of their
    rotations.
    """
    lanes = [(address, [(client, list(ids)) for client, ids in lane]) for address, lane in rotation]
    order = []
    while lanes:
        address, lane = lanes.pop(0)
        client, ids = lane.pop(0)
        order.append(ids.pop(0))
        if ids:
            lane.append((client, ids))
        if lane:
            lanes.append((address, lane))
    return order


@given(
    st.lists(
        st.tuples(st.sampled_from("ABCD"), st.sampled_from("wxyz"), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.data(),
)
def test_places_are_those_of_a_simulation_whatever_was_served_before(
    arrivals: list[tuple[str, str, bool]], data: st.DataObject
) -> None:
    queue = RetryQueue(1_000)
    rotation: list[tuple[str, list[tuple[str, list[int]]]]] = []

    def lane_of(address: str) -> list[tuple[str, list[int]]]:
        return next(lane for name, lane in rotation if name == address)

    for producer_id, (address, client_id, serve) in enumerate(arrivals):
        assert come_back(queue, producer_id, address, client_id)
        if all(name != address for name, _ in rotation):
            rotation.append((address, []))
        lane = lane_of(address)
        if all(name != client_id for name, _ in lane):
            lane.append((client_id, []))
        next(ids for name, ids in lane if name == client_id).append(producer_id)
        if serve:
            waiting = [(a, c, one) for a, lane in rotation for c, ids in lane for one in ids]
            served_address, served_client, served = data.draw(st.sampled_from(waiting))
            queue.remove(served)
            lane = lane_of(served_address)
            ids = next(ids for name, ids in lane if name == served_client)
            ids.remove(served)
            lane[:] = [one for one in lane if one[0] != served_client]
            if ids:
                lane.append((served_client, ids))
            rotation[:] = [one for one in rotation if one[0] != served_address]
            if lane:
                rotation.append((served_address, lane))
    order = simulated_order(rotation)
    assert len(queue.waiting) == len(order)
    assert [queue.place_of(producer_id) for producer_id in order] == list(range(len(order)))


@rule("Returning ids are served before new ones, in turns by address.", "cost")
def test_twenty_threads_of_one_machine_do_not_keep_another_waiting() -> None:
    queue = RetryQueue(1_000)
    for thread in range(20):
        for number in range(10):
            come_back(queue, thread * 100 + number, "rogue", f"producer-{thread}")
    come_back(queue, 9_999, "healthy")
    assert queue.place_of(9_999) == 1


def test_within_one_address_client_ids_take_turns() -> None:
    queue = RetryQueue(1_000)
    for number in range(50):
        come_back(queue, number, "nat", "rogue")
    come_back(queue, 100, "nat", "healthy")
    assert queue.place_of(100) == 1
    queue.remove(0)
    assert queue.place_of(100) == 0


def test_a_full_queue_leaves_further_ids_outside() -> None:
    queue = RetryQueue(2)
    assert [come_back(queue, number, "a") for number in range(3)] == [True, True, False]
    assert come_back(queue, 0, "a")
    assert len(queue.waiting) == 2


def test_who_is_not_seen_any_more_gave_up() -> None:
    queue = RetryQueue(10)
    for number in range(3):
        come_back(queue, number, "a", now_ms=number)
    come_back(queue, 0, "a", now_ms=50)
    gone = queue.drop_unseen_since(2)
    assert [(waiting.producer_id, waiting.attempts) for waiting in gone] == [(1, 2)]
    assert queue.place_of(0) == 0
    assert queue.place_of(2) == 1
    assert [waiting.producer_id for waiting in queue.drop_unseen_since(51)] == [2, 0]
    assert queue.drop_unseen_since(51) == []
    assert queue.oldest_first_refused_ms() is None


def test_an_id_seen_again_keeps_its_place_and_the_start_of_its_wait() -> None:
    queue = RetryQueue(10)
    queue.enqueue(1, "a", "x", first_refused_ms=5, now_ms=10)
    queue.enqueue(2, "a", "x", first_refused_ms=3, now_ms=11)
    queue.enqueue(1, "b", "y", first_refused_ms=12, now_ms=12)
    assert queue.place_of(1) == 0
    assert queue.oldest_first_refused_ms() == 3
    waiting = queue.waiting[1]
    assert (waiting.first_refused_ms, waiting.attempts) == (5, 3)


@rule("A full retry queue makes room for shorter lanes.", "memory")
def test_a_full_queue_makes_room_for_a_shorter_lane() -> None:
    queue = RetryQueue(6)
    for producer_id in range(6):
        assert come_back(queue, producer_id, "rogue", f"client-{producer_id % 2}")
    assert not come_back(queue, 6, "rogue", "client-0"), "its own lane is the longest, its line too"
    assert come_back(queue, 10, "healthy")
    assert (len(queue.waiting), 4 in queue.waiting, queue.place_of(10)) == (6, False, 1)
    assert come_back(queue, 11, "healthy")
    assert come_back(queue, 12, "healthy")
    assert not come_back(queue, 13, "healthy"), "3 beside 3 would push each other out in turn"
    assert not come_back(queue, 4, "rogue", "client-0")


def test_within_a_lane_the_longest_line_makes_room() -> None:
    queue = RetryQueue(4)
    for producer_id in range(4):
        come_back(queue, producer_id, "nat", "rogue")
    assert come_back(queue, 10, "nat", "healthy")
    assert (3 in queue.waiting, queue.place_of(10)) == (False, 1)


def test_without_room_at_all_nobody_is_in_line() -> None:
    assert not come_back(RetryQueue(0), 1, "a")


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ABC"), st.sampled_from("xyz"))))
def test_no_lane_is_kept_out_by_one_that_is_longer_by_two(arrivals: list[tuple[int, str, str]]) -> None:
    queue = RetryQueue(5)
    for producer_id, address, client_id in arrivals:
        is_in_line = come_back(queue, producer_id, address, client_id)
        assert len(queue.waiting) <= 5
        assert is_in_line is (producer_id in queue.waiting)
        sizes = {name: lane.size for name, lane in queue._lanes.items()}
        assert is_in_line or max(sizes.values()) <= sizes.get(address, 0) + 1
        places = sorted(queue.place_of(one) for one in queue.waiting)
        assert places == list(range(len(queue.waiting)))


class _FirstComeFirstKept(RetryQueue):
    def _make_room(self, address: str, client_id: str) -> bool:
        """Mutant: who is in line stays there, whoever comes."""
        return False


def _healthy_place(queue: RetryQueue) -> int | None:
    for producer_id in range(1_200):
        come_back(queue, producer_id, "rogue", f"producer-{producer_id}")
    return queue.place_of(5_000) if come_back(queue, 5_000, "healthy") else None


@rule("A full retry queue makes room for shorter lanes.", "memory")
def test_1200_rogue_ids_do_not_keep_a_healthy_process_out() -> None:
    assert _healthy_place(RetryQueue(1_000)) == 1
    assert _healthy_place(_FirstComeFirstKept(1_000)) is None


@rule(
    "A waiting id that does not come back is passed over 2 s after its throttle, and keeps its place.",
    "mutes",
)
def test_a_late_id_is_passed_over_and_keeps_its_place() -> None:
    queue = RetryQueue(10)
    for producer_id in (1, 2, 3):
        assert come_back(queue, producer_id, "10.0.0.1")
        queue.note_throttle(producer_id, 10_000)
    assert come_back(queue, 2, "10.0.0.1", now_ms=11_999)
    queue.pass_over_late(11_999)
    assert queue.place_of(2) == 1
    assert come_back(queue, 2, "10.0.0.1", now_ms=12_000)
    queue.pass_over_late(12_000)
    assert queue.place_of(2) == 0
    assert list(queue.waiting) == [1, 3, 2], "those that are late wait on"
    assert come_back(queue, 1, "10.0.0.1", now_ms=13_000)
    assert (queue.place_of(1), queue.place_of(2)) == (0, 1)
    queue.remove(2)
    assert [gone.producer_id for gone in queue.drop_unseen_since(12_999)] == [3]


def test_a_full_queue_gives_the_place_of_a_late_id_away() -> None:
    queue = RetryQueue(2)
    for producer_id in (1, 2):
        assert come_back(queue, producer_id, "10.0.0.1")
    assert not come_back(queue, 3, "10.0.0.1")
    assert come_back(queue, 2, "10.0.0.1", now_ms=5_000)
    queue.pass_over_late(5_000)
    assert come_back(queue, 3, "10.0.0.1", now_ms=5_000)
    assert list(queue.waiting) == [2, 3]
