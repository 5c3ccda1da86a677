"""Owners of delegation tokens: learnt once, and bounded."""

from pidgate.gateway.cluster.token_owners import NOTHING_KNOWN, TokenOwners
from pidgate.names import LONGEST_NAME, bounded


def test_learnt_owners_are_known() -> None:
    owners = TokenOwners()
    owners.learn_tokens([("id-1", "alice"), ("id-2", "bob")])
    owners.learn_tokens([("id-2", "bob")])
    assert [owners.owner_of(token_id) for token_id in ("id-1", "id-2", "id-4")] == ["alice", "bob", None]


def test_those_that_were_used_the_longest_ago_give_way() -> None:
    owners = TokenOwners(3)
    owners.learn_tokens((f"id-{number}", "alice") for number in range(3))
    owners.owner_of("id-0")
    owners.learn_tokens([("id-3", "alice")])
    assert [token_id for token_id, _ in owners.known_tokens()] == ["id-2", "id-0", "id-3"]


def test_names_are_bounded_as_they_are_everywhere() -> None:
    owners = TokenOwners()
    long = (LONGEST_NAME + 1) * "a"
    owners.learn_tokens([(long, long)])
    assert owners.owner_of(bounded(long)) == bounded(long)


def test_who_looks_at_no_answers_keeps_nothing() -> None:
    NOTHING_KNOWN.learn_tokens([("id-1", "alice")])
    assert NOTHING_KNOWN.owner_of("id-1") is None
    assert NOTHING_KNOWN.known_tokens() == []
