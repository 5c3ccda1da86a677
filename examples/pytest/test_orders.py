"""Does an application open one producer, and does it live through a refusal?"""

import uuid

from confluent_kafka import Producer
from conftest import Gateway


class Orders:
    """The application: one producer for its whole life."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})

    def place(self, order: str) -> None:
        self._producer.produce(self._topic, order.encode())

    def close(self) -> int:
        """Return how many orders were not acknowledged."""
        return int(self._producer.flush(60))


def test_a_hundred_orders_take_one_producer_id(gateway: Gateway) -> None:
    orders = Orders(gateway.bootstrap_servers, f"orders-{uuid.uuid4()}")
    for number in range(100):
        orders.place(f"order {number}")
    assert orders.close() == 0
    assert gateway.new_producer_ids() == 1
    assert gateway.refused() == 0


def test_an_order_that_is_refused_arrives_later(gateway: Gateway) -> None:
    topic = f"orders-{uuid.uuid4()}"
    for number in range(4):  # each a process that was started again
        orders = Orders(gateway.bootstrap_servers, topic)
        orders.place(f"order {number}")
        assert orders.close() == 0
    assert gateway.new_producer_ids() == 4
    assert gateway.refused() > 0
