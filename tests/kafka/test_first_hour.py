"""The first hour, by the tutorial; tests/install plays it where nothing is installed yet."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.first_hour import HERE, first_hour, play_tutorial
from tests.support.running_producers import until
from tools.sandbox.kafka import Cluster
from tools.sandbox.spec import SASL_PLAINTEXT

pytestmark = pytest.mark.kafka

OWN_TOPICS = {"__pidgate_events", "__pidgate_events_quotas"}


@pytest.mark.parametrize("has_login", [False, True], ids=["PLAINTEXT", "SASL"])
def test_tutorial_word_by_word(sasl_cluster: Cluster, tmp_path: Path, *, has_login: bool) -> None:
    play_tutorial(sasl_cluster, tmp_path, has_login=has_login)


def topics_of(cluster: Cluster) -> set[str]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers()}).list_topics(timeout=10)
    return set(found.topics)


def test_looking_touches_nothing_and_a_login_is_asked_for_in_plain_words(
    sasl_cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = topic_name("looked-at")
    servers = sasl_cluster.bootstrap_servers()
    # Another test may have left them.
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_topics([*(topics_of(sasl_cluster) & OWN_TOPICS)] or ["none"]).values():
        deleted.exception(30)
    with first_hour(servers, "ANONYMOUS", None, tmp_path) as hour:
        before = topics_of(sasl_cluster)
        hour.run(["--bootstrap-servers", servers])
        hour.load(name)
        found = hour.done("pidgate", "who", "--admin", f"127.0.0.1:{hour.first_port}")
        assert "ANONYMOUS" in found
        assert topics_of(sasl_cluster) - before == {name}
        hour.run(["--bootstrap-servers", servers, "--topics"])
        until(lambda: topics_of(sasl_cluster) - before == {name, *OWN_TOPICS})

    wanting = ["--bootstrap-servers", sasl_cluster.bootstrap_servers(SASL_PLAINTEXT)]
    for command, code, more in (("who", 2, list[str]()), ("load", 1, ["--topic", name]), ("my", 1, [])):
        words: list[str | Path] = [HERE / "pidgate", command, *wanting, *more]
        refused = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == code
        assert f"pidgate {command}: the brokers want a login (" in refused.stderr
        assert "--kafka-config FILE" in refused.stderr
        assert "AddressFamily" not in refused.stderr

    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=admin-secret\n"
    )
    given = ["--kafka-config", str(properties), "--topic", name]
    done = subprocess.run(
        [HERE / "pidgate", "who", *wanting, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
