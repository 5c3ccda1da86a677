"""The parts of the gateway's test harness that need no gateway."""

from tools.sandbox.gateway import GatewayProcess, Metrics

TEXT = """\
# HELP pidgate_requests_total Requests
# TYPE pidgate_requests_total counter
pidgate_requests_total{api="Produce"} 5.0
pidgate_requests_total{api="Fetch"} 2.0
# TYPE pidgate_ready gauge
pidgate_ready 1.0
"""


def test_metrics_are_summed_over_the_labels_that_are_not_named() -> None:
    metrics = Metrics.parse(TEXT)
    assert metrics.value("pidgate_requests_total", api="Produce") == 5
    assert metrics.value("pidgate_requests_total") == 7
    assert metrics.value("pidgate_requests_total", api="Metadata") == 0
    assert metrics.names() == {"pidgate_requests_total", "pidgate_ready"}


def test_sections_of_the_configuration_are_the_callers() -> None:
    gateway = GatewayProcess(
        "a:1,b:2",
        quotas={"mode": "enforce"},
        listener={"advertise": "localhost"},
        settings={"drain_timeout": "1s"},
        node_ids=(1, 5, 102),
    )
    assert gateway.config["cluster"] == {"bootstrap_servers": ["a:1", "b:2"]}
    # A gateway that is started here is always a fresh one; with a grace it would refuse nothing.
    assert gateway.config["quotas"] == {"mode": "enforce", "producer_ids": {"grace": "0s"}}
    assert gateway.config["drain_timeout"] == "1s"
    (listener,) = gateway.config["listeners"]
    assert listener["bind"] == gateway.bootstrap_servers
    assert listener["advertise"] == "localhost"
    ports = {gateway.port, gateway.admin_port, *range(gateway.first_node_port, gateway.first_node_port + 103)}
    assert len(ports) == 105
    assert not gateway.is_alive
    assert gateway.log_text() == ""
    assert gateway.status("/readyz") == 0
