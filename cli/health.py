"""`pidgate health`: one HTTP request to the admin address of a running gateway. No proxy, no redirect."""

import http.client
import sys
from typing import Final

from pidgate.cli.options import USAGE_ERROR, HealthOptions

HEALTHY: Final = 0
UNHEALTHY: Final = 1

DEFAULT_ADMIN: Final = "127.0.0.1:9290"


def health(options: HealthOptions) -> int:
    """Get /livez (or /readyz) and print the answer; return the exit code.

    The file may be missing: a container's health check names it even when the gateway was started by options.
    """
    from pidgate import units
    from pidgate.gateway.config.loading import ConfigError, load

    try:
        if options.admin is None and options.config is not None and options.config.exists():
            host, port = load(options.config).admin.bind
        else:
            host, port = units.address(options.admin or DEFAULT_ADMIN)
    except (ConfigError, ValueError) as error:
        print(f"pidgate health: {error}", file=sys.stderr)
        return USAGE_ERROR
    host = "127.0.0.1" if host in units.WILDCARD_HOSTS else host
    connection = http.client.HTTPConnection(host, port, timeout=options.timeout_s)
    try:
        connection.request("GET", "/readyz" if options.ready else "/livez", headers={"Host": "localhost"})
        response = connection.getresponse()
        text = response.read(1_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(f"unhealthy: {host}:{port} does not answer ({error or type(error).__name__})")
        return UNHEALTHY
    finally:
        connection.close()
    print(text)
    return HEALTHY if response.status == http.HTTPStatus.OK else UNHEALTHY
