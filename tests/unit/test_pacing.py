"""The intended times are exact, even and independent of who asks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_loadtest.pacing import NS, Pacer

RATES = st.one_of(st.integers(1, 5_000_000), st.floats(0.01, 5e6))
STREAMS = st.integers(1, 500)


@given(rate=RATES, streams=STREAMS, total=st.integers(0, 10**12))
def test_shares_add_up_to_the_whole(rate: float, streams: int, total: int) -> None:
    """No message is lost or doubled by sharing the rate."""
    pacer = Pacer.of(rate, streams)
    assert sum(pacer.share(total, stream) for stream in range(streams)) == total


@given(rate=RATES, streams=STREAMS, elapsed=st.integers(-5, 10 * NS), stream=st.integers(0, 499))
def test_due_counts_exactly_the_offsets_that_have_passed(rate: float, streams: int, elapsed: int, stream: int) -> None:
    """The last due message is not in the future and the next one is."""
    stream %= streams
    pacer = Pacer.of(rate, streams)
    due = pacer.due_in_stream(elapsed, stream)
    assert due == 0 or pacer.offset(stream, due - 1) <= elapsed
    assert pacer.offset(stream, due) > elapsed


@given(rate=RATES, streams=STREAMS, stream=st.integers(0, 499), first=st.integers(0, 10**8), count=st.integers(0, 50))
def test_vector_and_scalar_agree(rate: float, streams: int, stream: int, first: int, count: int) -> None:
    """The columns that the engine uses are the arithmetic that the plan uses."""
    pacer = Pacer.of(rate, streams)
    assume(pacer.offset(stream % streams, first + count) < 1 << 62)  # 146 years are enough
    expected = [pacer.offset(stream % streams, k) for k in range(first, first + count)]
    assert pacer.offsets(stream % streams, first, count).tolist() == expected


def test_a_day_at_two_and_a_half_million_does_not_overflow() -> None:
    """The last message of the soak profile is due in its last microsecond."""
    pacer = Pacer.of(2_500_000, 200)
    day = 86_400 * NS
    total = pacer.total(day)
    assert total == 2_500_000 * 86_400
    last = total - 1
    assert pacer.offsets(last % 200, last // 200, 1)[0] == day - 400


def test_all_streams_together_are_one_even_train() -> None:
    """1 000 msg/s over 7 streams is a message each millisecond."""
    pacer = Pacer.of(1000, 7)
    offsets = np.sort(np.concatenate([pacer.offsets(s, 0, pacer.share(1000, s)) for s in range(7)]))
    assert np.diff(offsets).tolist() == [1_000_000] * 999


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_that_is_not_above_zero_is_refused(rate: float) -> None:
    """Nothing is due at no rate; that is the caller's mistake."""
    with pytest.raises(ValueError, match="not above 0"):
        Pacer.of(rate, 1)
