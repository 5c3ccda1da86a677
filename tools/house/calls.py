"""Count the calls that one request takes: `python -m tools.house.calls [--root FOLDER] [--json] [--list SCENARIO]`.

Each scenario runs in a gateway without sockets, warmed up by others of its kind, and is counted with sys.setprofile.
Counted are functions of the product's files; comprehensions and what dataclasses generate are not. A change of file is
a call from a function in one file to one in another. Only `scenarios` knows how a gateway is made.
"""

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from tools.house.tree import ROOT, product_files

NOT_FUNCTIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")
RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
WARM_UPS = 20

Scenario = tuple[str, Callable[[int], None], Callable[[int], None]]
"""Its name, what comes before it is counted, and what is counted; both get the number of the repetition."""


@dataclass
class Calls:
    """What was called while `counting`."""

    files: set[str]
    called: Counter[tuple[str, str]] = field(default_factory=Counter)
    file_changes: int = 0
    _resumable: set[FrameType] = field(default_factory=set)

    def counting(self, work: Callable[[], None]) -> None:
        sys.setprofile(self._seen)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if (
            event != "call"
            or (file := real(code.co_filename)) not in self.files
            or code.co_name in NOT_FUNCTIONS
        ):
            return
        if code.co_flags & RESUMED:
            if frame in self._resumable:
                return
            self._resumable.add(frame)
        self.called[file, code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and real(caller.f_code.co_filename) not in self.files:
            caller = caller.f_back
        self.file_changes += caller is not None and real(caller.f_code.co_filename) != file


real = cache(os.path.realpath)


def scenarios(loop: asyncio.AbstractEventLoop) -> Iterator[Scenario]:
    """Yield the scenarios. A topic is configured where one belongs, but nothing is sent: the loop runs a few turns."""
    from pidgate.gateway.cluster.nodes import NodePorts
    from pidgate.gateway.config.loading import parse
    from pidgate.gateway.logs import configure
    from pidgate.gateway.process.server import Gateway
    from pidgate.gateway.proxy.connection import ConnectionContext
    from pidgate.quota.changes import Action, Change, Setting, Target
    from tests.support import raw
    from tests.support.frames import produce_request, record_batch
    from tests.support.scene import Pair

    configure("info", io.StringIO(), "json")
    ids_per_hour = 10_000_000
    config = """
    cluster: {bootstrap_servers: [k1:9092]}
    listeners: [{only_node: 1}]
    quotas: {mode: enforce, default: {producer_ids_rate: %d}, producer_ids: {grace: 0s}}
    events: {enabled: %s}
    """

    async def gateway(rate: int, topic: str) -> tuple[Any, Any]:
        settings = parse(config % (rate, topic))
        made: Any = Gateway(settings, incarnation="calls")
        made._manager._take_over("nothing", 0.0)
        made.traffic.nodes.learn_node(1, "k1", 9092)
        return made, ConnectionContext(
            made.traffic.shared, NodePorts(settings.listeners[0]), 1, requires_login=False
        )

    def connect(context: Any, frame: bytes) -> Any:
        pair = Pair(SimpleNamespace(context=context))  # type: ignore[arg-type]
        exchange(pair, frame, answer)
        return pair

    def exchange(pair: Any, frame: bytes, answered: bytes) -> None:
        pair.client.receive(frame)
        if answered:
            pair.broker.receive(answered)
        turns()

    async def changed(n: int) -> None:
        target = Target(Setting.PRODUCER_IDS_RATE, "ANONYMOUS")
        await alone._quotas.change([Change(target=target, action=Action.SET, value=1_000 * (n + 1))])

    def turns() -> None:
        for _ in range(3):
            loop.call_soon(loop.stop)
            loop.run_forever()

    def produce(producer_id: int) -> bytes:
        frame = produce_request(9, [("orders", [(0, record_batch(producer_id, 0, 0))])], correlation_id=1)
        return len(frame).to_bytes(4, "big") + frame

    partition: dict[str, Any] = {
        "index": 0,
        "error_code": 0,
        "base_offset": 1,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
    }
    partition |= {"record_errors": [], "error_message": None}
    body = {"responses": [{"name": "orders", "partition_responses": [partition]}], "throttle_time_ms": 0}
    answer = raw.response(0, 9, body, correlation_id=1)
    nothing: dict[str, Any] = {"topics": [], "forgotten_topics_data": [], "rack_id": ""}
    asked = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "isolation_level": 0,
    }
    fetch = raw.request(1, 11, {**asked, "session_id": 0, "session_epoch": 0, **nothing}, correlation_id=1)
    fetched = (8 + 16_000).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(16_000 + 4)

    _, open_context = loop.run_until_complete(gateway(ids_per_hour, "true"))
    _, shut_context = loop.run_until_complete(gateway(1, "true"))
    alone, _ = loop.run_until_complete(gateway(ids_per_hour, "false"))
    one = connect(open_context, produce(1))
    connect(shut_context, produce(2))  # the only new id of this hour
    refused: list[Any] = []

    yield "a known producer id", lambda n: None, lambda n: exchange(one, produce(1), answer)
    yield "a new producer id, admitted", lambda n: None, lambda n: exchange(one, produce(100 + n), answer)
    yield (
        "a new producer id, refused",
        lambda n: refused.append(connect(shut_context, produce(-1))),  # the last one is muted
        lambda n: exchange(refused[-1], produce(100 + n), b""),
    )
    yield "a Fetch answer", lambda n: exchange(one, fetch, b""), lambda n: exchange(one, b"", fetched)
    yield "a quota change", lambda n: None, lambda n: loop.run_until_complete(changed(n))


def measured(root: Path) -> dict[str, Calls]:
    files = {str(file) for file in product_files(root)}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    found = dict[str, Calls]()
    for name, before, counted in scenarios(loop):
        for number in range(WARM_UPS):
            before(number)
            counted(number)
        found[name] = Calls(files)
        before(WARM_UPS)
        found[name].counting(lambda counted=counted: counted(WARM_UPS))  # type: ignore[misc]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="top of a checkout")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", metavar="SCENARIO", help="list the functions of one scenario")
    options = parser.parse_args()
    if options.root.resolve() != ROOT:
        # That checkout's own copy knows how its gateway is made.
        wanted = ["--json"] if options.json else ["--list", options.list] if options.list else []
        again = [sys.executable, "-m", "tools.house.calls", *wanted]
        sys.exit(subprocess.run(again, cwd=options.root).returncode)
    found = measured(ROOT)
    rows = {
        name: {
            "calls": calls.called.total(),
            "files": len({file for file, _ in calls.called}),
            "changes of file": calls.file_changes,
        }
        for name, calls in found.items()
    }
    if options.list:
        for (file, function), count in found[options.list].called.items():
            print(f"{count:4} {Path(file).relative_to(ROOT)} {function}")
    elif options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(
            *(f"| {name} | {', '.join(f'{v} {k}' for k, v in row.items())} |" for name, row in rows.items()),
            sep="\n",
        )


if __name__ == "__main__":
    main()
