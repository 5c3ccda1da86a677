"""A YAML file or command-line options -> checked settings, or one error that names every line and remedy.

The only place that reads either. Must not know sockets, the event loop or the environment.
"""

from pathlib import Path

from pydantic import ValidationError

from pidgate.gateway.config import conflicts, messages
from pidgate.gateway.config.settings import Settings
from pidgate.gateway.config.source import ConfigError, KeyPath, Problem, Source, parse_yaml, read_yaml

__all__ = ["ConfigError", "Problem", "Settings", "checked", "from_options", "load", "parse"]


def load(path: Path) -> Settings:
    """Read and check a file. Raises ConfigError with every problem, each with its line and remedy."""
    return checked(read_yaml(path))


def parse(text: str, name: str = "pidgate.yaml") -> Settings:
    """As load, from text; `name` is what messages call it."""
    return checked(parse_yaml(text, name))


def checked(source: Source) -> Settings:
    """Validate what was written. Raises ConfigError."""
    try:
        settings = Settings.model_validate(_without_nulls(source.data))
    except ValidationError as error:
        raise ConfigError(messages.problems(error, Settings, source)) from error
    found = [
        Problem(source.where(path), source.key(path), text) for path, text in conflicts.conflicts(settings)
    ]
    if found:
        raise ConfigError(found)
    return settings


def _without_nulls(data: object, path: KeyPath = ()) -> object:
    """`key: null`, or a key with nothing behind it, means its default; a user with nothing is a user."""
    if isinstance(data, dict):
        kept = {key: _without_nulls(value, (*path, key)) for key, value in data.items()}
        if path == ("quotas", "users"):
            return {key: {} if value is None else value for key, value in kept.items()}
        return {key: value for key, value in kept.items() if value is not None}
    return data if not isinstance(data, list) else [_without_nulls(item, (*path, 0)) for item in data]


class OptionSource(Source):
    """Settings written as command-line options: messages name the option."""

    def __init__(self, data: object, options: dict[KeyPath, str]) -> None:
        super().__init__("", data, {})
        self._options = options

    def where(self, path: KeyPath) -> str:
        while path and path not in self._options:
            path = path[:-1]
        return self._options.get(path, "")

    def key(self, path: KeyPath) -> str:
        return ""


_OPTIONS: dict[KeyPath, str] = {
    ("cluster", "bootstrap_servers"): "--bootstrap-servers",
    ("listeners", 0, "bind"): "--bind",
    ("listeners", 0, "advertise"): "--advertise",
    ("listeners", 0, "node_ports", "first"): "--node-ports-first",
    ("listeners", 0, "node_ports"): "--node-ports-first",
    ("listeners", 0): "--bind",
    ("admin", "bind"): "--admin",
    ("quotas", "default", "producer_ids_rate"): "--default-producer-ids-rate",
    ("quotas", "mode"): "--mode",
}


def from_options(
    bootstrap_servers: str,
    *,
    bind: str = "127.0.0.1:9292",
    advertise: str | None = None,
    node_ports_first: int = 9300,
    admin: str = "127.0.0.1:9290",
    default_producer_ids_rate: float | None = None,
    mode: str = "observe",
    log_format: str = "console",
) -> Settings:
    """Settings without a file; `bootstrap_servers` is comma-separated. Raises ConfigError naming options."""
    data = {
        "cluster": {
            "bootstrap_servers": [server for server in bootstrap_servers.split(",") if server.strip()]
        },
        "listeners": [{"bind": bind, "advertise": advertise, "node_ports": {"first": node_ports_first}}],
        "quotas": {"mode": mode, "default": {"producer_ids_rate": default_producer_ids_rate}},
        "admin": {"bind": admin},
        "log": {"format": log_format},
    }
    return checked(OptionSource(data, _OPTIONS))
