"""`pidgate my`: what a gateway says of the user that asks it, over Kafka's protocol."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import sys
from collections.abc import Generator, Iterator
from typing import Any, Final

from pidgate import units
from pidgate.cli.explain import waits_in_words
from pidgate.cli.kafka_login import login_of, missing_login, settings_in, tls_of
from pidgate.cli.options import USAGE_ERROR, MyOptions
from pidgate.gateway.cluster.own_connections import NO_BROKER, connection_to, login_exchange, run
from pidgate.gateway.cluster.probe import cause_of
from pidgate.gateway.cluster.resolving import Resolver
from pidgate.gateway.config.source import ConfigError
from pidgate.load.plan import Login
from pidgate.protocol import client_quotas
from pidgate.protocol.logins import Build, LoginRefused
from pidgate.units import moment, printable

TOLD: Final = 0
NOT_TOLD: Final = 1
TIMEOUT_S: Final = 10.0

JsonObject = dict[str, Any]


def my(options: MyOptions) -> int:
    """Ask, and print the answer; return the exit code."""
    try:
        addresses = [units.address(text.strip()) for text in options.bootstrap_servers.split(",")]
        given = settings_in(options.kafka_config)
        context, login = tls_of(given), login_of(given)
    except (ValueError, ConfigError) as error:
        print(f"pidgate my: {error}", file=sys.stderr)
        return USAGE_ERROR
    problem = ""
    for address in addresses:
        try:
            answer = asyncio.run(_ask(address, context, login))
        except (*NO_BROKER, TimeoutError) as error:
            problem = "" if login is not None else missing_login([address], context)
            problem = problem or cause_of(address, error, TIMEOUT_S, has_tls=context is not None)
            continue
        except LoginRefused as error:
            problem = str(error)
            break
        if answer is None:
            problem = (
                f"no gateway answers at {address}: brokers do not know this question. Ask the platform team for the "
                "address of the gateway (pidgate)"
            )
            break
        print(json.dumps(answer, indent=2) if options.as_json else "\n".join(in_words(answer)))
        return TOLD
    print(f"pidgate my: {problem}", file=sys.stderr)
    return NOT_TOLD


def in_words(answer: JsonObject) -> Iterator[str]:
    """Yield the answer line by line."""
    yield f"{printable(answer['user'])}, at the gateway {printable(answer['gateway'])}, {moment(answer['wall_ms'])}"
    for line in answer["lines"]:
        yield f"  {printable(line)}"
    yield "Your clients that wait at this gateway now:"
    yield from waits_in_words(answer)
    if answer["advice"]:
        yield "What to change in your application:"
    for one in answer["advice"]:
        yield f"  {printable(one['text'])}"
        yield f"    {printable(one['remedy'])}"


async def _ask(
    address: units.Address, context: ssl.SSLContext | None, login: Login | None
) -> JsonObject | None:
    """Return the gateway's answer; None: there is no gateway. Raises NO_BROKER, TimeoutError, LoginRefused."""
    opening = connection_to(*address, context, Resolver(), sends_proxy_header=False)
    async with asyncio.timeout(TIMEOUT_S), opening as (reader, writer):
        if login is not None:
            exchange = login_exchange(login.mechanism, login.user, login.password, secrets.token_hex(16))
            await run(reader, writer, exchange)
        error_code, message = client_quotas.read_described(await run(reader, writer, _question()))
    try:
        answer = json.loads(message)
    except ValueError:
        return None
    return answer if error_code == 0 and isinstance(answer, dict) else None


def _question() -> Generator[Build, bytes, bytes]:
    return (yield client_quotas.own_request)
