"""Attacks by raw frames on a live gateway, before a real broker: none sheds its quota, and nobody else notices.

To add an attack, describe it in a list of a file of this folder, and let the file have the one test:

    ATTACKS = [
        Attack(
            name="a new id for each request",
            frames=lambda target: [target.produce(version=target.version) for _ in range(20)],
            versions=versions_of(PRODUCE),
        ),
    ]

    @cases(ATTACKS)
    def test_attack(site: Site, case: Case) -> None:
        carry_out(site, case)

`Attack` (attack.py) has a field for whatever differs from attack to attack: who logs in, how many connections, how
many answers are waited for, what memory the configuration grants. `target` gives the topic, the version and new
producer ids; `tests.support.raw.request` makes a frame of any API, attacker.py those of SASL. Each attack is carried
out in each of its versions, by each delivery (each frame whole, all in one write, cut at odd bytes), at each place
(SASL or not, enforced or observed). `carry_out` then holds the gateway to all of this:

* ids: the broker itself is asked which producer ids it knows; the attacker has a rate of 0, so any is too many (where
  it is observed, each must have been counted);
* time: others wait inside the gateway for less than 50 ms (150 ms by day): for so long the event loop of any process
  is busy with the attack at most, in CPU time of its thread, so that a loaded machine changes nothing
  (inside/sitecustomize.py measures it, site.py says why that is the wait); an honest user who goes on beside it is
  answered within 5 s by the clock;
* memory: no process grows by 32 MB beyond `share_bytes`, at its highest;
* the log: one line (a second).

What is no list of frames on one connection uses the parts: `with site.under_attack() as cost:` holds whatever is done
in the block to the last three, `site.connect(user)` gives a connection, `site.ids_at_brokers(topic)` the ids; with
other quotas or limits, `with running_site(sasl_cluster, Place(...), settings=...) as site:` (mark that test kafka).

By day (`make test`) each attack has one case: its first version, last delivery and first place; with `by_day=False`
none. `make nightly` has them all, and `pytest tests/hostile -m "not nightly"` is what the day has. Keep a case of the
day below a second. test_frame.py holds the measurements themselves to their words.
"""

from collections.abc import Iterator

import pytest

from tests.hostile.attack import Case
from tests.hostile.site import Site, Sites
from tests.kafka.conftest import sasl_cluster
from tools.sandbox.kafka import Cluster

__all__ = ["sasl_cluster", "site", "sites"]


@pytest.fixture(scope="session")
def sites(sasl_cluster: Cluster) -> Iterator[Sites]:
    """The gateways of all places; each is started when the first case needs it."""
    with Sites(sasl_cluster) as running:
        yield running


@pytest.fixture
def site(sites: Sites, case: Case) -> Site:
    """The gateway at the place of the case, shared by the attacks there."""
    return sites.at(case.place)
