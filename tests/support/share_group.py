"""A member of a share group (KIP-932) that is to fetch by hand."""

from __future__ import annotations

import time
from typing import Any, Final

from tests.support.raw import RawClient

_INCREMENTAL_ALTER_CONFIGS: Final = 44
_HEARTBEAT: Final = 76
_FIND_COORDINATOR: Final = 10
_GROUP: Final = 32
"""The resource type."""


def join(broker: RawClient, group: str, member_id: str, topic: str) -> None:
    """Join the group, which begins with the topic's first record, until it has an assignment.

    At the broker itself: what is shared out does not depend on who asks. Raises TimeoutError.
    """
    reset = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    body: dict[str, Any] = {
        "resources": [{"resource_type": _GROUP, "resource_name": group, "configs": [reset]}],
        "validate_only": False,
    }
    answer = broker.call(_INCREMENTAL_ALTER_CONFIGS, 1, body)
    assert answer["responses"][0]["error_code"] == 0, answer
    member_epoch = 0
    for _ in range(200):
        heartbeat = {
            "group_id": group,
            "member_id": member_id,
            "member_epoch": member_epoch,
            "rack_id": None,
            "subscribed_topic_names": [topic] if member_epoch == 0 else None,
        }
        answer = broker.call(_HEARTBEAT, 1, heartbeat)
        if answer["error_code"] == 0:
            member_epoch = answer["member_epoch"]
            if answer["assignment"] and answer["assignment"]["topic_partitions"]:
                return
        else:
            # The coordinators' topic is made when somebody asks for the first time.
            broker.call(_FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
        time.sleep(0.05)
    raise TimeoutError(f"nothing was assigned: {answer}")
