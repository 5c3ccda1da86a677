"""What a refused producer of librdkafka sees: python refused.py HOST:PORT TOPIC [PRODUCERS]

Opens one producer after the other, each with one record. Needs confluent-kafka.
"""

import sys
import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer, ThrottleEvent


def throttled(number: int, event: ThrottleEvent) -> None:
    print(f"producer {number}: throttled for {event.throttle_time:.1f} s", flush=True)


def delivered(number: int, began_s: float, error: KafkaError | None, _: Message) -> None:
    # Up to message.timeout.ms (300 s) librdkafka sends a refused record again, in order, and reports it once.
    outcome = "acknowledged" if error is None else f"failed: {error}"
    print(f"producer {number}: {outcome} after {time.monotonic() - began_s:.1f} s", flush=True)


servers, topic, *producers = sys.argv[1:]
for number in range(1, int(producers[0] if producers else 3) + 1):
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "throttle_cb": partial(throttled, number)}
    )
    producer.produce(topic, b"a record", on_delivery=partial(delivered, number, time.monotonic()))
    producer.flush()
