"""What each verb of a schedule does to a world. What is not there is left alone; what has an end, ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pidgate.quota.changes import Action, Change, Setting, Target
from pidgate.quota.settings import Mode
from tests.simulator import accounts
from tests.simulator.brokers.partition import Partition
from tests.simulator.gateway import PORT
from tests.simulator.link import Mark
from tests.simulator.schedule import Step
from tests.simulator.story import step_words

if TYPE_CHECKING:
    from tests.simulator.applications import Application, Parts
    from tests.simulator.link import Link
    from tests.simulator.world import World

Verb = Callable[..., "bool | None"]
"""False: there was nothing to do it to, where a search wants to know that."""

NODE_PORT: Final = PORT + 1
"""Of node 0 at every gateway."""
LOOK_S: Final = 0.000_2
"""No answer is back sooner."""
LOOKED_FOR_S: Final = 0.1


def apply(world: World, step: Step) -> bool:
    """Make one step happen. Returns False where it is known to have done nothing."""
    _, verb, *args = step
    world.note(f"* {step_words(step)}")
    return VERBS[verb](world, *args) is not False


def _later(world: World, after_ms: int, action: Callable[..., Any], *args: Any) -> None:
    world.loop.call_later(after_ms / 1_000, action, *args)


# ---- applications --------------------------------------------------------------------------------------


def _application(world: World, name: str) -> Application | None:
    return world.applications.get(name)


def _send(world: World, name: str, partition: int, count: int) -> None:
    if application := _application(world, name):
        application.send(partition % world.setup.partitions, count)


def _transaction(world: World, name: str, parts: Parts, commits: bool) -> None:
    if application := _application(world, name):
        within = tuple((partition % world.setup.partitions, count) for partition, count in parts)
        application.transact(within, commits=commits)


def _rogues(world: World, user: str, count: int) -> None:
    for _ in range(count):
        world.rogue(user)


def _hostile(world: World, acts: int) -> None:
    world.hostile(acts)


def _crash(world: World, name: str) -> None:
    if application := _application(world, name):
        application.crash()


def _garbage(world: World, name: str) -> None:
    """A client breaks the protocol behind what it has in flight."""
    application = _application(world, name)
    if application and not application.is_gone:
        application.process.call(application.client.break_protocol)


def _close(world: World, name: str) -> None:
    if application := _application(world, name):
        application.close()


def _wait(_world: World) -> None:
    """Until this moment."""


# ---- the network ---------------------------------------------------------------------------------------


def _cut(world: World, end: str, nth: int) -> None:
    links = world.network.links(end)
    if links:
        link = links[nth % len(links)]
        link.cut()


def _hold(world: World, end: str, nth: int, for_ms: int) -> None:
    links = world.network.links(end)
    if links:
        link = links[nth % len(links)]
        link.hold()
        _later(world, for_ms, link.release)


def _late_answers(world: World, name: str, node_id: int, after_ms: int, for_ms: int) -> None:
    """From some time after the client's next Produce to a node on, answers from there are on their way for so long.

    What the client sends there arrives as ever.
    """
    written = world.network.written or []
    until_s, port = world.loop.time() + for_ms / 1_000, f":{NODE_PORT + node_id} "
    looked_at = len(written)

    def look() -> None:
        nonlocal looked_at
        for _, link_name, writer, what in written[looked_at:]:
            is_produce = isinstance(what, bytes) and what[4:6] == b"\0\0"
            if writer == name and is_produce and port in link_name:
                world.loop.call_later(after_ms / 1_000, hold, link_name)
                return
        looked_at = len(written)
        if world.loop.time() < min(until_s, began_s + LOOKED_FOR_S):
            world.loop.call_later(LOOK_S, look)

    def hold(link_name: str) -> None:
        for link in world.network.links(name):
            if link.name == link_name:
                link.hold_answers()
                world.loop.call_later(max(0.0, until_s - world.loop.time()), link.release)

    began_s = world.loop.time()
    look()


def _refresh(world: World, name: str) -> None:
    """A client asks for metadata, as clients do from time to time."""
    application = _application(world, name)
    if application and not application.is_gone:
        application.process.call(application.client.request_metadata)


def _link_to(world: World, name: str, node_id: int) -> Link | None:
    """Return a client's open connection to what it takes for a node."""
    application = _application(world, name)
    node = None if application is None else application.client.nodes.get(node_id)
    if node is None:
        return None
    host, port = node.address
    begins = f"{name} -> {host}:{port} "
    links = [link for link in world.network.links(name) if link.name.startswith(begins)]
    return links[-1] if links else None


def _read_on_demand(world: World, name: str) -> None:
    world.network.read_on_demand(name)


def _read(world: World, name: str, node_id: int) -> bool:
    """A client reads the next answer that it has not read."""
    link = _link_to(world, name, node_id)
    return link is not None and link.client.is_held and link.client.let_one_arrive()


def _cut_from(world: World, name: str, node_id: int) -> bool:
    link = _link_to(world, name, node_id)
    if link is None or link.client.is_gone:
        return False
    link.client.lose_held()
    link.cut()
    return True


def _half_close(world: World, name: str, nth: int) -> None:
    links = [link for link in world.network.links(name) if link.client.process.name == name]
    if links:
        links[nth % len(links)].half_close()


def _break_off(world: World, end: str, nth: int, resets: bool) -> None:
    """Have a client's connection, or a gateway's to a broker, end in the middle of the next Produce on it."""
    links = [link for link in world.network.links(end) if link.client.process.name == end]
    if links:
        links[nth % len(links)].breaks_off = Mark.RST if resets else Mark.FIN


def _part(world: World, one: str, other: str, for_ms: int) -> None:
    if one != other:
        world.network.partition(one, other)
        _later(world, for_ms, world.network.heal)


def _refuse(world: World, node_id: int, for_ms: int) -> None:
    if node_id in world.cluster.nodes.ids:
        address = world.cluster.address(node_id)
        world.network.refuse(address)
        _later(world, for_ms, world.network.refuse, address, False)


# ---- the cluster ---------------------------------------------------------------------------------------


def _move(world: World, index: int, node_id: int) -> None:
    partition: Partition = world.cluster.partition(world.topic, index % world.setup.partitions)
    if node_id != partition.leader and node_id in partition.in_sync and partition.leader is not None:
        world.brokers.move_leader(world.topic, partition.index, node_id)


def _lead(world: World, index: int, node_id: int) -> None:
    """Have a partition led by a node, and all clients know."""
    _move(world, index, node_id)
    partition: Partition = world.cluster.partition(world.topic, index)
    for application in world.everybody:
        if not application.is_gone:
            application.process.call(
                application.client.learn_leader, index, (partition.leader, partition.leader_epoch)
            )
            application.process.call(application.client.wake)


def _stop_broker(world: World, node_id: int, for_ms: int) -> None:
    if node_id in world.cluster.nodes.ids and node_id not in world.cluster.nodes.down:
        world.brokers.stop(node_id)
        world.loop.kill(world.loop.processes[f"broker-{node_id}"])
        _later(world, for_ms, world.start_broker, node_id)


# ---- gateways ------------------------------------------------------------------------------------------


def _kill(world: World, name: str, for_ms: int) -> None:
    world.fleet.kill(name, for_ms)


def _drain(world: World, number: int, for_ms: int) -> None:
    world.fleet.drain_one(number, for_ms)


def _freeze(world: World, name: str, for_ms: int) -> None:
    world.fleet.freeze(name, for_ms)


def _wall_clock(world: World, name: str, ahead_ms: int) -> None:
    world.fleet.set_wall_clock(name, ahead_ms)


def _cut_topic(world: World, number: int, for_ms: int) -> None:
    world.fleet.cut_topic(number, for_ms)


def _slow_topic(world: World, slowness: int, for_ms: int) -> None:
    world.fleet.slow_topic(slowness, for_ms)


def _slow_disk(world: World, slowness: int, for_ms: int) -> None:
    world.fleet.slow_disk(slowness, for_ms)


# ---- quotas --------------------------------------------------------------------------------------------


def _rate(world: World, rate: int) -> None:
    target = Target(Setting.PRODUCER_IDS_RATE, None)
    world.fleet.change(Change(target=target, action=Action.SET, value=rate * 1_000))


def _mode(world: World, user: str | None, is_enforced: bool) -> None:
    mode = Mode.ENFORCE if is_enforced else Mode.OBSERVE
    world.fleet.change(Change(target=Target(Setting.MODE, user), action=Action.SET, value=mode))


def _exempt(world: World, user: str, is_exempt: bool) -> None:
    world.fleet.exempt(user, is_exempt=is_exempt)


def _byte_rate(world: World, rate: int | None) -> None:
    world.fleet.set_byte_rate(rate)
    world.changes += 1
    if rate is None or rate >= accounts.LIFTED:
        accounts.look_for_relief(world)


VERBS: Final[dict[str, Verb]] = {
    "send": _send,
    "transaction": _transaction,
    "rogues": _rogues,
    "hostile": _hostile,
    "crash": _crash,
    "garbage": _garbage,
    "close": _close,
    "wait": _wait,
    "refresh": _refresh,
    "cut": _cut,
    "hold": _hold,
    "late answers": _late_answers,
    "half-close": _half_close,
    "break off": _break_off,
    "read on demand": _read_on_demand,
    "read": _read,
    "cut from": _cut_from,
    "part": _part,
    "refuse": _refuse,
    "move": _move,
    "lead": _lead,
    "stop broker": _stop_broker,
    "kill": _kill,
    "drain": _drain,
    "freeze": _freeze,
    "wall clock": _wall_clock,
    "cut topic": _cut_topic,
    "slow topic": _slow_topic,
    "slow disk": _slow_disk,
    "rate": _rate,
    "mode": _mode,
    "exempt": _exempt,
    "byte rate": _byte_rate,
}
