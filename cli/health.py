"""`pidgate health`: one HTTP question to the admin address of a running gateway. No proxy, no redirect."""

import http.client
import sys
from pathlib import Path
from typing import Final

HEALTHY: Final = 0
UNHEALTHY: Final = 1
USAGE_ERROR: Final = 2

DEFAULT_ADMIN: Final = "127.0.0.1:9290"


def health(file: Path | None, admin: str | None, *, ready: bool, timeout_s: float) -> int:
    """Ask /livez (or /readyz) and print the answer; returns the exit code.

    `file` may be missing: a container's health check names it even when the gateway was started by options.
    """
    from pidgate import units
    from pidgate.gateway.config.loading import ConfigError, load

    try:
        if admin is None and file is not None and file.exists():
            host, port = load(file).admin.bind
        else:
            host, port = units.address(admin or DEFAULT_ADMIN)
    except (ConfigError, ValueError) as error:
        print(f"pidgate health: {error}", file=sys.stderr)
        return USAGE_ERROR
    return _ask("127.0.0.1" if host in units.WILDCARD_HOSTS else host, port, ready=ready, timeout_s=timeout_s)


def _ask(host: str, port: int, *, ready: bool, timeout_s: float) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz" if ready else "/livez")
        response = connection.getresponse()
        text = response.read(1_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(f"unhealthy: {host}:{port} does not answer ({error or type(error).__name__})")
        return UNHEALTHY
    finally:
        connection.close()
    print(text)
    return HEALTHY if response.status == http.HTTPStatus.OK else UNHEALTHY
