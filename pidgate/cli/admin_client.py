"""HTTP client of the admin addresses of running gateways. No proxy, no redirect.

Gateways are called concurrently: with Kafka down, each needs a few seconds to answer.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from pidgate.cli.admin_address import DEFAULT_ADMIN, AdminAddress, cause_of, of_settings, of_text
from pidgate.cli.options import GatewayOptions, WhoOptions
from pidgate.gateway.config.local_token import token_of
from pidgate.gateway.config.password_file import CredentialsUnreadable, secret_in
from pidgate.gateway.errors import CannotStart
from pidgate.units import WILDCARD_HOSTS, Address, is_loopback

if TYPE_CHECKING:
    from pidgate.gateway.config.settings import AdminSettings

DONE: Final = 0
NOT_DONE: Final = 1
"""Not reached, or refused."""
USAGE_ERROR: Final = 2
TIMEOUT_S: Final = 15.0
"""A gateway answers within a few seconds, whatever the state of Kafka."""
_MOST_AT_ONCE: Final = 32
_LONGEST_ANSWER: Final = 256 * 1024 * 1024

JsonObject = dict[str, Any]


class BadUsage(Exception):
    """The command line cannot be executed. The text is the remedy."""


class Failed(Exception):
    """A gateway was not reached, or refused. The text gives the reason and the remedy."""


def gateways(options: GatewayOptions | WhoOptions) -> list[Gateway]:
    """Return the gateways named by the options, at least one. Raises BadUsage."""
    admin, token_file, own = options.admin, options.token_file, None
    try:
        if options.config is not None:
            settings = _admin_settings(options.config)
            own = None if admin else of_settings(settings)
            token_file = token_file or (Path(settings.token_file) if settings.token_file else None)
        named = [of_text(text, options.ca_file) for text in dict.fromkeys(admin or [DEFAULT_ADMIN])]
    except (ValueError, CannotStart) as error:
        raise BadUsage(str(error)) from error
    token = None if token_file is None else _token(token_file)
    addresses = named if own is None else [own]
    return [Gateway(found, token or _token_of_own_gateway(found.address)) for found in addresses]


def _admin_settings(file: Path) -> AdminSettings:
    # Its import takes as long as the rest of the command.
    from pidgate.gateway.config.loading import ConfigError, load

    try:
        return load(file).admin
    except ConfigError as error:
        raise BadUsage(str(error)) from error


def _token_of_own_gateway(address: Address) -> str | None:
    """Return the token that a gateway of this user has created on this machine."""
    return token_of(address.port) if is_loopback(address.host) or address.host in WILDCARD_HOSTS else None


def _token(file: Path) -> str:
    try:
        token = secret_in(file, "ascii").strip()
    except CredentialsUnreadable as error:
        raise BadUsage(
            f"the token file {file} cannot be read ({error}); name another one with --token-file"
        ) from None
    if len(token.split()) != 1:
        raise BadUsage(f"the token file {file} must hold one word")
    return token


@dataclass(frozen=True)
class Gateway:
    """One gateway's admin address."""

    at: AdminAddress
    token: str | None

    @property
    def address(self) -> Address:
        return self.at.address

    def get(self, path: str, **query: str | int | None) -> JsonObject:
        """Send a GET; return the answer together with the address. Raises Failed, BadUsage."""
        text = urlencode({key: value for key, value in query.items() if value is not None}, quote_via=quote)
        return self._request("GET", f"{path}?{text}" if text else path, None)

    def post(self, path: str, content: Mapping[str, Any]) -> JsonObject:
        """Send a POST; return the answer together with the address. Raises Failed, BadUsage."""
        return self._request("POST", path, json.dumps(content).encode())

    def text(self, path: str) -> str:
        """Send a GET; return the text of the answer. Raises Failed, BadUsage."""
        status, content = self._exchange("GET", path, None)
        if status != HTTPStatus.OK:
            self._answer(status, content)
        return content.decode(errors="replace")

    def _request(self, method: str, path: str, body: bytes | None) -> JsonObject:
        return self._answer(*self._exchange(method, path, body))

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self.at.connect(TIMEOUT_S)
        # The gateway checks it against web pages of other sites, which cannot set it. It need not be the
        # gateway's name.
        headers = {"Host": "localhost"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise Failed(
                f"{self.address} does not answer ({cause_of(error)}); "
                "is it the admin address of a running gateway? name others with --admin HOST:PORT"
            ) from error
        finally:
            connection.close()
        return response.status, text

    def _answer(self, status: int, text: bytes) -> JsonObject:
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if status == HTTPStatus.OK and isinstance(answer, dict):
            return {"address": str(self.address), **answer}
        if not isinstance(answer, dict) or "error" not in answer:
            raise Failed(
                f"{self.address} answers {status} and knows no quotas; is it a pidgate of this version?"
            )
        problems = "; ".join(str(problem) for problem in answer.get("problems", ()))
        reason = f"{answer['error']}: {problems}" if problems else str(answer["error"])
        if status == HTTPStatus.BAD_REQUEST:
            raise BadUsage(f"{self.address}: {reason}")
        if status == HTTPStatus.UNAUTHORIZED:
            reason += "; name its file with --token-file"
        raise Failed(f"{self.address}: {reason}")


def for_each(
    options: GatewayOptions,
    command: str,
    call: Callable[[Gateway], JsonObject],
    show: Callable[[JsonObject], None],
) -> int:
    """Call each gateway, show the answers, print failures to stderr; return the exit code.

    With --json the answers form one list.
    """
    try:
        found = gateways(options)
    except BadUsage as error:
        print(f"pidgate {command}: {error}", file=sys.stderr)
        return USAGE_ERROR
    with ThreadPoolExecutor(min(len(found), _MOST_AT_ONCE)) as threads:
        outcomes = list(threads.map(lambda gateway: _outcome(gateway, call), found))
    if options.as_json:
        print(json.dumps([_as_json(outcome) for outcome in outcomes], indent=2))
    exit_code = DONE
    for outcome in outcomes:
        if isinstance(outcome, dict):
            if not options.as_json:
                show(outcome)
        else:
            print(f"pidgate {command}: {outcome}", file=sys.stderr)
            exit_code = max(exit_code, USAGE_ERROR if isinstance(outcome, BadUsage) else NOT_DONE)
    return exit_code


def _outcome(gateway: Gateway, call: Callable[[Gateway], JsonObject]) -> JsonObject | BadUsage | Failed:
    try:
        return call(gateway)
    except (BadUsage, Failed) as error:
        return error


def _as_json(outcome: JsonObject | BadUsage | Failed) -> JsonObject:
    return outcome if isinstance(outcome, dict) else {"error": str(outcome)}
