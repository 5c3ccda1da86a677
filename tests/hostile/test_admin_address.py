"""The admin address against a page of another site, and against other users of the gateway's machine."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Final

import pytest

from pidgate.gateway.config.local_token import token_of
from tests.hostile.attack import Place
from tests.hostile.site import HONEST_USER, Site, running_site
from tools.sandbox.kafka import Cluster

pytestmark = pytest.mark.kafka

OTHER_NAMES: Final = (
    "evil.example",
    "evil.example:9290",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "",
)
OWN_NAMES: Final = ("127.0.0.1", "localhost:9290", "[::1]:9290", "10.1.2.3", "LOCALHOST.")
READ: Final = ("/", "/metrics", "/readyz", "/v1/quotas", f"/v1/explain?user={HONEST_USER}")
CHANGE: Final = {
    "changes": [{"setting": "producer_ids_rate", "user": HONEST_USER, "action": "set", "value": 1}]
}
RELEASE: Final = {"deed": "refill", "user": HONEST_USER}


@pytest.fixture(scope="module")
def site(sasl_cluster: Cluster) -> Iterator[Site]:
    """A gateway whose quotas may be set over loopback, without a token of the operator's."""
    with running_site(sasl_cluster, Place(), admin={"writable": True}) as running:
        with running.connect(HONEST_USER) as honest:  # whose name is to be seen from now on
            honest.ask(running.target().produce())
        assert running.counted(1, "pidgate_producer_ids_admitted_total", user=HONEST_USER) == 1
        yield running


def ask(site: Site, path: str, host: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Return status and text of a request that names the gateway by `host`."""
    connection = http.client.HTTPConnection("127.0.0.1", site.gateway.admin_port, timeout=10)
    try:
        connection.putrequest("GET" if body is None else "POST", path, skip_host=True)
        sent = b"" if body is None else json.dumps(body).encode()
        named = {"Host": host, "Content-Length": str(len(sent)), "Content-Type": "application/json"}
        for name, value in {**named, **headers}.items():
            connection.putheader(name, value)
        connection.endheaders(sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def rates(site: Site) -> object:
    """Return what is set, for whom."""
    status, text = ask(site, "/v1/quotas", "localhost")
    assert status == 200, text
    return [(one["user"], one["producer_ids_rate"]["value"]) for one in json.loads(text)["entries"]]


def test_by_another_name_nothing_is_read(site: Site) -> None:
    """DNS rebinding: the page's own name leads to this address, and the browser takes both for one site."""
    with site.under_attack(log_lines=2):
        for host in OTHER_NAMES:
            for path in READ:
                status, text = ask(site, path, host)
                assert status == 403, (host, path, text)
                assert HONEST_USER not in text
                assert "pidgate_" not in text


def test_by_its_own_names_it_is(site: Site) -> None:
    for host in OWN_NAMES:
        status, text = ask(site, "/metrics", host)
        assert status == 200, host
        assert HONEST_USER in text


def test_on_loopback_nobody_sets_a_quota_without_the_token_of_the_gateways_user(site: Site) -> None:
    before = rates(site)
    with site.under_attack(log_lines=2):
        for path, body in (("/v1/quotas/changes", CHANGE), ("/v1/commands", RELEASE)):
            for shown in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {64 * '0'}"}):
                status, text = ask(site, path, "localhost", body, **shown)
                assert status == 401, (path, text)
            # Even with the token, not from a page of another site.
            token = token_of(site.gateway.admin_port)
            assert token is not None
            held = {"Authorization": f"Bearer {token}", "Origin": "http://evil.example"}
            assert ask(site, path, "localhost", body, **held)[0] == 403
    assert rates(site) == before
    status, text = ask(site, "/v1/quotas/changes", "localhost", CHANGE, Authorization=f"Bearer {token}")
    assert status == 200, text
    assert rates(site) != before
