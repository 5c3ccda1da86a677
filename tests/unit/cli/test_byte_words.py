"""What `pidgate check` says of byte rates."""

from pidgate.cli.checking import byte_rates_in_words as in_words
from pidgate.quota.settings import ByteQuotas, ByteRates


def test_without_a_rate_nothing_is_said() -> None:
    assert list(in_words(ByteQuotas())) == []


def test_the_more_exact_comes_first_and_says_who_shares() -> None:
    rates = {
        (None, ""): ByteRates(None, 80_000_000),
        (None, "kcat"): ByteRates(None, 1_000_000),
        ("", None): ByteRates(20_000_000),
        ("", "bulk"): ByteRates(5_000_000),
        ("alice", None): ByteRates(2_000_000, 4 * 2**20),
        ("alice", ""): ByteRates(1_500),
        ("alice", "etl"): ByteRates(5_000_001),
    }
    assert list(in_words(ByteQuotas(samples=21, sample_ms=500, rates=rates))) == [
        "Bytes a second, over all brokers behind this gateway; 10 s worth may pass at once:",
        "  user alice, client id etl: produces 5000001B/s",
        "  user alice, each other client id: produces 1500B/s",
        "  user alice, all client ids together: produces 2MB/s, fetches 4MiB/s",
        "  each user not named, client id bulk: produces 5MB/s",
        "  each user not named, all client ids together: produces 20MB/s",
        "  client id kcat, all users together: fetches 1MB/s",
        "  each other client id, all users together: fetches 80MB/s",
    ]
