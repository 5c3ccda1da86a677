"""One node: its directory, ports and process."""

import base64
import shutil
import signal
import threading
import time
import uuid
from collections import deque
from pathlib import Path

from pidgate.protocol.errors import KafkaProtocolError
from tools.sandbox import guard, wire
from tools.sandbox.errors import ClusterNotReady
from tools.sandbox.gclog import HeapSample, heap_samples
from tools.sandbox.ports import free_port
from tools.sandbox.properties import render, scram_arguments, server_properties
from tools.sandbox.spec import PLAINTEXT, ClusterSpec
from tools.sandbox.tools import JavaTools

_GC_LOG = "gc.log"
_BROKER_LOG = "broker.log"
_PROPERTIES = "server.properties"

_formatting = threading.Lock()
_formatted: dict[tuple[object, ...], dict[Path, bytes]] = {}
"""Initial records of a cluster by kind, equal on each of its nodes: features and users."""


def new_uuid() -> str:
    """Return a UUID in Kafka's format without a leading dash, which the tools would parse as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


class Node(guard.GuardedProcess):
    """A combined broker and controller in its own process."""

    def __init__(self, spec: ClusterSpec, node_id: int, directory: Path) -> None:
        self.spec = spec
        self.node_id = node_id
        self.directory = directory
        self.controller_port = free_port()
        self.ports: dict[str, int] = {}
        self._starts = 0
        self.take_new_ports()
        directory.mkdir(parents=True)

    def take_new_ports(self) -> None:
        """Use other client ports from the next start; the controller's stays, because voters are fixed."""
        self.ports = {listener: free_port() for listener in self.spec.client_listeners}

    def address(self, listener: str = PLAINTEXT) -> tuple[str, int]:
        """Return the listener's address, equal to the advertised one except for PROXIED."""
        return self.spec.advertised_host, self.ports[listener]

    def write_properties(self, controller_ports: dict[int, int]) -> None:
        properties = server_properties(
            self.spec,
            node_id=self.node_id,
            ports=self.ports,
            controller_ports=controller_ports,
            directory=self.directory,
        )
        (self.directory / _PROPERTIES).write_text(render(properties))

    def format(self, cluster_id: str) -> None:
        """Write the metadata directory including SCRAM users; StorageTool runs once per kind of cluster."""
        spec = self.spec
        options = [*scram_arguments(spec)]
        for name, level in spec.features.items():
            options += ["--feature", f"{name}={level}"]
        alike = (spec.version, *options, *sorted(spec.properties.items()))
        data = self.directory / "data"
        with _formatting:
            if alike not in _formatted:
                tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id)
                JavaTools(spec.version).run(*tool, "-c", str(self.directory / _PROPERTIES), *options)
                # Kafka 4.4 writes a snapshot of its metadata log, earlier versions bootstrap.checkpoint.
                written = data.rglob("*.checkpoint")
                _formatted[alike] = {file.relative_to(data): file.read_bytes() for file in written}
                return
        for path, content in _formatted[alike].items():
            (data / path).parent.mkdir(parents=True, exist_ok=True)
            (data / path).write_bytes(content)
        own = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(self.node_id),
            "directory.id": new_uuid(),
        }
        (data / "meta.properties").write_text(render(own))

    def start(self) -> None:
        self._starts += 1
        with (self.directory / _BROKER_LOG).open("ab") as log:
            self._process = guard.spawn(self._command(), stdout=log, stderr=log, cwd=self.directory)

    def _command(self) -> list[str]:
        spec = self.spec
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        java = JavaTools(
            spec.version, spec.heap_mb, spec.jvm_options, log_level="info", java_modules=spec.java_modules
        )
        return java.command(
            "kafka.Kafka",
            str(self.directory / _PROPERTIES),
            jvm_options=(
                "-XX:+ExitOnOutOfMemoryError",
                # One log per start, because its clock restarts.
                f"-Xlog:gc:file={self._gc_log(self._starts)}:uptime",
                # Directory for native libraries; a killed JVM would leave them in /tmp.
                f"-Djava.io.tmpdir={temporary}",
            ),
        )

    def _gc_log(self, start: int) -> Path:
        return self.directory / f"{_GC_LOG}.{start}"

    def is_ready(self, node_ids: frozenset[int]) -> bool:
        """Return whether it responds, knows all these nodes and assigns producer ids."""
        try:
            view = wire.broker_view(self.address())
            return (
                node_ids <= view.brokers.keys()
                and view.brokers[self.node_id] == self.address()
                and view.controller_id >= 0
                and wire.init_producer_id_error(self.address()) == 0
            )
        except (OSError, KafkaProtocolError):
            return False

    def wait_until_ready(self, node_ids: frozenset[int], give_up_s: float) -> None:
        """Poll until ready; `give_up_s` is a time.monotonic(). Raises ClusterNotReady with the log's end."""
        while not self.is_ready(node_ids):
            if not self.is_alive:
                raise ClusterNotReady(
                    f"node {self.node_id} ended with {self.exit_code}; the end of its log:\n{self.log_tail()}"
                )
            if time.monotonic() > give_up_s:
                raise ClusterNotReady(
                    f"node {self.node_id} was not ready in time; the end of its log:\n{self.log_tail()}"
                )
            time.sleep(0.05)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Shut down in a controlled way; kill on timeout."""
        self.signal(signal.SIGTERM)
        if self.wait(timeout_s) is None:
            self.kill()

    def log_tail(self, lines: int = 40) -> str:
        try:
            with (self.directory / _BROKER_LOG).open(errors="replace") as log:
                return "".join(deque(log, lines))
        except FileNotFoundError:
            return ""

    def heap_samples(self) -> list[HeapSample]:
        """Return the heap since the latest start, one sample per garbage collection."""
        try:
            with self._gc_log(self._starts).open(errors="replace") as log:
                return heap_samples(log)
        except FileNotFoundError:
            return []

    def remove_data(self) -> None:
        """Remove everything except logs and properties."""
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)
