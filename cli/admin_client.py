"""The admin address of running gateways, asked over HTTP as a command line names them. No proxy, no redirect.

Each gateway is asked by itself and at the same time: with Kafka down, each one needs some seconds to say so.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from pidgate import units
from pidgate.cli.health import DEFAULT_ADMIN
from pidgate.units import WILDCARD_HOSTS, Address

if TYPE_CHECKING:
    from pidgate.gateway.config.settings import AdminSettings

DONE: Final = 0
NOT_DONE: Final = 1
"""Not reached, or refused."""
USAGE_ERROR: Final = 2
TIMEOUT_S: Final = 15.0
"""A gateway tells within a few seconds where a change is kept, however Kafka is."""
_MOST_AT_ONCE: Final = 32
_LONGEST_ANSWER: Final = 256 * 1024 * 1024

Told = dict[str, Any]


class Wrong(Exception):
    """What was typed cannot be done; says what to type."""


class NotDone(Exception):
    """A gateway was not reached, or refused; says why, and what to do."""


@dataclass(frozen=True)
class Where:
    """Which gateways, as the command line says: by a file, by addresses, or the one on this machine."""

    config: Path | None = None
    admin: Sequence[str] = ()
    token_file: Path | None = None
    timeout_s: float = TIMEOUT_S
    as_json: bool = False

    def gateways(self) -> list[Gateway]:
        """At least one. Raises Wrong."""
        admin, token_file = list(self.admin), self.token_file
        if self.config is not None:
            settings = _admin_settings(self.config)
            admin = admin or [str(settings.bind)]
            token_file = token_file or (Path(settings.token_file) if settings.token_file else None)
        try:
            addresses = [units.address(text) for text in dict.fromkeys(admin or [DEFAULT_ADMIN])]
        except ValueError as error:
            raise Wrong(str(error)) from error
        token = None if token_file is None else _token(token_file)
        return [Gateway(address, token, self.timeout_s) for address in addresses]


def _admin_settings(file: Path) -> AdminSettings:
    # It takes as long to load as all the rest of the command.
    from pidgate.gateway.config.loading import ConfigError, load

    try:
        return load(file).admin
    except ConfigError as error:
        raise Wrong(str(error)) from error


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise Wrong(
            f"the token file {file} cannot be read ({error}); name another one with --token-file"
        ) from error
    if len(token.split()) != 1:
        raise Wrong(f"the token file {file} must hold one word")
    return token


@dataclass(frozen=True)
class Gateway:
    """One gateway's admin address."""

    address: Address
    token: str | None
    timeout_s: float

    def get(self, path: str, **query: str | int | None) -> Told:
        """Raises NotDone, Wrong."""
        asked = urlencode({key: value for key, value in query.items() if value is not None}, quote_via=quote)
        return self._ask("GET", f"{path}?{asked}" if asked else path, None)

    def post(self, path: str, content: Mapping[str, Any]) -> Told:
        """Raises NotDone, Wrong."""
        return self._ask("POST", path, json.dumps(content).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Told:
        host, port = self.address
        connection = http.client.HTTPConnection(
            "127.0.0.1" if host in WILDCARD_HOSTS else host, port, timeout=self.timeout_s
        )
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NotDone(
                f"{self.address} does not answer ({cause}); "
                "is it the admin address of a running gateway? name others with --admin HOST:PORT"
            ) from error
        finally:
            connection.close()
        return self._told(response.status, text)

    def _told(self, status: int, text: bytes) -> Told:
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if status == HTTPStatus.OK and isinstance(told, dict):
            return {"address": str(self.address), **told}
        if not isinstance(told, dict) or "error" not in told:
            raise NotDone(
                f"{self.address} answers {status} and knows no quotas; is it a pidgate of this version?"
            )
        problems = "; ".join(str(problem) for problem in told.get("problems", ()))
        reason = f"{told['error']}: {problems}" if problems else str(told["error"])
        if status == HTTPStatus.BAD_REQUEST:
            raise Wrong(f"{self.address}: {reason}")
        if status == HTTPStatus.UNAUTHORIZED:
            reason += "; name its file with --token-file"
        raise NotDone(f"{self.address}: {reason}")


def for_each(
    where: Where,
    command: str,
    do: Callable[[Gateway], Told],
    show: Callable[[Told], None],
) -> int:
    """Do it with each gateway, show what each told, complain of the others; returns the exit code.

    One that cannot be reached keeps nobody from telling the rest. With --json what they told is one list.
    """
    try:
        gateways = where.gateways()
    except Wrong as error:
        print(f"pidgate {command}: {error}", file=sys.stderr)
        return USAGE_ERROR
    with ThreadPoolExecutor(min(len(gateways), _MOST_AT_ONCE)) as threads:
        outcomes = list(threads.map(lambda gateway: _outcome(gateway, do), gateways))
    if where.as_json:
        print(json.dumps([_as_json(outcome) for outcome in outcomes], indent=2))
    exit_code = DONE
    for outcome in outcomes:
        if isinstance(outcome, dict):
            if not where.as_json:
                show(outcome)
        else:
            print(f"pidgate {command}: {outcome}", file=sys.stderr)
            exit_code = max(exit_code, USAGE_ERROR if isinstance(outcome, Wrong) else NOT_DONE)
    return exit_code


def _outcome(gateway: Gateway, do: Callable[[Gateway], Told]) -> Told | Wrong | NotDone:
    try:
        return do(gateway)
    except (Wrong, NotDone) as error:
        return error


def _as_json(outcome: Told | Wrong | NotDone) -> Told:
    return outcome if isinstance(outcome, dict) else {"error": str(outcome)}
