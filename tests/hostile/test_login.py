"""Whoever is authenticated has a quota: no way of logging in sheds it."""

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pidgate.protocol import codec
from tests.hostile.attack import (
    HOSTILE_USER,
    WITH_SASL,
    Attack,
    Case,
    Delivery,
    Place,
    Target,
    cases,
    versions_of,
)
from tests.hostile.attacker import SASL_AUTHENTICATE, Attacker, authenticate, handshake, plain_token
from tests.hostile.site import HONEST_USER, Site, carry_out, running_site
from tests.support.raw import RawClient, request
from tests.support.rules import rule
from tests.support.scram import scram_login
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT

CREATE_DELEGATION_TOKEN = 38
MANY = 40
MANY_LOGINS = 5
EACH = 4

ATTACKS = [
    Attack(
        name="tokens behind a login",
        frames=lambda target: [
            handshake(),
            *MANY * [authenticate(plain_token(HOSTILE_USER), target.version)],
            *(target.produce() for _ in range(20)),
        ],
        versions=versions_of(SASL_AUTHENTICATE),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="a login with more behind the password",
        frames=lambda target: [
            handshake(),
            authenticate(plain_token(HOSTILE_USER) + b"\0more", target.version),
            *(target.produce() for _ in range(20)),
        ],
        versions=versions_of(SASL_AUTHENTICATE),
        places=WITH_SASL,
        user=None,
    ),
]

LARGE = 10_000_000
MEDIUM = 400_000
"""Below what a frame may be before the login."""


def _scram_first(name_bytes: int) -> bytes:
    return b"n,,n=" + name_bytes * b"a" + b",r=abc"


BEFORE_LOGIN = [
    Attack(
        name="a Produce before the login",
        frames=lambda target: [target.produce() for _ in range(20)],
        places=WITH_SASL,
        user=None,
    ),
    *(
        Attack(
            name=f"a SCRAM name of {size} bytes",
            frames=lambda target, size=size: [  # type: ignore[misc]
                handshake("SCRAM-SHA-256"),
                authenticate(_scram_first(size), target.version),
            ],
            versions=versions_of(SASL_AUTHENTICATE),
            places=WITH_SASL,
            user=None,
        )
        for size in (LARGE, MEDIUM)
    ),
    Attack(
        name="a PLAIN token of NULs",
        frames=lambda target: [handshake(), authenticate(bytes(MEDIUM), target.version)],
        versions=versions_of(SASL_AUTHENTICATE),
        places=WITH_SASL,
        user=None,
    ),
    Attack(
        name="a long PLAIN token behind a login",
        frames=lambda target: [handshake(), authenticate(bytes(LARGE), target.version)],
        versions=versions_of(SASL_AUTHENTICATE),
        places=WITH_SASL,
    ),
]

NO_TOKENS = (",TOKENAUTH=true", ",tokenauth=true,tokenauth=false", ",x=tokenauth")


def _by_scram(extensions: str) -> Callable[[Attacker], None]:
    def log_in(attacker: Attacker) -> None:
        assert scram_login(attacker, HOSTILE_USER, f"{HOSTILE_USER}-secret", extensions) == 0

    return log_in


EXTENSIONS = [
    Attack(
        name=f"a SCRAM extension that makes no token, {extensions[1:]}",
        frames=lambda target: [target.produce(version=target.version) for _ in range(20)],
        versions=(9, 3, 13),
        places=WITH_SASL,
        log_in=_by_scram(extensions),
    )
    for extensions in NO_TOKENS
]


@cases(ATTACKS + BEFORE_LOGIN + EXTENSIONS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)


@pytest.fixture(scope="module")
def gateway_site(sasl_cluster: Cluster) -> Iterator[Site]:
    with running_site(sasl_cluster, Place()) as site:
        yield site


@rule("On a listener with authentication no client stays ANONYMOUS.", "identity")
@pytest.mark.kafka
def test_on_a_listener_with_authentication_nobody_is_anonymous(gateway_site: Site) -> None:
    """Nobody can spend ANONYMOUS' tokens, or the cluster's, before the broker has closed the connection."""
    topic = gateway_site.topic()
    with gateway_site.under_attack(), gateway_site.connect() as attacker:
        frames = [Target(topic, 9, Place()).produce() for _ in range(20)]
        assert attacker.attack(frames, Delivery.PIPELINED).is_closed
    shown = gateway_site.gateway.metrics()
    assert "ANONYMOUS" not in gateway_site.gateway.read("/metrics")
    assert shown.value("pidgate_connections_closed_total", cause="unauthenticated") == 1
    # By the probe: nothing of it is configured.
    assert "authentication" not in str(gateway_site.gateway.config)


def _delegation_token(site: Site, user: str, *, is_seen: bool) -> tuple[str, str]:
    """Return name and password of a token of that user, got through the gateway (`is_seen`) or past it."""
    servers = site.address if is_seen else site.cluster.bootstrap_servers(SASL_PLAINTEXT)
    with RawClient(servers) as client:
        assert scram_login(client, user, f"{user}-secret") == 0
        asked = {"renewers": [], "max_lifetime_ms": 3_600_000}
        frame = client.ask(request(CREATE_DELEGATION_TOKEN, 2, asked))
        answer = codec.decode_response(CREATE_DELEGATION_TOKEN, 2, frame, 0, len(frame))
        assert answer.error_code == 0
        token = answer.token_id, base64.b64encode(answer.hmac).decode()
    give_up_s = time.monotonic() + 15
    while time.monotonic() < give_up_s:  # until all brokers have heard of it
        with site.connect() as client:
            if scram_login(client, *token, ",tokenauth=true") == 0:
                return token
        time.sleep(0.1)
    raise TimeoutError("the broker does not know its token")


def _also_at(*others: Place) -> list[Any]:
    """In one process, enforced, by day; at the others by night."""
    return [Place(), *(pytest.param(place, marks=pytest.mark.nightly) for place in others)]


@pytest.mark.kafka
@pytest.mark.parametrize(("rate", "passed"), [(None, 0), (5, 6)])
@pytest.mark.parametrize("place", _also_at(Place(mode="observe")), ids=str)
def test_a_delegation_token_that_nobody_saw_has_the_quota_of_its_mechanism(
    sasl_cluster: Cluster, place: Place, rate: int | None, passed: int
) -> None:
    """By default that of the default user, which is 0 here; the owner's own would let all of them pass."""
    own = {} if rate is None else {"unidentified": {"SCRAM-SHA-256": {"producer_ids_rate": rate}}}
    with running_site(sasl_cluster, place, quotas=own) as site:
        target = site.target()
        token = _delegation_token(site, HONEST_USER, is_seen=False)
        with site.under_attack(log_lines=2):
            for _ in range(MANY_LOGINS):
                with site.connect() as attacker:
                    assert scram_login(attacker, *token, ",tokenauth=true") == 0
                    attacker.attack([target.produce() for _ in range(EACH)], Delivery.WHOLE)
        brought, excess = MANY_LOGINS * EACH, MANY_LOGINS * EACH - passed
        is_enforced = place.mode == "enforce"
        assert len(site.ids_at_brokers(target.topic)) == (passed if is_enforced else brought)
        if not is_enforced:
            assert site.counted(excess, "pidgate_producer_ids_would_refuse_total") == excess
        shown = site.gateway.metrics().value(
            "pidgate_producer_ids_quota", user="(unidentified SCRAM-SHA-256)"
        )
        assert shown == (rate or 0)


@pytest.mark.kafka
def test_a_delegation_token_whose_owner_is_known_sheds_no_quota_of_his(sasl_cluster: Cluster) -> None:
    """The entity of those who cannot be named would let all pass, and so would a token of the honest user's."""
    of_all = {"unidentified": {"SCRAM-SHA-256": {"producer_ids_rate": 1_000}}}
    with running_site(sasl_cluster, Place(), quotas=of_all) as site:
        token = _delegation_token(site, HOSTILE_USER, is_seen=True)
        topic = site.topic()
        with site.under_attack(log_lines=2):  # each process limits its own
            for _ in range(MANY_LOGINS):
                with site.connect() as attacker:
                    assert scram_login(attacker, *token, ",tokenauth=true") == 0
                    attacker.attack(
                        [Target(topic, 9, Place()).produce() for _ in range(EACH)], Delivery.WHOLE
                    )
        assert site.ids_at_brokers(topic) == set()
        owned = _delegation_token(site, HONEST_USER, is_seen=True)
        topic = site.topic()
        with site.connect() as client:
            assert scram_login(client, *owned, ",tokenauth=true") == 0
            client.attack([Target(topic, 9, Place()).produce() for _ in range(4)], Delivery.WHOLE)
        assert len(site.ids_at_brokers(topic)) == 4
        assert site.counted(4, "pidgate_producer_ids_admitted_total", user=HONEST_USER) == 4
