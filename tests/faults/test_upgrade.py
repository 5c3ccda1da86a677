"""An upgrade and a roll-back of two gateways under load: one after the other to the next version, and back again.

The next version is a copy of the package with a raised version, and one field more in each decision event and in each
user of a snapshot. So for a while both versions are in one fleet, and each reads what the other has written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pidgate.load.journal import Outcome
from tests.support.clients.load import Load
from tests.support.clients.process import ClientProcess
from tests.support.command_line import typed
from tests.support.log_checks import raise_if_bad
from tests.support.running_producers import tokens, until
from tools.release.version import ROOT, released_version
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster
from tools.sandbox.log_checker import check, read_log
from tools.sandbox.spec import ClusterSpec
from tools.sandbox.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

CLIENTS = (("confluent-kafka", "java"), ("aiokafka", "kafka-python"))
"""Through each gateway."""
RECORDS = 100_000
"""More than are ever sent: the test says when it is enough."""
PER_S = 20
PARTITIONS = 3
RATE = 200
NEXT_VERSION = "0.99.0"
ADDED = b'"cell":"b"'
EVENTS = "__upgrade"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with Cluster(ClusterSpec(ready_within_s=180)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the next version, to be named in PYTHONPATH."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(ROOT / "pidgate", folder / "pidgate", ignore=shutil.ignore_patterns("__pycache__"))
    changed(folder / "pidgate/events/definitions.py", "SCHEMA_VERSION = 1", "SCHEMA_VERSION = 2")
    # In the middle: a reader of the older version must not count fields.
    changed(
        folder / "pidgate/events/definitions.py",
        "    queue_position: Annotated[",
        '    cell: Annotated[str, "Added"] = "b"\n    queue_position: Annotated[',
    )
    snapshot = folder / "pidgate/gateway/state/state_dir/snapshot.py"
    changed(snapshot, '        "user": user.user,', '        "cell": "b",\n        "user": user.user,')
    about = folder / f"pidgate-{NEXT_VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pidgate\nVersion: {NEXT_VERSION}\n")
    return folder


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1, (file, before)
    file.write_text(text.replace(before, after))


def gateway_named(servers: str, name: str, state: Path | None) -> GatewayProcess:
    return GatewayProcess(
        servers,
        quotas={
            "mode": "enforce",
            "default": {"producer_ids_rate": RATE},
            "producer_ids": {"window": "10h", "grace": "0s"},
        },
        settings={
            "gateway_id": name,
            "events": {"topic": EVENTS, "replication_factor": 1},
            **({"state_dir": str(state)} if state else {}),
        },
        ready_within_s=180,
    )


class Fleet:
    """The gateways, and how many producer ids of the one user they have admitted."""

    def __init__(self, servers: str, folder: Path, newer: Path) -> None:
        self.gateways = [gateway_named(servers, f"gw-{n}", folder / f"state-{n}") for n in (0, 1)]
        for gateway in self.gateways:
            gateway.config["admin"] = {"bind": f"127.0.0.1:{gateway.admin_port}", "writable": True}
        self._newer = {**os.environ, "PYTHONPATH": str(newer)}
        self.ids = 0

    def start(self, number: int, version: str) -> None:
        gateway = self.gateways[number]
        gateway._environment = self._newer if version == NEXT_VERSION else None
        gateway.start()
        assert gateway.log_events("gateway_starting")[-1]["version"] == version

    def bring(self, number: int, topic: str, new_ids: int) -> None:
        """Bring new ids through one gateway, and wait until all have charged them."""
        for _ in range(new_ids):
            producer = Producer(
                {"bootstrap.servers": self.gateways[number].bootstrap_servers, "enable.idempotence": True}
            )
            producer.produce(topic, b"a newcomer")
            assert producer.flush(30) == 0
        self.ids += new_ids
        self.wait_until_charged()

    def wait_until_charged(self) -> None:
        """20 tokens an hour come back while the test runs, so at most 5 in a quarter of an hour."""
        for gateway in self.gateways:
            until(
                lambda gateway=gateway: self.ids - 5 < RATE - tokens(gateway) <= self.ids,  # type: ignore[misc]
                what=f"{self.ids} ids are charged",
            )
        one, other = map(tokens, self.gateways)
        assert abs(one - other) < 1


def test_up_and_back_under_load_loses_nothing(brokers: Cluster, newer: Path, tmp_path: Path) -> None:
    servers, this = brokers.bootstrap_servers(), released_version()
    topic, others = (create_topic(servers, name, partitions=PARTITIONS) for name in ("upgrade", "newcomers"))
    fleet = Fleet(servers, tmp_path, newer)
    reader = gateway_named(servers, "gw-fresh", None)
    try:
        for number in (0, 1):
            fleet.start(number, this)
        running = [
            ClientProcess.produce(client, load(gateway, topic, number))
            for number, gateway in enumerate(fleet.gateways)
            for client in CLIENTS[number]
        ]
        for client in running:
            client.wait_for_acknowledged(2 * PER_S, 120)
        fleet.ids = len(running)
        fleet.bring(0, others, 3)
        for number, version in ((0, NEXT_VERSION), (1, NEXT_VERSION), (0, this), (1, this)):
            gateway = fleet.gateways[number]
            assert gateway.stop() == 0
            assert (ADDED in newest_snapshot(tmp_path / f"state-{number}")) is (version == this)
            fleet.start(number, version)
            fleet.wait_until_charged()
            # Each charges what the other, of its own version or not, has admitted.
            for through in (0, 1):
                fleet.bring(through, others, 2)
            if version == NEXT_VERSION and number == 0:
                assert typed("quotas", "raise", "carol", "777", "--admin", admin(gateway)).returncode == 0
            for told in map(admin, fleet.gateways):
                shown = ("quotas", "describe", "--user", "carol", "--admin", told)
                until(lambda shown=shown: "777" in typed(*shown).stdout)  # type: ignore[misc]
        # One without a state directory has both versions' events alone.
        reader.start()
        until(lambda: abs(tokens(reader) - tokens(fleet.gateways[0])) < 1)
        for client in running:
            client.enough()
        journals = [client.wait(400) for client in running]
        assert [journal.count(Outcome.FAILED) for journal in journals] == [0] * len(running)
        assert min(journal.count(Outcome.ACKNOWLEDGED) for journal in journals) > 10 * PER_S
        raise_if_bad(check(journals, read_log(servers, topic), only_ours=True))
        written = [record.value for record in read_log(servers, EVENTS)]
        assert sum(ADDED in value for value in written) >= 8
        assert sum(b'"type":"decision"' in value and ADDED not in value for value in written) >= 8
        for gateway in (*fleet.gateways, reader):
            assert gateway.log_events("unexpected_error") == []
            assert gateway.log_events("state_file_set_aside") == []
            assert gateway.metrics().value("pidgate_events_unreadable_total") == 0
            assert {line["unreadable"] for line in gateway.log_events("state_restored")} == {0}
        for gateway in fleet.gateways:
            # From the snapshot of the version before.
            assert [line["snapshot"] for line in gateway.log_events("state_loaded")][1:] != [None, None]
    finally:
        for gateway in (*fleet.gateways, reader):
            gateway.kill()


def admin(gateway: GatewayProcess) -> str:
    return f"127.0.0.1:{gateway.admin_port}"


def newest_snapshot(state: Path) -> bytes:
    files = sorted(state.glob("snapshot-*"), key=lambda file: file.stat().st_mtime)
    return files[-1].read_bytes()


def load(gateway: GatewayProcess, topic: str, number: int) -> Load:
    return Load(
        bootstrap_servers=gateway.bootstrap_servers,
        topic=topic,
        records=RECORDS,
        records_per_s=PER_S,
        partitions=PARTITIONS,
        number=number + 1,
    )
