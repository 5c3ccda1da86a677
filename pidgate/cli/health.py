"""`pidgate health`: one HTTP request to the admin address of a running gateway. No proxy, no redirect."""

import http.client
import sys
from typing import Final

from pidgate.cli.admin_address import DEFAULT_ADMIN, AdminAddress, cause_of, of_settings, of_text
from pidgate.cli.options import USAGE_ERROR, HealthOptions
from pidgate.gateway.errors import CannotStart

HEALTHY: Final = 0
UNHEALTHY: Final = 1

TIMEOUT_S: Final = 3.0
"""Below the 5 s timeout of the image's health check."""


def health(options: HealthOptions) -> int:
    """Get /livez (or /readyz) and print the answer; return the exit code.

    The file may be missing: a container's health check names it even if the gateway was started with options.
    """
    from pidgate.gateway.config.loading import ConfigError, load

    try:
        if options.admin is None and options.config is not None and options.config.exists():
            at = of_settings(load(options.config).admin)
        else:
            at = of_text(options.admin or DEFAULT_ADMIN, options.ca_file)
    except (ConfigError, ValueError, CannotStart) as error:
        print(f"pidgate health: {error}", file=sys.stderr)
        return USAGE_ERROR
    is_ok, text = answer_at(at, "/readyz" if options.ready else "/livez")
    print(text)
    return HEALTHY if is_ok else UNHEALTHY


def answer_at(at: AdminAddress, path: str) -> tuple[bool, str]:
    """Get /livez or /readyz; return whether the answer is 200, and its text or why there is none."""
    connection = at.connect(TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        response = connection.getresponse()
        text = response.read(1_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"unhealthy: {at.address} does not answer ({cause_of(error)})"
    finally:
        connection.close()
    return response.status == http.HTTPStatus.OK, text
