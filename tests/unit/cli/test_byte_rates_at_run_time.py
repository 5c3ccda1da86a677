"""Byte rates that are set while a gateway runs: in force, told, ended, and kept by one of the two."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result

from pidgate.quota.settings import ByteRates
from tests.support.quota_site import FILE, Gateway
from tests.unit.cli.test_cli_quotas import flat, run

Typed = Callable[..., Result]
WITH_RATES = FILE.replace("rate: 10}", "rate: 10, consumer_byte_rate: 2MB}")


def rates(gateway: Gateway, user: str) -> ByteRates | None:
    return gateway.book.in_force.quotas.bytes.rates.get((user, None))


def test_a_rate_is_set_shown_and_reset() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        one = "producer_byte_rate=5MB"
        shown = flat(typed("quotas", "alter", "--user", "alice", "--add-config", one).stdout)
        assert "alice: producer_byte_rate 5MB per s" in shown
        assert "In force now: clients of alice wait above it." in shown
        assert rates(gateway, "alice") == ByteRates(producer_byte_rate=5_000_000)
        typed("quotas", "alter", "--entity-default", "--add-config", "consumer_byte_rate=1MB", "--for", "1h")
        assert rates(gateway, "") == ByteRates(consumer_byte_rate=1_000_000)

        described = flat(typed("quotas").stdout)
        assert "byte rates set at run time: kept by this gateway (quotas.byte_rates)" in described
        assert "producer_byte_rate 5MB per s run time" in described
        assert "consumer_byte_rate 1MB per s run time, until 2" in described
        difference = flat(typed("quotas", "diff").stdout)
        assert "alice producer_byte_rate 5MB per s 5MB per s not set" in difference
        assert "(default) consumer_byte_rate 1MB per s 1MB per s 2MB per s" in difference

        assert "Not in force: bob is observed" in flat(
            typed("quotas", "alter", "--user", "bob", "--add-config", one).stdout
        )
        typed("quotas", "reset", "--user", "alice")
        typed("quotas", "reset", "--entity-default")
        assert rates(gateway, "alice") is None
        assert rates(gateway, "") == ByteRates(consumer_byte_rate=2_000_000)
        typed("quotas", "alter", "--entity-default", "--delete-config", "consumer_byte_rate")
        assert rates(gateway, "") is None

    run(use, WITH_RATES)


def test_where_the_brokers_keep_them_the_gateway_sets_none() -> None:
    def use(typed: Typed, gateway: Gateway) -> None:
        told = typed("quotas", "alter", "--user", "alice", "--add-config", "producer_byte_rate=5MB")
        assert told.exit_code == 1
        assert "set it with kafka-configs" in told.stderr
        assert rates(gateway, "alice") is None
        assert "kept by the brokers (quotas.byte_rates)" in flat(typed("quotas").stdout)

    run(use, FILE + "  byte_rates: brokers\n")
