"""Bad producers of `pidgate load`'s kinds that work as fast as they can and keep a journal, until SIGTERM.

    python -m tools.sandbox.producers.synthetic KIND --bootstrap-server H:P --user mallory ... --journal F

id-per-batch: a common mistake, a producer made inside the function that sends, and so a new producer id for each
batch, which goes to every partition of the topic. Refused, it sends the same batch again after `throttle_time_ms`,
and gives up after its delivery time-out. crash-loop: a service that crashes after its first record and is started
again: each life has its own connection and producer id, and dies of any answer.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from pidgate import units
from pidgate.load.journal import ProducerJournal
from pidgate.load.plan import Clients, Kind, Login, Plan
from pidgate.load.running import run
from tools.sandbox.producers.program import parser_of

_RECORD_BYTES = 450
_LAST_LIFE_S = 30.0


async def _run(given: argparse.Namespace) -> None:
    stop, is_loop = asyncio.Event(), given.kind == Kind.CRASH_LOOP
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    plan = Plan(
        bootstrap=(units.address(given.bootstrap_server),),
        topic=given.topic,
        clients={Kind(given.kind): Clients(given.threads, None)},
        duration_s=86_400.0,
        record_bytes=_RECORD_BYTES,
        partitions_each=1 if is_loop else 0,
        seed=given.seed,
        client_id=given.client_id,
        login=Login(given.user, given.password),
        from_host=given.from_host,
        delivery_timeout_s=given.delivery_timeout_s,
        restart_after_s=given.restart_after_s if is_loop else 0.0,
        drain_s=_LAST_LIFE_S if is_loop else 0.0,
    )
    journal = ProducerJournal.to_file(given.journal, given.user, given.topic)
    await run(plan, stop, journal=journal)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("synthetic")
    parser.add_argument("kind", choices=(Kind.ID_PER_BATCH, Kind.CRASH_LOOP))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--delivery-timeout-s", type=float, default=120.0)
    parser.add_argument("--restart-after-s", type=float, default=0.3)
    parser.add_argument("--from-host", help="the loopback address to connect from")
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
