"""Cluster and node that a connection is meant for (ApiVersions v5, KIP-1242) reach only the broker that is it."""

import pytest

from pidgate.gateway.proxy.apis.api import FORWARD, INSTEAD
from pidgate.gateway.proxy.conversation import Conversation
from pidgate.protocol import messages
from pidgate.protocol.headers import peek_request
from pidgate.quota.admission import Admission
from pidgate.quota.settings import Quotas
from pidgate.quota.verdicts import Session
from tests.support.meant_node import api_versions, meant

TAGGED = b"\x01\x07\x02hi"
"""A tagged field of a version to come."""


def talk(*, is_known: bool) -> Conversation:
    made = Conversation(Admission(Quotas(), lambda: 1, 0), Session("alice", "", "10.0.0.1", 1))
    made.node_is_known = lambda: is_known
    return made


@pytest.mark.parametrize("cluster", ["Zm9vYmFy", None])
@pytest.mark.parametrize("tags", [b"\x00", TAGGED])
def test_they_are_cut_out_where_another_broker_may_stand_in(cluster: str | None, tags: bytes) -> None:
    conversation = talk(is_known=False)
    frame = api_versions(5, meant(cluster, 3), tags)
    assert conversation.request(frame, 4, len(frame), 0) is INSTEAD
    assert conversation.instead == api_versions(5, meant(None, -1), tags)


def test_they_pass_to_the_node_whose_address_is_known() -> None:
    frame = api_versions(5, meant("Zm9vYmFy", 3))
    assert talk(is_known=True).request(frame, 4, len(frame), 0) is FORWARD


@pytest.mark.parametrize("version", [3, 4])
def test_earlier_versions_pass_as_they_are(version: int) -> None:
    frame = api_versions(version)
    assert talk(is_known=False).request(frame, 4, len(frame), 0) is FORWARD


def test_the_software_is_read_all_the_same() -> None:
    frame = api_versions(5, meant("Zm9vYmFy", 3))
    assert messages.client_software(frame, peek_request(frame, 4, len(frame))) == ("java", "4.4")
