"""A real Kafka cluster on this machine, from package registries only: no Docker, no system Java."""

import sys
import time
from collections.abc import Sequence
from typing import Self

from tools.sandbox import guard
from tools.sandbox.errors import SandboxError
from tools.sandbox.jars import tools_version
from tools.sandbox.node import Node, new_uuid
from tools.sandbox.spec import PLAINTEXT, ClusterSpec
from tools.sandbox.tools import JavaTools

__all__ = ["Cluster", "ClusterSpec"]


class Cluster:
    """KRaft nodes that start in seconds and are cleaned up even if this process is killed.

    Use it in a `with` block, or call `start` and `stop`. All calls block. Raises ClusterNotReady with the end
    of the broker's log if a node fails to start.
    """

    def __init__(self, spec: ClusterSpec | None = None) -> None:
        self.spec = spec or ClusterSpec()
        self._nodes: dict[int, Node] = {}
        self.tools = JavaTools(tools_version(self.spec.version))
        """Kafka's command line tools for this version."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # Ctrl-C and skips (pytest's are no Exception) leave no failure to investigate.
        self.stop(keep_logs=isinstance(error, Exception) and self.spec.keep_logs_on_failure)

    def __repr__(self) -> str:
        state = {node_id: "up" if node.is_alive else "down" for node_id, node in self._nodes.items()}
        return f"<Cluster Kafka {self.spec.version} {state or 'not started'}>"

    # Life cycle

    def start(self) -> None:
        """Format and start; wait until every node responds and assigns producer ids.

        Raises SandboxError if already started, ClusterNotReady.
        """
        if self._nodes:
            raise SandboxError("the cluster was started already")
        self.spec.bind_address()
        self.directory = guard.temporary_directory(f"kafka-{self.spec.version}-")
        try:
            self._nodes = {
                node_id: Node(self.spec, node_id, self.directory / f"node-{node_id}")
                for node_id in self.spec.node_ids
            }
            cluster_id = new_uuid()
            for node in self._nodes.values():
                node.write_properties(self._controller_ports())
            for node in self._nodes.values():
                node.format(cluster_id)
                node.start()
            self.wait_until_ready()
        except BaseException:
            self.stop(keep_logs=self.spec.keep_logs_on_failure and bool(self._nodes))
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill the nodes and remove their directory; with `keep_logs` keep its logs and print the path."""
        nodes, self._nodes = self._nodes, {}
        # Killed instead of shut down: with the controllers stopping too, a controlled shutdown takes long and
        # saves nothing of use.
        for node in nodes.values():
            node.kill()
        if not hasattr(self, "directory"):
            return
        if keep_logs:
            for node in nodes.values():
                node.remove_data()
            guard.keep_directory(self.directory)
            print(f"sandbox: the logs of Kafka {self.spec.version} are in {self.directory}", file=sys.stderr)
        else:
            guard.remove_directory(self.directory)

    def wait_until_ready(self, node_ids: Sequence[int] | None = None) -> None:
        """Wait until the given nodes (default: those alive) are ready and know each other."""
        if node_ids is None:
            node_ids = [node_id for node_id, node in self._nodes.items() if node.is_alive]
        give_up_s = time.monotonic() + self.spec.ready_within_s
        for node_id in node_ids:
            self.node(node_id).wait_until_ready(frozenset(node_ids), give_up_s)

    def start_node(self, node_id: int, *, new_port: bool = False, wait: bool = True) -> None:
        """Restart a stopped node with its data, on its old ports or new ones. Raises SandboxError if it runs."""
        node = self.node(node_id)
        if node.is_alive:
            raise SandboxError(f"node {node_id} is running")
        if new_port:
            node.take_new_ports()
        node.write_properties(self._controller_ports())
        node.start()
        if wait:
            self.wait_until_ready()

    def node(self, node_id: int) -> Node:
        """Return a node for inspection or fault injection. Raises SandboxError for an unknown one."""
        try:
            return self._nodes[node_id]
        except KeyError:
            raise SandboxError(f"no node {node_id}: {self!r}") from None

    def bootstrap_servers(self, listener: str = PLAINTEXT) -> str:
        """Return host:port of every node, comma-separated."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses(listener).values())

    def addresses(self, listener: str = PLAINTEXT) -> dict[int, tuple[str, int]]:
        """Return each node's address on the listener (see Node.address).

        Raises SandboxError for an unknown one.
        """
        if listener not in self.spec.client_listeners:
            raise SandboxError(f"no listener {listener}: this cluster has {self.spec.client_listeners}")
        return {node_id: node.address(listener) for node_id, node in self._nodes.items()}

    @property
    def nodes(self) -> dict[int, tuple[str, int]]:
        """Return node id -> PLAINTEXT address."""
        return self.addresses()

    def _controller_ports(self) -> dict[int, int]:
        return {node.node_id: node.controller_port for node in self._nodes.values()}
