"""The histogram of `pidgate load` has HdrHistogram's slots, percentiles and format."""

from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from pidgate.load.tally import Latency

TIMES_US = st.lists(
    st.one_of(
        st.integers(0, 5_000),
        st.integers(0, 4_000_000_000),
        st.integers(0, 31).map(lambda doublings: (1 << doublings) - 1),
        st.integers(0, 31).map(lambda doublings: 1 << doublings),
    ),
    max_size=60,
)
PERCENTILES = (0.1, 25, 50, 90, 99, 99.9, 100)


def both(times_us: list[int]) -> tuple[Latency, HdrHistogram]:
    ours, theirs = Latency(), HdrHistogram(1, 3_600_000_000, 3)
    for time_us in times_us:
        ours.record(time_us / 1_000_000)
        theirs.record_value(min(max(time_us, 1), 3_600_000_000))
    return ours, theirs


@settings(deadline=None)  # the other histogram takes long
@given(TIMES_US)
def test_percentiles_and_the_longest_are_theirs(times_us: list[int]) -> None:
    ours, theirs = both(times_us)
    assert ours.count == theirs.get_total_count()
    if times_us:
        assert [ours.percentile_ms(percent) for percent in PERCENTILES] == [
            theirs.get_value_at_percentile(percent) / 1_000 for percent in PERCENTILES
        ]
        assert ours.max_ms == theirs.get_max_value() / 1_000
    else:
        assert ours.percentile_ms(50) is ours.max_ms is None


@settings(deadline=None)  # the other histogram takes long
@given(TIMES_US, TIMES_US)
def test_they_read_what_we_write(first: list[int], second: list[int]) -> None:
    ours, _ = both(first)
    ours.add(both(second)[0])
    _, theirs = both(first + second)
    read = HdrHistogram.decode(ours.encoded())

    assert read.get_total_count() == len(first) + len(second)
    assert read.get_value_at_percentile(90) == theirs.get_value_at_percentile(90)
