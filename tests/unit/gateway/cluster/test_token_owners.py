"""Owners of delegation tokens: learnt once, and bounded."""

from pidgate.gateway.cluster.token_owners import TokenOwners
from pidgate.names import LONGEST_NAME, bounded


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
