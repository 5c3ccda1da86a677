"""The gateways of a world: as its setup has them configured, started, and broken by the steps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pidgate.load.plan import Address
from pidgate.quota.changes import Change
from pidgate.quota.settings import QUEUE, STICKY_ENTRIES
from tests.simulator.gateway import FEWEST_CONNECTIONS, PORT, SimulatedGateway, config_text, configured
from tests.simulator.observed import ANONYMOUS
from tests.simulator.schedule import QuotaSetup, Setup, Shape
from tests.simulator.topics import ModelTopics

if TYPE_CHECKING:
    from tests.simulator.world import World


SHARED_HOST: Final = "gateways"
"""Of a fleet on one port."""


def gateway_names(setup: Setup) -> list[str]:
    """Return the hosts of the gateways."""
    if setup.shape is Shape.DIRECT:
        return []
    if setup.shape is Shape.SIDECARS:
        return [f"gateway-{number + 1}" for number in range(setup.brokers)]
    return ["gateway-1", "gateway-2"] if setup.shape.is_fleet else ["gateway-1"]


@dataclass(slots=True)
class Asked:
    """A change of quotas at run time that somebody asked for. `done_s`: when it was confirmed, if it was."""

    at_s: float
    change: Change
    done_s: float | None = None


class Fleet:
    """`gateways` in their order. What is killed or drained by a step starts again after that step's time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._starting: list[asyncio.Task[None]] = []
        self._changes: list[asyncio.Task[Any]] = []
        self.asked: list[Asked] = []
        self.exemptions: list[tuple[float, str, bool]] = []
        """When whose exemption was written, or taken back."""
        self._down: dict[SimulatedGateway, None] = {}
        self.history: list[tuple[float, str, str, float]] = []
        """What happened to gateways: when, what, to which one, for how long."""
        self._exempt: dict[str, None] = {}
        self._quotas = world.setup.quotas
        self.topics = ModelTopics(world.loop)
        self.gateways = [self._made(name) for name in gateway_names(world.setup)]

    def _made(self, host: str) -> SimulatedGateway:
        world = self._world
        settings = configured(
            host, *self._brokers(host), tables=tables_of(world.setup.quotas), **self._config(host)
        )
        file = world.machine.directory / f"{host}.yaml" if self._is_reloaded else None
        if file is not None:
            file.write_text(self._text(host))
        shared = SHARED_HOST if world.setup.shape is Shape.ONE_PORT else ""
        return SimulatedGateway(world.machine, settings, self.topics.own_client, file=file, listens_on=shared)

    @property
    def _is_reloaded(self) -> bool:
        return any(step[1] in ("exempt", "byte rate") for step in self._world.schedule.steps)

    def _brokers(self, host: str) -> list[str]:
        """Return the bootstrap servers of a gateway."""
        cluster = self._world.cluster
        is_alone = self._world.setup.shape is Shape.SIDECARS
        node_ids = [_node_beside(host)] if is_alone else cluster.nodes.ids
        return [f"{name}:{port}" for name, port in map(cluster.address, node_ids)]

    def _text(self, host: str) -> str:
        """Return the configuration file of a gateway, as it is now."""
        config = self._config(host)
        users = {user: {"exempt": ["producer_ids"]} for user in self._exempt}
        config["quotas"] = {**config["quotas"], "users": users}
        return config_text(host, *self._brokers(host), **config)

    def _config(self, host: str) -> dict[str, Any]:
        world, setup = self._world, self._world.setup
        config: dict[str, Any] = {
            "quotas": quotas_config(self._quotas),
            "lanes": int(setup.lend_after is not None),
        }
        if (total_bytes := setup.buffered_total_bytes) is not None:
            config["limits"] = {
                "connections": FEWEST_CONNECTIONS,
                "buffered_total": total_bytes,
                "frame": total_bytes,
            }
        if setup.has_events:
            config["events"] = {"enabled": True}
        if setup.has_state_dir:
            config["state_dir"] = str(world.machine.directory / f"{host}.state")
        if setup.shape is Shape.SIDECARS:
            config["listeners"] = [
                {
                    "bind": f"0.0.0.0:{PORT}",
                    "advertise": f"gateway-{{node_id}}:{PORT}",
                    "only_node": _node_beside(host),
                    "node_ports": None,
                    "authentication": "none",
                }
            ]
        elif setup.shape is Shape.ONE_PORT:
            config["reuse_port"] = True
            config["listeners"] = [
                {
                    "bind": f"0.0.0.0:{PORT}",
                    "advertise": SHARED_HOST,
                    # A connection to a node's port may come to a gateway that has not seen that node's address yet.
                    "node_ports": {"first": PORT + 2, "node_ids": list(world.cluster.nodes.ids)},
                    "authentication": "none",
                }
            ]
        elif setup.has_login:
            config["listeners"] = [
                {
                    "bind": f"0.0.0.0:{PORT}",
                    "advertise": host,
                    # Only from clients' answers could it learn these after a restart.
                    "node_ports": {"first": PORT + 2, "node_ids": list(world.cluster.nodes.ids)},
                    "authentication": "required",
                }
            ]
        return config

    @property
    def names(self) -> frozenset[str]:
        """Hosts of the gateways, which are the names of their processes."""
        return frozenset(gateway_names(self._world.setup))

    def addresses(self, number: int) -> tuple[Address, ...]:
        """Return the bootstrap address of a gateway."""
        return ((self.gateways[number % len(self.gateways)].listens_on, PORT),)

    async def start(self) -> None:
        """Have all of them listen and reach the cluster."""
        for gateway in self.gateways:
            await self._start(gateway)

    async def drain(self) -> None:
        """End all of them in good order."""
        for gateway in self.gateways:
            await gateway.drain()

    def _note(self, what: str, whom: str, for_ms: int = 0) -> None:
        self.history.append((self._loop.time(), what, whom, for_ms / 1_000))

    async def _start(self, gateway: SimulatedGateway) -> None:
        self._note("start", gateway.host)
        await gateway.start()

    # ---- faults ------------------------------------------------------------------------------------------

    def _named(self, host: str) -> SimulatedGateway | None:
        return next((gateway for gateway in self.gateways if gateway.host == host), None)

    def kill(self, host: str, for_ms: int) -> None:
        """Kill a gateway, and start it again after that time."""
        gateway = self._named(host)
        if gateway is None or gateway in self._down:
            return
        self._note("kill", host, for_ms)
        gateway.kill()
        self._start_later(gateway, for_ms)

    def drain_one(self, number: int, for_ms: int) -> None:
        """Drain a gateway, and start it again that much later."""
        if number >= len(self.gateways) or self.gateways[number] in self._down:
            return
        gateway = self.gateways[number]
        self._start_later(gateway, for_ms, drains=True)

    def _start_later(self, gateway: SimulatedGateway, after_ms: int, *, drains: bool = False) -> None:
        self._down[gateway] = None

        async def start() -> None:
            if drains:
                await gateway.drain()
            await asyncio.sleep(after_ms / 1_000)
            await self._start(gateway)
            del self._down[gateway]

        self._starting.append(self._loop.create_task(start()))

    def freeze(self, host: str, for_ms: int) -> None:
        """Stop a gateway's process for that time."""
        gateway = self._named(host)
        process = None if gateway is None else gateway.process
        if process is not None and process.is_running:
            self._note("freeze", host, for_ms)
            process.freeze()
            self._loop.call_later(for_ms / 1_000, self._loop.thaw, process)

    def set_wall_clock(self, host: str, ahead_ms: int) -> None:
        """Have the wall clock of a gateway jump."""
        gateway = self._named(host)
        process = None if gateway is None else gateway.process
        if process is not None:
            self._note("clock", host)
            process.wall_offset_ms += ahead_ms

    def cut_topic(self, number: int, for_ms: int) -> None:
        """Let a gateway reach its own topics no more, for that time."""
        if self.gateways:
            self._note("topic", "", for_ms)
            self.topics.cut(self.gateways[number % len(self.gateways)].host)
            self._loop.call_later(for_ms / 1_000, self.topics.heal)

    def slow_topic(self, slowness: float, for_ms: int) -> None:
        """Have everything about the topics take so many times longer, for that time."""
        self._note("topic", "", for_ms)
        self.topics.slowness = slowness
        self._loop.call_later(for_ms / 1_000, setattr, self.topics, "slowness", 1.0)

    def slow_disk(self, slowness: float, for_ms: int) -> None:
        """Have everything that is read and written take so many times longer, for that time."""
        self._note("disk", "", for_ms)
        self._loop.disk_slowness = slowness
        self._loop.call_later(for_ms / 1_000, setattr, self._loop, "disk_slowness", 1.0)

    # ---- quotas ------------------------------------------------------------------------------------------

    def change(self, change: Change) -> None:
        """Change a quota at run time, through the first gateway that serves."""
        asked = Asked(self._loop.time(), change)
        self.asked.append(asked)
        for gateway in self.gateways:
            if gateway.process is not None and gateway.serving is not None and gateway.is_listening:
                task = gateway.process.spawn(gateway.serving._quotas.change([change]))
                task.add_done_callback(partial(self._confirmed, asked))
                self._changes.append(task)
                return

    def _confirmed(self, asked: Asked, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            asked.done_s = self._loop.time()

    def exempt(self, user: str, *, is_exempt: bool) -> None:
        """Exempt a user in the files of all gateways, or no more, and have them read again."""
        name = user if self._world.setup.has_login else ANONYMOUS
        self.exemptions.append((self._loop.time(), name, is_exempt))
        if is_exempt:
            self._exempt[name] = None
        else:
            self._exempt.pop(name, None)
        self._reload()

    def set_byte_rate(self, rate: int | None) -> None:
        """Write another rate, of the kinds that have one, into the files of all gateways, which are read again."""
        kinds = ("producer_byte_rate", "consumer_byte_rate")
        limited = [kind for kind in kinds if getattr(self._world.setup.quotas, kind) is not None]
        self._quotas = replace(self._quotas, **dict.fromkeys(limited, rate))
        self._reload()

    def _reload(self) -> None:
        for gateway in self.gateways:
            (self._world.machine.directory / f"{gateway.host}.yaml").write_text(self._text(gateway.host))
            gateway.reload()

    async def end_faults(self) -> None:
        """Have every process run."""
        self.topics.heal()
        self.topics.slowness = self._loop.disk_slowness = 1.0
        await asyncio.gather(*self._starting)
        for process in list(self._loop.processes.values()):
            if process.is_frozen and process.is_alive:
                self._loop.thaw(process)


def _node_beside(sidecar: str) -> int:
    """Return the node before which a gateway stands alone: of its name, as clients are shown it."""
    return int(sidecar.rpartition("-")[2])


def tables_of(setup: QuotaSetup) -> tuple[int, int] | None:
    """Return the sizes of the queue and of the refusal entries where the setup has its own."""
    if setup.queue is None and setup.sticky_entries is None:
        return None
    return (
        QUEUE if setup.queue is None else setup.queue,
        STICKY_ENTRIES if setup.sticky_entries is None else setup.sticky_entries,
    )


def quotas_config(setup: QuotaSetup) -> dict[str, Any]:
    """Return the section of the configuration file."""
    rates = {
        "producer_ids_rate": setup.rate,
        "producer_byte_rate": setup.producer_byte_rate,
        "consumer_byte_rate": setup.consumer_byte_rate,
        "transactional_ids_rate": setup.transactional_ids_rate,
        "producer_states_rate": setup.states_rate,
    }
    of_all = {"cluster_producer_ids_rate": setup.cluster_rate, "fuse": setup.fuse}
    return {
        "mode": "enforce" if setup.is_enforced else "observe",
        "producer_ids": {
            "window": f"{setup.window_ms}ms",
            "burst": setup.burst,
            "max_throttle": f"{setup.max_throttle_ms}ms",
            "transactional": "enforce" if setup.enforces_transactional else "observe",
            "refuse_init_producer_id": setup.refuses_init,
        },
        "default": {key: rate for key, rate in rates.items() if rate is not None},
        **{key: value for key, value in of_all.items() if value is not None},
    }
