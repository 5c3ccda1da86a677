"""How long anybody may have to wait: each batch of each client, and all together until everything is drained.

By docs/reference/rules.md an id waits for one token and for one comeback of everybody before it, who returns at the end
of his mute only; whoever never returns keeps his place until he is given up. Stated for what is sent and served while
nothing else is wrong, and for what waits once nothing is wrong any more. A byte rate's mutes have no bound, nor has
what is sent before the steps begin: gateways that know no cluster yet and clients that come all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pidgate.quota.users import BROUGHT_WITHIN_MS
from tests.simulator import byte_bound, quota_bound
from tests.simulator.clients.batches import Batch, ModelViolation
from tests.simulator.gaps import Overtaken

if TYPE_CHECKING:
    from tests.simulator.applications import Application
    from tests.simulator.schedule import Step
    from tests.simulator.world import World

CALM: Final = frozenset({"send", "rogues", "mode", "rate", "exempt", "byte rate", "transaction", "wait"})
"""Steps that leave leaders, brokers, gateways and connections as they are."""
GIVEN_UP_S: Final = 30.0
"""Beyond a longest throttle, until somebody loses his place who does not come back."""
REQUEST_S: Final = 60.0
"""Of librdkafka, the longest of all."""
RECONNECT_S: Final = 10.0
GIVEN_S: Final = BROUGHT_WITHIN_MS / 1_000
"""For so long a token is kept for an id that was given, though its producer never came for it."""
BACKOFF_S: Final = 1.3
"""A client's longest, with its jitter, beside its mute."""
REQUEST_BYTES: Final = 200
"""Of a request beside its records."""
BYTES_SPARE: Final = 3
"""Every connection's first request may go beyond the rate, and what is sent again counts again."""
STEP_S: Final = 1.5
"""A few refusals of 100 ms, for a batch that is above 0 where nothing is known of it."""


def drain_bound_s(world: World) -> float:
    """Return how long it may take at most, from the end of the faults on, until everybody has been served.

    For each id that may wait one token and one longest throttle, since its client comes back at the end of its mute
    only; places in the queue of those who are gone; a debt of one token, or of a capacity in a fleet; for each batch a
    few of the 100 ms steps. And by the clients: one request's time, one longest back-off.
    """
    token_s, throttle_s = _token_s(world), world.setup.quotas.max_throttle_ms / 1_000
    waiting = sum(not application.is_idle for application in world.everybody) * (
        1 + len(world.fleet.gateways)
    )
    batches = sum(len(application.client.open) for application in world.everybody)
    transactions = sum(application.backlog for application in world.everybody)
    queue_s = (
        throttle_s + GIVEN_UP_S + token_s * (waiting + 2 + _capacity(world)) + throttle_s * (waiting + 8)
    )
    names_s = _name_s(world) * (2 + sum(one.setup.is_transactional for one in world.everybody))
    if (rate := world.setup.quotas.producer_byte_rate) is not None:
        names_s += BYTES_SPARE * _open_bytes(world) / rate + byte_bound.WINDOW_S
    return queue_s + names_s + STEP_S * batches + 5.0 * transactions + REQUEST_S + RECONNECT_S


def reading_bound_s(world: World) -> float:
    """Return how long it may take at most until readers have all that is in the logs."""
    rate = world.setup.quotas.consumer_byte_rate
    logs = [world.cluster.partition(world.topic, n).log for n in range(world.setup.partitions)]
    log_bytes = sum(REQUEST_BYTES + len(entry.raw) for log in logs for entry in log)
    bytes_s = 0.0 if rate is None else BYTES_SPARE * len(world.readers) * log_bytes / rate
    return bytes_s + byte_bound.WINDOW_S + REQUEST_S + RECONNECT_S


def _open_bytes(world: World) -> int:
    """Return what is still to be sent, with what the requests around it take."""
    return sum(
        REQUEST_BYTES + len(batch.value) * batch.records
        for application in world.everybody
        for batch in application.client.open
    )


def _token_s(world: World) -> float:
    quotas = world.setup.quotas
    rates = [*quota_bound.rates_of(world), quotas.cluster_rate or 0]
    slowest = min((rate for rate in rates if rate), default=0)
    token_s = quotas.window_ms / 1_000 / slowest if slowest else 0.0
    pairs_s = quotas.window_ms / 1_000 * world.setup.partitions / (quotas.states_rate or float("inf"))
    return max(token_s, pairs_s)


def _name_s(world: World) -> float:
    quotas = world.setup.quotas
    rate = quotas.transactional_ids_rate
    return quotas.window_ms / 1_000 / rate if rate else 0.0


def _capacity(world: World) -> float:
    quotas = world.setup.quotas
    return max(quotas.rate or 0, quotas.cluster_rate or 0) * quotas.burst


# ---- each of them --------------------------------------------------------------------------------------


def check(world: World, overtaken: Overtaken) -> None:
    """Raise ModelViolation for a batch that was told too late."""
    quotas = world.setup.quotas
    if quotas.producer_byte_rate is not None or quotas.consumer_byte_rate is not None:
        return
    disturbed = [
        (world.steps_began_s + step[0] / 1_000, world.steps_began_s + _ends_ms(step) / 1_000)
        for step in world.schedule.steps
        if step[1] not in CALM
    ]
    first_s = min((since_s for since_s, _ in disturbed), default=float("inf"))
    calm_s = max((until_s for _, until_s in disturbed), default=0.0)
    for application in world.everybody:
        if application.is_gone or application.setup.is_transactional or application.setup.hurry_s:
            continue
        for batch in application.sent:
            if batch.done_s < world.steps_began_s or (batch.producer, batch.partition) in overtaken:
                continue
            since_s = batch.queued_s if batch.done_s < first_s else max(batch.queued_s, calm_s)
            bound_s = bound_of(world, application, batch, is_calm=batch.done_s < first_s)
            if batch.done_s - since_s > bound_s:
                raise ModelViolation(
                    f"batch {batch.number} of {batch.producer} to partition {batch.partition} waited for "
                    f"{batch.done_s - since_s:.1f} s, {bound_s:.1f} at most"
                )


def _ends_ms(step: Step) -> int:
    """Return when a step's harm is over: what has a duration has it as its last argument."""
    last: Any = step[-1]
    return int(step[0]) + (last if isinstance(last, int) and last >= 20 else 0)


def bound_of(world: World, application: Application, batch: Batch, *, is_calm: bool) -> float:
    """Return how long a batch may take, from its sending on, or from when nothing is wrong any more."""
    user, throttle_s = application.setup.user, world.setup.quotas.max_throttle_ms / 1_000
    is_shared = world.setup.quotas.cluster_rate is not None or not world.setup.has_login
    others = [one for one in world.everybody if is_shared or one.setup.user == user]
    ahead = len(others) * max(1, len(world.fleet.gateways))
    before = sum(
        one.queued_s <= batch.queued_s and not 0 <= one.done_s < batch.queued_s for one in application.sent
    )
    bound_s = (_token_s(world) + throttle_s + BACKOFF_S) * (ahead + 2) + STEP_S * before
    bound_s += _token_s(world) * _capacity(world)
    if world.setup.quotas.refuses_init:
        bound_s += GIVEN_S
    if any(one.is_gone or one.setup.hurry_s for one in others):
        bound_s += GIVEN_UP_S + throttle_s
    return bound_s if is_calm else bound_s + REQUEST_S + RECONNECT_S
