"""The connections of this gateway, and the brokers that they lead to."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from pidgate.gateway.present.explaining import Moment
from pidgate.gateway.present.waits import wait_of
from pidgate.quota.entities import User, shown

if TYPE_CHECKING:
    from pidgate.gateway.proxy.connection import Connection, Shared

CONNECTIONS_PER_TURN: Final = 200
"""Less than 1 ms."""
SILENT_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker. `is_up` None: not asked yet; `answer_ms`: of its last answer to the gateway's own question.

    `silent`: connections that have waited for an answer for SILENT_MS, long polls not counted.
    """

    node_id: int
    address: str
    is_up: bool | None
    connections: int
    in_flight: int
    answer_ms: float | None
    silent: int


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A connection. `bytes_per_s` None: not measured yet; `throttle_ms`: left of its mute; `ids`: admitted on it."""

    connection_id: int
    user: User
    name: str
    client_id: str
    address: str
    library: str
    listener: str
    node_id: int | None
    state: str
    why: str
    bytes_per_s: float | None
    throttle_ms: int
    open_ms: int
    idle_ms: int
    in_flight: int
    ids: int


@dataclass(frozen=True, slots=True)
class ConnectionRows:
    """The first rows of a table, and the brokers that all connections lead to."""

    rows: list[ConnectionRow]
    total: int
    matching: int
    brokers: list[BrokerRow]


class Connections:
    """Collects the rows, in turns with the traffic."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._seen: dict[int, int] = {}
        """Bytes of each connection at the last measurement."""
        self._seen_ms = 0
        self._rates: dict[int, float] = {}

    async def rows(
        self,
        moment: Moment,
        *,
        most: int,
        find: str = "",
        sort: str = "throttle",
        only_user: User | None = None,
    ) -> ConnectionRows:
        """Return the connections whose user, client id or address holds `find`, sorted, and the brokers.

        `only_user`: those of this user alone.
        """
        wanted, now_ms = find.casefold(), moment.now_ms
        keys: list[tuple[float | str, int, Connection]] = []
        of_node: Counter[int | None] = Counter()
        in_flight: Counter[int | None] = Counter()
        silent: Counter[int | None] = Counter()
        seen: dict[int, int] = {}
        connections = list(self._shared.connections)
        for number, connection in enumerate(connections, 1):
            if number % CONNECTIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            client = connection.client
            node_id = connection.context.node_id
            of_node[node_id] += 1
            in_flight[node_id] += len(connection.session.context.in_flight)
            silent[node_id] += _is_silent(connection, now_ms)
            if connection.recorder is not None:
                seen[client.connection_id] = connection.recorder.bytes_in + connection.recorder.bytes_out
            if (wanted and not _holds(connection, wanted)) or only_user not in (None, client.user):
                continue
            keys.append((self._key(sort, connection, now_ms), number, connection))
        self._measure(seen, now_ms)
        keys.sort(key=itemgetter(0, 1))
        rows = [self._row(connection, now_ms) for *_, connection in keys[:most]]
        return ConnectionRows(rows, len(connections), len(keys), self._brokers(of_node, in_flight, silent))

    def _measure(self, seen: dict[int, int], now_ms: int) -> None:
        """Measure bytes per second since the last measurement, a second ago or more."""
        passed_ms = now_ms - self._seen_ms
        if passed_ms < 1_000:
            return
        before = self._seen if passed_ms <= 60_000 else {}
        self._rates = {
            key: (nbytes - before[key]) * 1_000 / passed_ms for key, nbytes in seen.items() if key in before
        }
        self._seen, self._seen_ms = seen, now_ms

    def _key(self, sort: str, connection: Connection, now_ms: int) -> float | str:
        client, age = connection.client, connection.age
        if sort == "user":
            return client.user.casefold()
        if sort == "bytes":
            return -self._rates.get(client.connection_id, 0.0)
        if sort == "open":
            return age.opened_ms
        if sort == "idle":
            return age.heard_ms
        if sort == "ids":
            return -len(client.admitted)
        return -max(0, connection.session.context.muted_until_ms - now_ms)

    def _row(self, connection: Connection, now_ms: int) -> ConnectionRow:
        client, context, age = connection.client, connection.session.context, connection.age
        found = wait_of(connection, now_ms)
        name = "(not logged in)" if connection.awaits_login else shown(client.user)
        return ConnectionRow(
            connection_id=client.connection_id,
            user=client.user,
            name=name,
            client_id=client.client_id,
            address=client.address,
            library=" ".join(context.software).strip(),
            listener=connection.context.listener_name,
            node_id=connection.context.node_id,
            state=connection.life.name.lower(),
            why="" if found is None else str(found.why),
            bytes_per_s=self._rates.get(client.connection_id),
            throttle_ms=max(0, context.muted_until_ms - now_ms),
            open_ms=now_ms - age.opened_ms,
            idle_ms=0 if age.was_heard or not age.heard_ms else now_ms - age.heard_ms,
            in_flight=len(context.in_flight),
            ids=len(client.admitted),
        )

    def _brokers(
        self, of_node: Counter[int | None], in_flight: Counter[int | None], silent: Counter[int | None]
    ) -> list[BrokerRow]:
        counters = self._shared.counters
        up = counters.broker_up
        rows = []
        for node_id, (host, port) in sorted(self._shared.nodes.last_addresses.items()):
            is_up = bool(up[node_id]) if node_id in up else None
            answer_s = counters.broker_answer_s.get(node_id)
            rows.append(
                BrokerRow(
                    node_id,
                    f"{host}:{port}",
                    is_up,
                    of_node[node_id],
                    in_flight[node_id],
                    None if answer_s is None else round(answer_s * 1_000, 1),
                    silent[node_id],
                )
            )
        return rows


def _is_silent(connection: Connection, now_ms: int) -> bool:
    age = connection.age
    is_quiet = not age.was_heard and 0 < age.heard_ms <= now_ms - SILENT_MS
    return is_quiet and connection.session.context.in_flight.has_prompt_answers


def _holds(connection: Connection, wanted: str) -> bool:
    client = connection.client
    return any(wanted in text.casefold() for text in (client.user, client.client_id, client.address))
