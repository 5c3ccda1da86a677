"""Java's clients through Kafka's own verifiable tools, of the version that the environment names.

VerifiableProducer numbers its values (see `pidgate.load.journal.verifiable_name`) and reports each outcome, but not
what it has sent; it chooses partitions itself. VerifiableConsumer and VerifiableShareConsumer report records.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pidgate.load.journal import ProducerJournal
from tests.support import kerberos
from tests.support.clients.load import Load, Login, Pace, Wish
from tools.sandbox import guard
from tools.sandbox.jars import NEWEST
from tools.sandbox.log_checker import LogRecord
from tools.sandbox.performance import has_command_config
from tools.sandbox.tools import QUICK_TO_START, JavaTools

VERSION_VARIABLE = "PIDGATE_TEST_JAVA_CLIENTS"
_TOOLS = "org.apache.kafka.tools"
_SECURITY = "org.apache.kafka.common.security"


def tools(login: Login | None = None) -> JavaTools:
    """Programs of the version that is asked for, in a Java that has what the login needs."""
    version = os.environ.get(VERSION_VARIABLE, NEWEST)
    if login is None or login.mechanism != "GSSAPI":
        return JavaTools(version)
    options = (*QUICK_TO_START, kerberos.option(login.krb5_conf))
    return JavaTools(version, jvm_options=options, java_modules=kerberos.JAVA_MODULES)


def login_properties(login: Login | None) -> dict[str, str]:
    """Client properties of a user."""
    if login is None:
        return {}
    properties = {"security.protocol": login.protocol}
    if login.ca_file:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.ca_file}
    if login.pair_file:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": login.pair_file}
    if login.mechanism == "GSSAPI":
        properties["sasl.kerberos.service.name"] = kerberos.SERVICE
    if login.mechanism:
        properties |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": _jaas(login)}
    return properties


def _jaas(login: Login) -> str:
    """The login module with its options."""
    if login.mechanism == "GSSAPI":
        return kerberos.jaas(login.keytab, login.username)
    if login.mechanism == "OAUTHBEARER":
        module = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
        return f'{module} required unsecuredLoginStringClaim_sub="{login.username}";'
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    tokenauth = ' tokenauth="true"' if login.is_token else ""
    return (
        f'{_SECURITY}.{module} required username="{login.username}" password="{login.password}"{tokenauth};'
    )


def properties_file(properties: dict[str, str]) -> Path:
    """A file of client properties that does not outlive this process."""
    path = guard.temporary_directory("client-") / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def produce(load: Load, journal: ProducerJournal, pace: Pace) -> None:
    if load.transaction_size:
        raise NotImplementedError("use TransactionalMessageCopier for Java's transactions")
    properties = login_properties(load.login) | {
        "client.id": "java",
        "enable.idempotence": "true",
        # The tool sets 0, which idempotence does not take.
        "retries": str(load.retries or 2147483647),
        "max.in.flight.requests.per.connection": str(load.in_flight),
    }
    if not load.is_batched:
        # One or two records in a batch: Java's smallest buffer has room for a second one.
        properties |= {"linger.ms": "0", "batch.size": "1"}
    if load.give_up_s:
        properties["delivery.timeout.ms"] = str(int(load.give_up_s * 1_000))
        properties["request.timeout.ms"] = str(min(30_000, int(load.give_up_s * 500)))
    java = tools(load.login)
    option = "--command-config" if has_command_config(java.version) else "--producer.config"
    process = java.start(
        f"{_TOOLS}.VerifiableProducer",
        *("--bootstrap-server", load.bootstrap_servers, "--topic", load.topic),
        *("--max-messages", str(load.records), "--value-prefix", str(load.number)),
        *("--throughput", str(int(load.records_per_s) or -1)),
        *(option, str(properties_file(properties))),
        stderr=None,
    )
    stop = threading.Thread(target=_stop_when_over, args=(process, pace), daemon=True)
    stop.start()
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            _read_producer_event(line, journal)
    guard.ended(process)
    # SIGTERM at our own wish lets the tool flush and end with 143.
    if process.returncode not in (0, 143):
        raise ChildProcessError(f"VerifiableProducer ended with {process.returncode}")


def _stop_when_over(process: "subprocess.Popen[bytes]", pace: Pace) -> None:
    pace.wait_until_over()
    process.terminate()


def _read_producer_event(line: bytes, journal: ProducerJournal) -> None:
    event = _event(line)
    match event.get("name"):
        case "producer_send_success":
            journal.acknowledged(event["partition"], _number(event["value"]), event["offset"])
        case "producer_send_error":
            journal.failed(None, _number(event["value"]), f"{event['exception']}: {event['message']}")


def _number(value: str) -> int:
    return int(value.rpartition(".")[2])


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def consume(wish: Wish) -> Iterator[LogRecord]:
    java = tools(wish.login)
    option = "--command-config" if has_command_config(java.version) else "--consumer.config"
    properties = login_properties(wish.login) | {"client.id": "java", "isolation.level": wish.isolation}
    if wish.protocol == "share":
        main_class = "VerifiableShareConsumer"
        # The isolation of a share group is a property of the group.
        del properties["isolation.level"]
        arguments = ["--offset-reset-strategy", "earliest"]
    else:
        main_class = "VerifiableConsumer"
        arguments = ["--reset-policy", "earliest", "--group-protocol", wish.protocol]
    process = java.start(
        f"{_TOOLS}.{main_class}",
        *("--bootstrap-server", wish.bootstrap_servers, "--topic", wish.topic),
        *("--group-id", wish.group, "--max-messages", str(wish.records), "--verbose"),
        *arguments,
        *(option, str(properties_file(properties))),
        stderr=None,
    )
    too_long = threading.Timer(wish.timeout_s, process.terminate)
    too_long.start()
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            event = _event(line)
            if event.get("name") == "record_data":
                yield LogRecord(event["partition"], event["offset"], str(event["value"]).encode())
    too_long.cancel()
    guard.ended(process)
    if process.returncode not in (0, 143):
        raise ChildProcessError(f"{main_class} ended with {process.returncode}")
