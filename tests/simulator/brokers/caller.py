"""A caller without a connection: any API by its number, from a plain dictionary, for tests of the cluster. Pure."""

from __future__ import annotations

from typing import Any

from tests.simulator.brokers.cluster import ModelCluster
from tests.simulator.brokers.replies import Reply
from tests.simulator.brokers.sessions import Session
from tests.support import raw


class Caller:
    """Asks one node; `now_ms` is the time of its requests. The same methods as tests.support.raw.RawClient has."""

    def __init__(self, cluster: ModelCluster, node_id: int = 1, listener: str = "PLAINTEXT") -> None:
        self.cluster = cluster
        self.session: Session = cluster.connect(node_id, listener)
        self.now_ms = cluster.timers.now_ms

    def call(self, api_key: int, version: int, body: raw.Body | None = None) -> dict[str, Any]:
        """Return the decoded answer. Raises Closed, ClosedAfter."""
        return raw.decoded(api_key, version, self.ask(raw.request(api_key, version, body)))

    def ask(self, framed: bytes) -> bytes:
        """Send a framed request; return the answer's frame, without its size prefix. Raises Closed, ClosedAfter."""
        answer = self.cluster.answer(self.session, framed[4:], self.now_ms)
        assert answer is not None
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        return answer[4:]

    def hand_over(self, framed: bytes) -> Reply:
        """Send a framed request whose answer may come later, or never. Raises Closed, ClosedAfter."""
        return self.cluster.handle(self.session, framed[4:], self.now_ms)
