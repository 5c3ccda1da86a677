"""The network of a simulation: who listens where, what is connected, and its faults.

Everybody's names are everybody's: an address is (host, port) or a Unix socket's path. A link's delays come from a
generator of its own, seeded by its ends' names and its number among them, so that what happens to one link does not
change with what others carry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from socket import gaierror
from typing import Any, Final

from tests.simulator.link import Link, Weather
from tests.simulator.process import CURRENT, Process
from tests.simulator.transport import End

Address = tuple[str, int] | str

FIRST_DESCRIPTOR: Final = 1 << 30
"""No real file has such a number: who writes to one is told that there is none."""
_FIRST_EPHEMERAL_PORT: Final = 40_000
_MOST_WAITING: Final = 1_024
_AGAIN_S: Final = 1.0
"""Until a connection that found a full queue, or a partition, is tried again, as TCP does."""
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})
_LOCAL_HOST: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_UNIX_WEATHER: Final = Weather(shortest_delay_s=0.00001, longest_delay_s=0.0002)


class _Listening:
    """A kernel's listening socket: connections wait in it until they are accepted."""

    def __init__(self, address: Address, process: Process, shares_port: bool) -> None:
        self.address = address
        self.process = process
        self.shares_port = shares_port
        self.waiting: deque[End] = deque()
        self.descriptors = 0
        self.accept: Callable[[], object] | None = None

    def come(self, end: End) -> None:
        self.waiting.append(end)
        if self.accept is not None:
            end.link.loop.call_soon(self.accept, context=self.process.context)


class SimulatedSocket:
    """A descriptor of a listening socket: what the gateway needs of a socket.socket."""

    def __init__(self, network: Network, listening: _Listening) -> None:
        self._network = network
        self.listening = listening
        self._is_closed = False
        listening.descriptors += 1

    def dup(self) -> SimulatedSocket:
        return SimulatedSocket(self._network, self.listening)

    def getsockname(self) -> Address:
        return self.listening.address

    def setsockopt(self, *_: object) -> None:
        """Take a packet filter, which changes nothing here: a drain goes on accepting for its longest time."""

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.listening.descriptors -= 1
            if not self.listening.descriptors:
                self._network.stop_listening(self.listening)


class SimulatedServer(asyncio.AbstractServer):
    """Accepts on a socket, until it is closed; then it closes the socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, factory: Callable[[], Any], bound: SimulatedSocket
    ) -> None:
        self._loop = loop
        self._factory = factory
        self._bound: SimulatedSocket | None = bound
        bound.listening.accept = self._accept
        loop.call_soon(self._accept)

    @property
    def sockets(self) -> Sequence[SimulatedSocket]:
        return [] if self._bound is None else [self._bound]

    def _accept(self) -> None:
        waiting = None if self._bound is None else self._bound.listening.waiting
        while waiting:
            waiting.popleft().open(self._factory())

    def close(self) -> None:
        bound, self._bound = self._bound, None
        if bound is not None:
            bound.listening.accept = None
            bound.close()

    def is_serving(self) -> bool:
        return self._bound is not None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def start_serving(self) -> None:
        """It has begun."""

    async def wait_closed(self) -> None:
        """Nothing has to be waited for."""

    async def serve_forever(self) -> None:
        await self._loop.create_future()


class Network:
    """All links. Faults: `cut` and `hold` of a Link, `partition`, `refuse`, and its processes' deaths.

    `weather`: what new links get. `trace`: (time, link, whom it reached, bytes or Mark) of all that arrives, if kept;
    `written`: (time, link, who wrote, bytes) of all that leaves.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int | str) -> None:
        self.weather = Weather()
        self.trace: list[Any] | None = None
        self.written: list[Any] | None = None
        self._loop = loop
        self._seed = seed
        self._random = Random(f"{seed}/network")
        self._listening: dict[Address, list[_Listening]] = {}
        self._links: dict[Link, None] = {}
        self._made: dict[str, int] = {}
        self._watched: set[Process] = set()
        self._parted: set[frozenset[str]] = set()
        self._refused: set[Address] = set()
        self._unknown: set[str] = set()
        self._on_demand: set[str] = set()
        self._ports_given = 0
        self._ends: dict[int, End] = {}
        """Of all links there were, by descriptor."""
        self._next_descriptor = FIRST_DESCRIPTOR

    # ---- faults ----------------------------------------------------------------------------------------

    def links(self, *names: str) -> list[Link]:
        """Return the open links, oldest first; of two processes, or of one, where they are named."""
        for link in [link for link in self._links if not link.is_open]:
            del self._links[link]
        wanted = set(names)
        return [
            link for link in self._links if wanted <= {link.client.process.name, link.server.process.name}
        ]

    def partition(self, one: str, other: str) -> None:
        """Let nothing pass between two processes, until `heal`; what is on its way waits."""
        self._parted.add(frozenset((one, other)))
        for link in self.links(one, other):
            link.hold()

    def heal(self) -> None:
        """End all partitions; nobody reads on demand any more."""
        self._parted.clear()
        self._on_demand.clear()
        for link in self.links():
            if link.client.is_held or link.server.is_held or link.is_read_on_demand:
                link.release()

    def read_on_demand(self, name: str) -> None:
        """Have a client read answers to its Produces only when it is let, until `heal`."""
        self._on_demand.add(name)
        for link in self.links(name):
            link.is_read_on_demand = link.client.process.name == name

    def refuse(self, address: Address, refused: bool = True) -> None:
        """Refuse connections to an address, or no more."""
        (self._refused.add if refused else self._refused.discard)(address)

    def unknown(self, host: str, unknown: bool = True) -> None:
        """Have a host's name not resolved, or resolved again."""
        (self._unknown.add if unknown else self._unknown.discard)(host)

    def resolve(self, host: str) -> None:
        """Raise gaierror where the name is unknown."""
        if host in self._unknown:
            raise gaierror(-2, "Name or service not known")

    def close(self) -> None:
        """Close every socket: the run is over."""
        for link in self._links:
            for end in (link.client, link.server):
                end.on_ready = None
                end.close_socket()

    # ---- descriptors -----------------------------------------------------------------------------------

    def next_descriptor(self) -> int:
        """Return the number of a new file, which no other one of any process has."""
        self._next_descriptor += 1
        return self._next_descriptor

    def end(self, descriptor: int) -> End:
        """Return the end with this descriptor."""
        return self._ends[descriptor]

    # ---- listening -------------------------------------------------------------------------------------

    def listen(self, address: Address, *, shares_port: bool = False) -> SimulatedSocket:
        """Listen, as the process that runs. Raises OSError where another does."""
        process = self._process()
        if not isinstance(address, str):
            host, port = address
            if host in _ANY_HOST or host in _LOCAL_HOST:
                host = process.host
            address = host, port or self._free_port()
        others = self._listening.get(address, [])
        if isinstance(address, str):
            others = []  # the path was unlinked before
        elif others and not (shares_port and all(other.shares_port for other in others)):
            raise OSError(98, "Address already in use")
        made = _Listening(address, process, shares_port)
        self._listening[address] = [*others, made]
        process.at_death.append(lambda: self.stop_listening(made))
        return SimulatedSocket(self, made)

    def bind(self, host: str, port: int, shares_port: bool) -> Any:
        """Listen on a port, in place of the sockets of a gateway's listener."""
        return self.listen((host, port), shares_port=shares_port)

    def stop_listening(self, listening: _Listening) -> None:
        """Close a listening socket with all that waits in it."""
        others = self._listening.get(listening.address, [])
        if listening in others:
            self._listening[listening.address] = [other for other in others if other is not listening]
        while listening.waiting:
            listening.waiting.popleft().close_socket(resets=True)

    def _free_port(self) -> int:
        self._ports_given += 1
        return _FIRST_EPHEMERAL_PORT + self._ports_given

    # ---- connecting ------------------------------------------------------------------------------------

    async def connect(self, factory: Callable[[], Any], address: Address) -> tuple[End, Any]:
        """Connect, as the process that runs. Raises OSError."""
        process = self._process()
        weather = self.weather
        if isinstance(address, str):
            weather = _UNIX_WEATHER
        else:
            self.resolve(address[0])
            if address[0] in _LOCAL_HOST:
                address = process.host, address[1]
        pair = f"{process.name} -> {_shown(address)}"
        number = self._made[pair] = self._made.get(pair, 0) + 1
        name = f"{pair} #{number}"
        link = Link(name, self._loop, replace(weather), Random(f"{self._seed}/{name}"), self.trace)
        link.written = self.written
        link.is_read_on_demand = process.name in self._on_demand
        client = End(link, process, address, (process.ip, self._free_port()))
        try:
            await asyncio.sleep(link.delay_s())
            server = await self._reach(address, link, client)
            await asyncio.sleep(link.delay_s())
            assert server.peer is client
            protocol = factory()
            client.open(protocol)
            # As asyncio: whoever waits goes on after connection_made.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if hasattr(client, "peer"):
                client.close_socket()
            raise
        return client, protocol

    async def _reach(self, address: Address, link: Link, client: End) -> End:
        """The first packet arrives: return the server's end, which waits there to be accepted."""
        me = client.process.name
        while True:
            there = [] if address in self._refused else self._listening.get(address, [])
            open_for_me = [one for one in there if frozenset((me, one.process.name)) not in self._parted]
            if not there:
                await asyncio.sleep(link.delay_s())
                if isinstance(address, str):
                    raise FileNotFoundError(2, "No such file or directory", address)
                raise ConnectionRefusedError(111, f"Connect call failed {address}")
            roomy = [one for one in open_for_me if len(one.waiting) < _MOST_WAITING]
            if roomy:
                found = roomy[int(link.random.random() * len(roomy))]
                server = End(link, found.process, client.get_extra_info("sockname"), address)
                link.join(client, server)
                self._keep(link)
                found.come(server)
                return server
            await asyncio.sleep(_AGAIN_S)

    def _keep(self, link: Link) -> None:
        self._links[link] = None
        for end in (link.client, link.server):
            end.descriptor = self.next_descriptor()
            self._ends[end.descriptor] = end
        for end in (link.client, link.server):
            if end.process not in self._watched:
                self._watched.add(end.process)
                end.process.at_death.append(lambda gone=end.process: self._close_all_of(gone))  # type: ignore[misc]

    def _close_all_of(self, process: Process) -> None:
        for link in self._links:
            for end in (link.client, link.server):
                if end.process is process:
                    end.close_socket()

    def _process(self) -> Process:
        process = CURRENT.get()
        if process is None:
            raise RuntimeError("only a process has sockets: use Process.spawn or Process.call")
        return process


def _shown(address: Address) -> str:
    """Return an address for names and seeds; of a path only its end, as the run's folder has another name each time."""
    if isinstance(address, str):
        return "/".join(address.split("/")[-2:])
    return f"{address[0]}:{address[1]}"
