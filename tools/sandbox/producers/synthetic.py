"""Bad producers of `pidgate load`'s kinds that go on as fast as they can and keep a journal, until SIGTERM.

    python -m tools.sandbox.producers.synthetic KIND --bootstrap-server H:P --user mallory ... --journal F

id-per-batch: a common mistake, a producer made inside the function that sends, and so a new producer id for each
batch, which goes to every partition of the topic. Refused, it sends the same batch again after `throttle_time_ms`,
and gives up after its delivery time-out. crash-loops: a service that crashes after its first record, and is
started again: each life has a connection and a producer id of its own and dies of whatever the answer is.
"""

import argparse
import asyncio
import itertools
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from pidgate import units
from pidgate.load.context import Context, end_task
from pidgate.load.one_by_one import CrashLoop, IdPerBatch
from pidgate.load.plan import Kind, Login, Plan
from pidgate.load.tally import Tally
from pidgate.protocol.record_batch import RecordBatch
from tools.sandbox.journal import ProducerJournal, record_value
from tools.sandbox.producers.batch_journal import JournalWriter
from tools.sandbox.producers.program import parser_of

_RECORD_BYTES = 450
_PARTITION = 0


async def _id_per_batch(given: argparse.Namespace, context: Context, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    with given.journal.open("w", buffering=1) as file:
        journal = JournalWriter(file, given.user, given.topic)

        async def thread(number: int) -> None:
            producers = IdPerBatch(context, Tally(), number, journal.note)
            while True:
                await producers.one(loop.time())

        threads = [asyncio.ensure_future(thread(number)) for number in range(given.threads)]
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((*threads, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in threads:
            end_task(task)


async def _crash_loop(given: argparse.Namespace, context: Context, stop: asyncio.Event) -> None:
    loop, tally = asyncio.get_running_loop(), Tally()
    journal = ProducerJournal.to_file(given.journal, given.user, given.topic)
    for life in itertools.count(1):
        batch = RecordBatch([record_value(given.user, _PARTITION, life)])
        journal.sent(_PARTITION, life)
        before = tally.acknowledged
        await CrashLoop(replace(context, batch=batch), tally, _PARTITION - 1).one(loop.time())
        if tally.acknowledged > before:
            journal.acknowledged(_PARTITION, life)
        await asyncio.sleep(given.restart_after_s)
        if stop.is_set():
            return


async def _run(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    plan = Plan(
        bootstrap=(units.address(given.bootstrap_server),),
        topic=given.topic,
        counts={},
        rates_per_s={},
        record_bytes=_RECORD_BYTES,
        seed=given.seed,
        client_id=given.client_id,
        login=Login(given.user, given.password),
        from_host=given.from_host,
        to_all_partitions=True,
        delivery_timeout_s=given.delivery_timeout_s,
    )
    context = Context.of(plan)
    await context.cluster.open()
    await (_crash_loop if given.kind == Kind.CRASH_LOOPING else _id_per_batch)(given, context, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("synthetic")
    parser.add_argument("kind", choices=(Kind.ID_PER_BATCH, Kind.CRASH_LOOPING))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--delivery-timeout-s", type=float, default=120.0)
    parser.add_argument("--restart-after-s", type=float, default=0.3)
    parser.add_argument("--from-host", help="the loopback address to connect from")
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
