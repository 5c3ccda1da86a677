"""Clients that wait, each for a reason of its own, at a gateway with quotas for all of them."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import ExitStack
from typing import Any, Final

from pidgate.protocol.messages import INIT_PRODUCER_ID
from tests.support.byte_quotas import FetchOf, fetch_head, fill, produce_of_size
from tests.support.frames import ONE_RECORD, framed, produce_request, record_batch
from tests.support.raw import RawClient, decoded, produce_code, request
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.topics import create_topic

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
REFUSED: Final = 19
BYTE_RATE: Final = 20_000
DEBT_S: Final = 20
IN_DEBT: Final = BYTE_RATE * (10 + DEBT_S)
"""Bytes of one request: a window, and the debt."""
THROTTLE_S: Final = 15
WITHIN_MS: Final = 2_000
QUOTAS: dict[str, Any] = {
    "mode": "enforce",
    "producer_ids": {
        "window": "10h",
        "max_throttle": f"{THROTTLE_S}s",
        "refuse_init_producer_id": True,
    },
    "cluster_producer_ids_rate": 12,
    "users": {
        "alice": {
            "producer_ids_rate": 4,
            "transactional_ids_rate": 1,
            "clients": {
                "part": {"producer_ids_rate": 1},
                "<default>": {"producer_byte_rate": BYTE_RATE, "consumer_byte_rate": BYTE_RATE},
            },
        },
        "bob": {"producer_ids_rate": 0},
    },
}


class WaitingClients:
    """A gateway with a topic, and its clients, whose connections stay open."""

    def __init__(self, cluster: Cluster, gateway: GatewayProcess, stack: ExitStack, topic: str) -> None:
        self.gateway = gateway
        self._stack = stack
        self.topic = create_topic(cluster.bootstrap_servers(), topic)
        fill(cluster.bootstrap_servers(), self.topic, 700_000)
        self.software = "raw", "1"
        """What clients call themselves from now on."""
        self._ids = iter(range(700_000, 800_000))

    def client(self, user: str, client_id: str) -> RawClient:
        """Log in; the answer to the login may come late."""
        client = self._stack.enter_context(RawClient(self.gateway.bootstrap_servers))
        token = f"\0{user}\0{user}-secret".encode()
        name, version = self.software
        named = {"client_software_name": name, "client_software_version": version}
        client.ask(request(API_VERSIONS, 3, named, client_id=client_id))
        client.ask(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, client_id=client_id))
        client.ask(request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, client_id=client_id))
        return client

    def produce(self, producer_id: int, client_id: str, sequence: int = 0) -> bytes:
        batch = record_batch(producer_id, 0, sequence, records=ONE_RECORD)
        return framed(produce_request(9, [(self.topic, [(0, batch)])], client_id=client_id))

    def refused(self, user: str, client_id: str) -> int:
        """Bring new ids until one is refused; return it."""
        client = self.client(user, client_id)
        for producer_id in self._ids:
            code = produce_code(client.ask(self.produce(producer_id, client_id)))
            if code == REFUSED:
                return producer_id
            assert code == 0
        raise AssertionError("never reached")

    def out_of_order(self) -> None:
        producer_id = self.refused("alice", "first")
        assert (
            produce_code(self.client("alice", "later").ask(self.produce(producer_id, "later", 1))) == REFUSED
        )

    def starts(self, user: str, client_id: str) -> None:
        """Get a producer id, as a producer does before its first batch."""
        client, body = (
            self.client(user, client_id),
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
        )
        asked = request(INIT_PRODUCER_ID, 1, body, client_id=client_id)
        while decoded(INIT_PRODUCER_ID, 1, client.ask(asked))["error_code"]:
            time.sleep(0.1)  # a fresh broker has no ids yet

    def asks_for_an_id(self, client_id: str, *names: str | None) -> None:
        client = self.client("alice", client_id)
        for name in names:
            body = {"transactional_id": name, "transaction_timeout_ms": 60_000}
            answer = decoded(
                INIT_PRODUCER_ID, 1, client.ask(request(INIT_PRODUCER_ID, 1, body, client_id=client_id))
            )
        assert answer["throttle_time_ms"] > 0, answer

    def in_debt(self) -> None:
        client = self.client("alice", "big")
        assert produce_code(client.ask(produce_of_size(IN_DEBT, 9, self.topic, None, "big"))) == 0

    def behind_the_debt(self) -> None:
        self.client("alice", "big").send(produce_of_size(1_000, 9, self.topic, None, "big"))

    def fetches(self) -> None:
        client = self.client("alice", "reads")
        wanted = FetchOf(topic=self.topic, topic_id=None, client_id="reads").framed(11)
        while (fetch_head(client.ask(wanted), 11).throttle_time_ms or 0) < 2 * WITHIN_MS:
            pass

    def connects_too_often(self) -> None:
        for number in range(12):
            client = self.client("admin", f"many-{number}")
        client.send(request(METADATA, 1, {"topics": []}, client_id="many-11"))

    def told(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.gateway.admin_url}/v1/explain", timeout=5) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
