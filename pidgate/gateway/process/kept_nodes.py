"""The brokers' addresses in the state directory: after a restart their ports are open before any client has come."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pidgate.gateway.cluster.nodes import Nodes
from pidgate.gateway.state.state_dir.kept_file import KeptFile

NODES_FILE: Final = "nodes.json"


class KeptNodes:
    """The file of the nodes: `restore` once, `changed` for each new, moved or dropped node, then `close`.

    A node whose address was forgotten, because it did not answer, stays in the file. The file is used only with
    the same bootstrap servers: another cluster's brokers must not get the passwords of clients.
    """

    def __init__(self, directory: str | Path, nodes: Nodes) -> None:
        self._nodes = nodes
        self._servers = sorted(f"{host}:{port}" for host, port in nodes.bootstrap_servers)
        self._file = KeptFile(directory, NODES_FILE, self._contents, dict, _entry)
        self.changed = self._file.changed
        self.close = self._file.close

    def restore(self) -> None:
        """Learn the nodes of the file; blocks briefly."""
        for kept in self._file.read():
            if kept["bootstrap_servers"] == self._servers:
                for node_id, host, port in kept["nodes"]:
                    self._nodes.learn_node(node_id, host, port)

    def _contents(self) -> list[dict[str, Any]]:
        nodes = [[node_id, *address] for node_id, address in sorted(self._nodes.last_addresses.items())]
        return [{"bootstrap_servers": self._servers, "nodes": nodes}]


def _entry(kept: dict[str, Any]) -> dict[str, Any]:
    nodes = [(int(node_id), str(host), int(port)) for node_id, host, port in kept["nodes"]]
    return {"bootstrap_servers": list(kept["bootstrap_servers"]), "nodes": nodes}
