"""With users redacted, what the topic remembers of a hash is the user's own as soon as the user is seen."""

from __future__ import annotations

from pidgate.events.redaction import UserNames, pseudonym
from pidgate.gateway.state.redacted_users import under_their_names
from pidgate.gateway.state.state_dir.snapshot import SavedUser
from pidgate.quota.producer_ids import ProducerIdQuota
from pidgate.quota.settings import Mode, ProducerIdSettings, Quotas, UserQuota
from tests.support.questions import is_refused, question

QUOTAS = Quotas(
    Mode.ENFORCE, ProducerIdSettings(), UserQuota.per_window(10), {"alice": UserQuota.per_window(1)}
)


def snapshot_of(user: str, producer_id: int) -> SavedUser:
    quota = ProducerIdQuota(QUOTAS, lambda: 1, 0)
    quota.restorer.restore_id(user, producer_id, -1_000, 0)
    (state,) = quota.restorer.export_users(0)
    return SavedUser(state, 5)


def quota_of(names: UserNames, *, is_restored: bool = True) -> ProducerIdQuota:
    return ProducerIdQuota(QUOTAS, lambda: 1, 0, is_restored=is_restored, former_name=names.meet)


def restored(user: str, *, is_restored: bool = True) -> ProducerIdQuota:
    names = UserNames(["user"], ["alice"])
    quota = quota_of(names, is_restored=is_restored)
    name = names.user_of(pseudonym("user", user))
    quota.restorer.restore_id(name, 7, -1_000, 0)
    quota.restorer.restore_tokens(name, -1, 3_600_000_000, 0)
    return quota


def test_what_was_kept_under_the_hash_of_another_is_its_own_once_it_is_seen() -> None:
    state = restored("bob")
    assert state.users() == [pseudonym("user", "bob")]
    assert not is_refused(state.decide(*question("bob", 7), 0))
    assert is_refused(state.decide(*question("bob", 8), 0))
    assert state.users() == ["bob"]


def test_what_the_topic_holds_beyond_a_snapshot_is_added_to_the_user_that_it_names() -> None:
    names = UserNames(["user"])
    state = quota_of(names)
    for found in under_their_names(names, [snapshot_of("bob", 7)]):
        state.restorer.import_user(found.state, 0)
    state.restorer.restore_id(names.user_of(pseudonym("user", "bob")), 8, -1_000, 0)
    state.restorer.restore_tokens(names.user_of(pseudonym("user", "bob")), -1, 3_600_000_000, 0)
    assert [is_refused(state.decide(*question("bob", one), 0)) for one in (7, 8, 9)] == [False, False, True]
    assert state.users() == ["bob"]


def test_a_user_that_is_known_now_has_what_the_snapshot_holds_of_its_hash() -> None:
    names, alice = UserNames(["user"], ["alice"]), pseudonym("user", "alice")
    alone = list(under_their_names(names, [snapshot_of(alice, 7)]))
    assert [(found.state.user, found.written_wall_ms) for found in alone] == [("alice", 5)]
    both = list(under_their_names(names, [snapshot_of("alice", 7), snapshot_of(alice, 8)]))
    assert both == [snapshot_of("alice", 7)]


def test_what_passed_while_restoring_does_not_push_out_what_was_kept_under_the_hash() -> None:
    state = restored("bob", is_restored=False)
    state.decide(*question("bob", 9), 0)
    state.hand_over(0)
    state.end_restoring()
    assert not is_refused(state.decide(*question("bob", 7), 0))
    assert state.status("bob", 0).live_ids == 2
