"""What makes an id known at a broker, and is no Produce: nobody makes one known that way (apis/table.py)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest
from kio.static.constants import EntityType

from tests.hostile.attack import Attack, Case, Place, Target, cases
from tests.hostile.site import Site, Sites, carry_out
from tests.support.frames import entity_class, framed, request_frame
from tests.support.raw import RawClient
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import PLAINTEXT

WRITE_TXN_MARKERS = 27


def markers(target: Target) -> Iterator[bytes]:
    """The end of a transaction that nobody began, which only brokers write, and then its id in a Produce."""
    ids = [target.new_id() for _ in range(5)]
    for producer_id in ids:
        yield _marker(target, producer_id)
    for producer_id in ids:
        yield target.produce(producer_id)


def _marker(target: Target, producer_id: int) -> bytes:
    cls = entity_class(WRITE_TXN_MARKERS, target.version, EntityType.request)
    module = import_module(cls.__module__)
    topic = module.WritableTxnMarkerTopic(name=target.topic, partition_indexes=(0,))
    marker = module.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=True,
        topics=(topic,),
        coordinator_epoch=0,
    )
    return framed(request_frame(cls(markers=(marker,))))


ATTACKS = [Attack(name="markers of transactions that nobody began", frames=markers, versions=(1, 2))]


@cases(ATTACKS)
def test_attack(site: Site, case: Case) -> None:
    carry_out(site, case)


@pytest.mark.kafka
@pytest.mark.nightly
def test_a_broker_takes_such_a_marker(sites: Sites, sasl_cluster: Cluster) -> None:
    """Else the attack would be held by the broker."""
    site = sites.at(Place())
    target = site.target(1)
    producer_id = target.new_id()
    with RawClient(sasl_cluster.bootstrap_servers(PLAINTEXT)) as broker:
        broker.ask(_marker(target, producer_id))
    assert site.ids_at_brokers(target.topic) == {producer_id}
