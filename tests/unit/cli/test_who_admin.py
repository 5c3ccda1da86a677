"""`pidgate who --admin`: from the memory of a running gateway."""

from __future__ import annotations

import json

from pidgate.events.writing import to_json
from pidgate.gateway.clock import wall_ms
from tests.support.quota_site import Gateway, served
from tests.support.who_events import Client, Stream
from tests.unit.cli.test_cli_quotas import typed


def test_it_names_the_users_that_create_ids() -> None:
    now_ms, stream = wall_ms(), Stream()
    for number in range(30):
        stream.producer(Client(user="etl"), now_ms - 600_000 + 2_000 * number, life_ms=1_000)

    def use(address: str, gateway: Gateway) -> None:
        for event in stream.events():
            gateway.recent.add(to_json(event), event.wall_time_ms)
        gateway.recent.whole_from_wall_ms = now_ms - 700_000
        told = typed("who", "--admin", address, "--json")
        assert told.exit_code == 0, told.output
        found = json.loads(told.stdout)
        [user] = found["users"]
        assert (user["user"], user["new_ids"]) == ("etl", 30)
        assert "memory of gw-0" in typed("who", "--admin", address, "--user", "bob").stdout

    served(use)


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    told = typed("who", "--admin", "127.0.0.1:1")
    assert told.exit_code == 2
    assert "127.0.0.1:1 does not answer" in told.stderr
