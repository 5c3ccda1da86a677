"""The gateway as users run it: `pidgate run --config F` in its own process."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from pidgate.child_python import python_module
from tools.sandbox import guard
from tools.sandbox.ports import free_block, give_back

_HOST = "127.0.0.1"


class GatewayNotReady(AssertionError):
    """The gateway ended or was not ready in time. Includes the end of its output."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape of /metrics."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of all samples with this name and these labels; 0 if there are none."""
        wanted = labels.items()
        return sum(
            value
            for (sample, found), value in self.samples.items()
            if sample == name and wanted <= set(found)
        )

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def _without_grace(quotas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quotas without the grace period.

    A gateway started here is new and would refuse nothing for an hour.
    """
    producer_ids = {"grace": "0s", **(quotas.get("producer_ids") or {})}
    return {**quotas, "producer_ids": producer_ids}


class GatewayProcess(guard.GuardedProcess):
    """A gateway in front of these brokers, on free ports, with a generated configuration.

    `quotas`, `listener` and `settings` are sections of the configuration file (`settings`: top-level keys,
    which win). Node ports are reserved up to the highest of `node_ids`. `environment` replaces that of this
    process; `module` is the command in it; `run_by` prefixes the command line (with valgrind, for example);
    `options` go with --config.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        quotas: Mapping[str, Any] | None = None,
        listener: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        node_ids: Iterable[int] = (1,),
        ready_within_s: float = 20.0,
        environment: Mapping[str, str] | None = None,
        module: str = "pidgate",
        run_by: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        brokers = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
        # One block, so that node ports do not collide with the other two.
        self._port_count = max(node_ids) + 3
        self.admin_port = free_block(self._port_count)
        self.port = self.admin_port + 1
        self.first_node_port = self.admin_port + 2
        self.config: dict[str, Any] = {
            "cluster": {"bootstrap_servers": list(brokers)},
            "listeners": [
                {
                    "bind": f"{_HOST}:{self.port}",
                    "advertise": _HOST,
                    "node_ports": {"first": self.first_node_port},
                    **(listener or {}),
                }
            ],
            "quotas": _without_grace(quotas or {"mode": "observe"}),
            "admin": {"bind": f"{_HOST}:{self.admin_port}"},
            # Off by default, because most tests inspect something else on the brokers.
            "events": {"enabled": False},
            **(settings or {}),
        }
        self._ready_within_s = ready_within_s
        self._environment = environment
        self._module = module
        self._run_by = run_by
        self._options = options
        self.directory: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            error.add_note(f"the end of the gateway's log:\n{self.log_tail()}")
        self.kill()
        give_back(self.admin_port, self._port_count)
        if self.directory is not None:
            guard.remove_directory(self.directory)

    @property
    def bootstrap_servers(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://{_HOST}:{self.admin_port}"

    def start(self, *, wait: bool = True) -> None:
        """Start or restart on the same ports; by default wait for /readyz. Raises GatewayNotReady."""
        if self.directory is None:
            self.directory = guard.temporary_directory("pidgate-")
        config = self.directory / "pidgate.yaml"
        config.write_text(yaml.safe_dump(self.config, sort_keys=False))
        with (self.directory / "pidgate.log").open("ab") as log:
            self._process = guard.spawn(
                [*self._run_by, *python_module(self._module, "run", "--config", str(config), *self._options)],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Poll /readyz. Raises GatewayNotReady with the end of the log."""
        give_up_s = time.monotonic() + self._ready_within_s
        while self.status("/readyz") != 200:
            if not self.is_alive:
                raise GatewayNotReady(f"the gateway ended with {self.exit_code}:\n{self.log_tail()}")
            if time.monotonic() > give_up_s:
                raise GatewayNotReady(f"the gateway was not ready in time:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, timeout_s: float = 40.0) -> int:
        """Send SIGTERM and return the exit code. Raises GatewayNotReady on timeout."""
        self.signal(signal.SIGTERM)
        code = self.wait(timeout_s)
        if code is None:
            self.kill()
            raise GatewayNotReady(f"no end {timeout_s:g} s after SIGTERM:\n{self.log_tail()}")
        return code

    def status(self, path: str) -> int:
        """Return the HTTP status of a page of the admin site; 0 without a response."""
        try:
            with urllib.request.urlopen(f"{self.admin_url}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def read(self, path: str) -> str:
        """Return a page of the admin site. Raises OSError, also for a status of 400 and above."""
        with urllib.request.urlopen(f"{self.admin_url}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metrics(self) -> Metrics:
        return Metrics.parse(self.read("/metrics"))

    def log_text(self) -> str:
        """Return its stdout and stderr over all starts."""
        log = None if self.directory is None else self.directory / "pidgate.log"
        return log.read_text(errors="replace") if log is not None and log.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_events(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the JSON lines of its log, optionally of one event name."""
        events = [json.loads(line) for line in self.log_text().splitlines() if line.startswith("{")]
        return [found for found in events if event is None or found.get("event") == event]
