"""Kafka's tools that are clients, too: the differences between their versions are hidden here.

    admin(tools, "TopicCommand", servers, "--describe")
    copy_transactionally(tools, servers, "in", "out", transaction_size=10)

Each function blocks and raises ToolFailed.
"""

import json

from tests.support.clients.java_client import login_properties, properties_file
from tests.support.clients.load import Login
from tools.sandbox.tools import JavaTools, ToolResult

_TOOLS = "org.apache.kafka.tools"

ADMIN_TOOLS = {
    "TopicCommand": f"{_TOOLS}.TopicCommand",
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "AclCommand": f"{_TOOLS}.AclCommand",
    "ConsumerGroupCommand": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "ShareGroupCommand": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "GroupsCommand": f"{_TOOLS}.GroupsCommand",
    "BrokerApiVersionsCommand": f"{_TOOLS}.BrokerApiVersionsCommand",
    "ClusterTool": f"{_TOOLS}.ClusterTool",
    "DelegationTokenCommand": f"{_TOOLS}.DelegationTokenCommand",
    "DeleteRecordsCommand": f"{_TOOLS}.DeleteRecordsCommand",
    "FeatureCommand": f"{_TOOLS}.FeatureCommand",
    "GetOffsetShell": f"{_TOOLS}.GetOffsetShell",
    "LeaderElectionCommand": f"{_TOOLS}.LeaderElectionCommand",
    "LogDirsCommand": f"{_TOOLS}.LogDirsCommand",
    "MetadataQuorumCommand": f"{_TOOLS}.MetadataQuorumCommand",
    "TransactionsCommand": f"{_TOOLS}.TransactionsCommand",
}
"""In Kafka 4.3; ShareGroupCommand and GroupsCommand are not in 3.9."""

_OLD_PLACES = {
    "AclCommand": "kafka.admin.AclCommand",
    "BrokerApiVersionsCommand": "kafka.admin.BrokerApiVersionsCommand",
}
"""Where Kafka 3.9 has them."""


def admin(
    tools: JavaTools,
    name: str,
    bootstrap_servers: str,
    *arguments: str,
    login: Login | None = None,
    check: bool = True,
) -> ToolResult:
    """Run one of the command line tools by the name of its class."""
    main_class = ADMIN_TOOLS[name]
    if tools.version.startswith("3."):
        main_class = _OLD_PLACES.get(name, main_class)
    options = ["--bootstrap-server", bootstrap_servers]
    if login is not None:
        options += ["--command-config", str(properties_file(login_properties(login)))]
    # Some take the connection as an option of the whole tool, before their own verb.
    return tools.run(main_class, *options, *arguments, check=check)


def copy_transactionally(
    tools: JavaTools,
    bootstrap_servers: str,
    source: str,
    target: str,
    *,
    partition: int = 0,
    transaction_size: int = 10,
    random_aborts: bool = False,
) -> int:
    """TransactionalMessageCopier: one partition with its committed offsets; how many records it consumed.

    With aborts more than there are: an aborted transaction is consumed again.
    """
    result = tools.run(
        f"{_TOOLS}.TransactionalMessageCopier",
        *("--broker-list", bootstrap_servers, "--input-topic", source, "--output-topic", target),
        *("--input-partition", str(partition), "--transaction-size", str(transaction_size)),
        *("--consumer-group", f"{target}-copier", "--transactional-id", f"{target}-copier"),
        "--use-group-metadata",
        *(["--enable-random-aborts"] if random_aborts else []),
    )
    progress = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return max(int(event["totalProcessed"]) for event in progress)
