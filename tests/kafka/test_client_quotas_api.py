"""`producer_ids_rate` over Kafka's own API, through a gateway before brokers that check who may do that.

What the broker itself says is asked past the gateway, on its PLAINTEXT listener, where everybody may do everything.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pidgate.protocol import client_quotas as wire
from tests.support.client_quotas import (
    ALTER,
    ANY,
    DEFAULT,
    DESCRIBE,
    EXACT,
    KEY,
    EntityWords,
    Operations,
    Shown,
    alter,
    describe,
    key_of,
    outcomes_in,
    shown_in,
)
from tests.support.clients.java_quotas import client_quotas
from tests.support.clients.load import Login
from tests.support.frames import produce_one
from tests.support.raw import RawClient, decoded, produce_code, request
from tests.support.running_producers import until
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.jars import NEWEST, OLDEST
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT, ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = pytest.mark.kafka

SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 17, 36, 3
INVALID, POLICY, NOT_AUTHORISED, TIMED_OUT, NOT_ENOUGH_REPLICAS = 42, 44, 31, 7, 19
BYTES = "producer_byte_rate"
ADMIN = Login(username="admin", password="admin-secret")
ALICE = Login(username="alice", password="alice-secret")
BOB = Login(username="bob", password="bob-secret")
CAROL = Login(username="carol", password="carol-secret")

QUOTAS: dict[str, Any] = {
    "mode": "enforce",
    "byte_rates": "brokers",
    "producer_ids": {"window": "1h", "max_throttle": "1s"},
    "users": {"filed": {"producer_ids_rate": 7}},
}
NOBODY: Shown = {}

_numbers = itertools.count(1)
_producer_ids = itertools.count(7_000_000)


def name(stem: str) -> str:
    return f"{stem}-{next(_numbers)}"


@pytest.fixture(
    scope="module",
    params=[NEWEST, OLDEST],
    ids=["newest", "oldest"],
)
def kafka_version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def broker(kafka_version: str) -> Iterator[Cluster]:
    """admin may do everything, bob may set quotas and see them, carol see them, alice neither."""
    users = {login.username: login.password for login in (ADMIN, ALICE, BOB, CAROL)}
    with Cluster(ClusterSpec(version=kafka_version, sasl=True, acl=True, users=users)) as running:
        create_topic(running.bootstrap_servers(), "written")
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers()})
        allowed = [
            _acl(ResourceType.BROKER, "kafka-cluster", "User:bob", AclOperation.ALTER_CONFIGS),
            _acl(ResourceType.BROKER, "kafka-cluster", "User:carol", AclOperation.DESCRIBE_CONFIGS),
            _acl(ResourceType.TOPIC, "written", "User:*", AclOperation.WRITE),
        ]
        for future in admin.create_acls(allowed).values():
            future.result(timeout=30)
        yield running


def _acl(kind: ResourceType, resource: str, principal: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind, resource, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )


@pytest.fixture(scope="module")
def gateway(broker: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(broker.bootstrap_servers(SASL_PLAINTEXT), quotas=QUOTAS) as running:
        yield running


@contextmanager
def logged_in(address: str, login: Login = ADMIN) -> Iterator[RawClient]:
    token = f"\0{login.username}\0{login.password}".encode()
    with RawClient(address) as client:
        client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": token})["error_code"] == 0
        yield client


def change(client: RawClient, *entries: tuple[EntityWords, Operations], **more: Any) -> list[int]:
    """Alter; the error code of each entity, which must be those of the request, in its order."""
    version = more.get("version", 1)
    found = outcomes_in(client.ask(alter(entries, **more)), version=version)
    assert [entity for entity, _ in found] == [key_of(entity) for entity, _ in entries]
    return [code for _, code in found]


def show(client: RawClient, *components: tuple[str, int, str | None], **more: Any) -> Shown:
    return shown_in(client.ask(describe(components, **more)), version=more.get("version", 1))


def of_user(client: RawClient, user: str | None) -> dict[str, float]:
    wanted = ("user", DEFAULT, None) if user is None else ("user", EXACT, user)
    return show(client, wanted, strict=True).get(key_of({"user": user}), {})


@contextmanager
def direct(broker: Cluster) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers()) as client:
        yield client


def clear(client: RawClient, shown: Iterable[frozenset[tuple[str, str | None]]], key: str) -> None:
    if entries := [(list(entity), {key: None}) for entity in shown]:
        assert codes_of_many(client.ask(alter(entries))) == [0] * len(entries)


def codes_of_many(answer: bytes) -> list[int]:
    """The codec of the other tests takes no answer as long as this one."""
    outcomes = wire.read_alter_answer(answer, 0, len(answer), 1).outcomes
    return [outcome.error_code for outcome in outcomes.values()]


# Setting and showing


@pytest.mark.parametrize("version", [0, 1])
def test_ours_stay_here_and_the_other_keys_arrive(
    broker: Cluster, gateway: GatewayProcess, version: int
) -> None:
    both, ours, theirs = ({"user": name(stem)} for stem in ("both", "ours", "theirs"))
    client_id = {"client-id": name("app")}
    with logged_in(gateway.bootstrap_servers) as client, direct(broker) as past:
        assert change(
            client,
            (both, {KEY: 100.0, BYTES: 5000.0}),
            (ours, {KEY: 0.5}),
            (theirs, {BYTES: 7000.0}),
            (client_id, {BYTES: 8000.0}),
            version=version,
        ) == [0, 0, 0, 0]
        at_broker = {
            key_of(both): {BYTES: 5000.0},
            key_of(theirs): {BYTES: 7000.0},
            key_of(client_id): {BYTES: 8000.0},
        }
        mine = {key_of(entity) for entity in (both, ours, theirs, client_id)}
        until(lambda: at_broker.items() <= show(past, version=version).items(), what="the broker lags")
        assert {entity for entity in show(past) if entity in mine} == at_broker.keys()
        everything = show(client, version=version)
        assert {entity: everything[entity] for entity in mine} == {
            **at_broker,
            key_of(both): {KEY: 100.0, BYTES: 5000.0},
            key_of(ours): {KEY: 0.5},
        }
        assert everything[key_of({"user": "filed"})] == {KEY: 7.0}
        # Taken back, one by one.
        assert change(client, (both, {KEY: None}), (ours, {KEY: None}), version=version) == [0, 0]
        assert of_user(client, both["user"]) == {BYTES: 5000.0}
        assert of_user(client, ours["user"]) == {}
        assert change(client, (both, {BYTES: None}), version=version) == [0]
        until(lambda: of_user(past, both["user"]) == {}, what="the broker lags")


# Permission


def test_who_may_not_do_it_is_told_so_and_nothing_happens(broker: Cluster, gateway: GatewayProcess) -> None:
    entity = {"user": name("alice-wants")}
    with (
        logged_in(gateway.bootstrap_servers, ALICE) as alice,
        logged_in(gateway.bootstrap_servers) as admin,
        direct(broker) as past,
    ):
        assert change(alice, (entity, {KEY: 5.0}), ({"user": None}, {KEY: 1.0})) == [NOT_AUTHORISED] * 2
        assert (
            change(alice, (entity, {KEY: 5.0, BYTES: 1000.0}), (ALICE_HERSELF, {KEY: None}))
            == [NOT_AUTHORISED] * 2
        )
        for validate_only in (True, False):
            codes = change(
                alice, (entity, {KEY: -5.0}), (ALICE_HERSELF, {KEY: 9e9}), validate_only=validate_only
            )
            assert codes == [INVALID, NOT_AUTHORISED]
        for components in ([], [("user", ANY, None)], [("user", EXACT, "filed")], [("user", DEFAULT, None)]):
            answer = decoded(DESCRIBE, 1, alice.ask(describe(components)))
            assert (answer["error_code"], answer["entries"] or []) == (NOT_AUTHORISED, [])
        time.sleep(0.3)
        for user in (entity["user"], "alice", None):
            assert of_user(admin, user) == of_user(past, user) == {}


ALICE_HERSELF = {"user": "alice"}


def test_before_it_has_logged_in_nobody_changes_anything(gateway: GatewayProcess) -> None:
    entity = {"user": name("early")}
    with RawClient(gateway.bootstrap_servers) as stranger:
        stranger.send(alter([(entity, {KEY: 5.0})]))
        assert stranger.is_closed()
    with RawClient(gateway.bootstrap_servers) as hasty, logged_in(gateway.bootstrap_servers) as admin:
        # Everything at once, without waiting for the login.
        hasty.send(
            request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            + request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0alice-secret"})
            + alter([(entity, {KEY: 5.0})])
        )
        hasty.frame()
        hasty.frame()
        assert outcomes_in(hasty.frame()) == [(key_of(entity), NOT_AUTHORISED)]
        assert of_user(admin, entity["user"]) == {}
        hasty_bob = {"user": name("early")}
        with RawClient(gateway.bootstrap_servers) as bob:
            bob.send(
                request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                + request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0bob-secret"})
                + alter([(hasty_bob, {KEY: 5.0})])
            )
            bob.frame()
            bob.frame()
            assert outcomes_in(bob.frame()) == [(key_of(hasty_bob), 0)]
        assert who_set_it(gateway, hasty_bob["user"]) == {"User:bob"}


def who_set_it(gateway: GatewayProcess, user: str) -> set[str]:
    """As the gateway's log has it."""
    return {event["set_by"] for event in gateway.log_events("quotas_changed") if event["user"] == user}


# Filters: ours are found where Kafka finds a key of its own that was set on the same entities.

FILTERS: list[list[tuple[str, int, str | None]]] = [
    [],
    *([("user", match_type, match)] for match_type, match in ((ANY, None), (DEFAULT, None), (EXACT, "a"))),
    [("user", EXACT, "nobody")],
    [("user", EXACT, "")],
    [("user", EXACT, None)],
    [("user", ANY, "a")],
    [("user", DEFAULT, "a")],
    [("user", 3, None)],
    [("client-id", ANY, None)],
    [("client-id", EXACT, "a")],
    [("ip", ANY, None)],
    [("group", ANY, None)],
    [("", ANY, None)],
    *(
        [("user", match_type, match), ("client-id", ANY, None)]
        for match_type, match in ((ANY, None), (EXACT, "a"))
    ),
    [("client-id", DEFAULT, None), ("user", ANY, None)],
    [("user", ANY, None), ("ip", ANY, None)],
    [("user", EXACT, "a"), ("user", EXACT, "b")],
    [("user", ANY, None), ("user", ANY, None)],
]


def test_filters_find_ours_as_a_broker_finds_its_own(broker: Cluster, gateway: GatewayProcess) -> None:
    users: list[dict[str, str | None]] = [{"user": "a"}, {"user": "b"}, {"user": "ünï"}, {"user": None}]
    others: list[dict[str, str | None]] = [
        {"user": "a", "client-id": "a"},
        {"user": None, "client-id": None},
        {"client-id": "a"},
        {"client-id": None},
    ]
    with logged_in(gateway.bootstrap_servers) as client, direct(broker) as past:
        clear(client, [entity for entity, keys in show(client).items() if KEY in keys], KEY)
        clear(past, [entity for entity, keys in show(past).items() if BYTES in keys], BYTES)
        until(lambda: show(past) == NOBODY, what="the broker lags")
        past.ask(alter([(entity, {BYTES: 1e9}) for entity in users + others]))
        assert change(client, *((entity, {KEY: 1e9}) for entity in users)) == [0] * 4
        until(lambda: len(show(past)) == 8, what="the broker lags")
        for components, strict, version in itertools.product(FILTERS, (False, True), (0, 1)):
            asked = describe(components, strict=strict, version=version)
            told, at_broker = (decoded(DESCRIBE, version, side.ask(asked)) for side in (client, past))
            where = (components, strict, version)
            assert (told["error_code"], told["error_message"]) == (
                at_broker["error_code"],
                at_broker["error_message"],
            ), where
            if told["error_code"]:
                assert told == at_broker, where
                continue
            found, expected = (show(side, *components, strict=strict) for side in (client, past))
            assert found == {
                entity: {**keys, **({KEY: 1e9} if {kind for kind, _ in entity} == {"user"} else {})}
                for entity, keys in expected.items()
            }, where
        clear(past, [key_of(entity) for entity in users + others], BYTES)
        # Where the broker knows nothing of an entity, ours are still found.
        until(lambda: show(past) == NOBODY, what="the broker lags")
        assert show(client, ("user", ANY, None), strict=True) == {key_of(user): {KEY: 1e9} for user in users}
        clear(client, [key_of(entity) for entity in users], KEY)
        assert change(client, ({"user": "filed"}, {KEY: 7.0})) == [0]


# One connection, one order


def test_what_is_pipelined_is_answered_in_order_and_sees_what_came_before(gateway: GatewayProcess) -> None:
    entity = {"user": name("piped")}
    exact = [("user", EXACT, entity["user"])]
    with logged_in(gateway.bootstrap_servers) as client:
        frames: list[tuple[int, bytes]] = []
        for number in range(4):
            rate = float(number + 1)
            frames += [
                (DESCRIBE, describe(exact, correlation_id=10 * number)),
                (ALTER, alter([(entity, {KEY: rate, BYTES: 1e9})], correlation_id=10 * number + 1)),
                (DESCRIBE, describe(exact, correlation_id=10 * number + 2)),
                (METADATA, request(METADATA, 9, {"topics": []}, correlation_id=10 * number + 3)),
                (ALTER, alter([(entity, {KEY: -1.0})], correlation_id=10 * number + 4)),
                (ALTER, alter([({"user": name("x")}, {"nonsense": 1.0})], correlation_id=10 * number + 5)),
            ]
        client.send(b"".join(frame for _, frame in frames))
        seen: list[float | None] = []
        for number in range(4):
            for step in range(6):
                answer = client.frame()
                assert int.from_bytes(answer[:4], "big") == 10 * number + step
                if step in (0, 2):
                    seen.append(shown_in(answer).get(key_of(entity), {}).get(KEY))
                elif step == 1:
                    assert outcomes_in(answer) == [(key_of(entity), 0)]
                elif step in (4, 5):
                    assert outcomes_in(answer)[0][1] == INVALID
        assert seen == [None, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0]


def test_a_change_of_a_muted_client_waits_for_the_end_of_its_mute(gateway: GatewayProcess) -> None:
    with logged_in(gateway.bootstrap_servers) as client, logged_in(gateway.bootstrap_servers) as other:
        assert change(other, ({"user": "admin"}, {KEY: 0.001})) == [0]
        frames = [produce_one("written", next(_producer_ids)) for _ in range(3)]
        assert NOT_ENOUGH_REPLICAS in [produce_code(client.ask(frame)) for frame in frames]
        sent_s = time.monotonic()
        assert change(client, ({"user": "admin"}, {KEY: None})) == [0]
        assert 0.5 < time.monotonic() - sent_s < 10
        assert of_user(other, "admin") == {}


# Size


# What it does


def new_ids(address: str, login: Login, number: int) -> list[int]:
    """The code that so many ids get which nobody has seen, each on a connection of its own."""
    codes = []
    for _ in range(number):
        with logged_in(address, login) as client:
            codes.append(produce_code(client.ask(produce_one("written", next(_producer_ids)))))
    return codes


# Clients


def test_javas_admin(broker: Cluster, gateway: GatewayProcess) -> None:
    user = name("java")

    def ask(*commands: str) -> list[dict[str, str]]:
        return client_quotas(broker.tools, gateway.bootstrap_servers, list(commands), ADMIN)

    checked, nothing, altered = ask(
        f"validate\tuser={user} {KEY}=100",
        f"describe-strict\tuser={user}",
        f"alter\tuser={user} {KEY}=100 {BYTES}=5000\tuser={user}&client-id=app {KEY}=5\tuser={user}-2 {KEY}=-1"
        f"\tuser={user}-3 nonsense=1",
    )
    assert (checked, nothing) == ({f"user={user}": "ok"}, {})
    assert {entity: result.partition(":")[0] for entity, result in altered.items()} == {
        f"user={user}": "ok",
        f"client-id=app&user={user}": "InvalidRequestException",
        f"user={user}-2": "InvalidRequestException",
        f"user={user}-3": "InvalidRequestException",
    }
    with direct(broker) as past:
        until(lambda: of_user(past, user) == {BYTES: 5000.0}, what="the broker lags")
    assert ask(f"describe\tuser={user}", f"alter\tuser={user} {KEY}=", f"describe-strict\tuser={user}") == [
        {f"user={user}": f"{{{BYTES}=5000.0, {KEY}=100.0}}"},
        {f"user={user}": "ok"},
        {f"user={user}": f"{{{BYTES}=5000.0}}"},
    ]
    refused = client_quotas(
        broker.tools, gateway.bootstrap_servers, [f"alter\tuser={user} {KEY}=1", "describe"], ALICE
    )
    assert [result.partition(":")[0] for answer in refused for result in answer.values()] == [
        "ClusterAuthorizationException"
    ] * 2


# Several gateways
