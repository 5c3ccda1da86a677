"""The ways in which users come by new producer ids: three that KIP-936 names, one more that harms, and the healthy.

A user may show several at once.
"""

from __future__ import annotations

from enum import StrEnum


class Pattern(StrEnum):
    """One way of opening producers."""

    RESTART_LOOP = "restart_loop"  # KIP-936: a process that crashes and is started again, over and over
    PRODUCER_PER_ERROR = "producer_per_error"  # KIP-936: a new producer on each error
    PRODUCER_PER_BATCH = "producer_per_batch"  # KIP-936: a new producer for each batch or record
    RANDOM_TRANSACTIONAL_IDS = "random_transactional_ids"  # a transactional id made up at each start
    STEADY = "steady"  # producers that live long
    ROLLING_DEPLOYMENT = "rolling_deployment"  # all instances once, one after the other
    AUTOSCALING = "autoscaling"  # instances come and go with the load
    CRON_JOB = "cron_job"  # a few short-lived producers, by the clock
    SHARED_ADDRESS = "shared_address"  # many processes behind one NAT address
    SHARED_CLIENT_ID = "shared_client_id"  # many processes that call themselves alike
    UNKNOWN = "unknown"  # too little is known, or it fits nothing


HARMFUL = frozenset(
    (
        Pattern.RESTART_LOOP,
        Pattern.PRODUCER_PER_ERROR,
        Pattern.PRODUCER_PER_BATCH,
        Pattern.RANDOM_TRANSACTIONAL_IDS,
    )
)
HEALTHY = frozenset(Pattern) - HARMFUL - {Pattern.UNKNOWN}
