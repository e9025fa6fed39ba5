"""The model of the index of delayed messages against published measurements of both trackers, and a real Roaring library."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pytest_loadtest.drivers.pulsar.delayed_index import (
    CONTAINER,
    JAVA_OBJECTS,
    LEDGER,
    bits_of,
    heap,
    index_of_one_delay,
    index_of_random_delays,
    planned_index,
    time_buckets,
)
from pytest_loadtest.message.due import Delays
from pytest_loadtest.values.quantities import SECOND

MIB = 1 << 20
MANY = 10_000_000
# (x, y): payload in MiB of ten million messages, and with Java's objects as a heap dump of them showed it
TABLE = {(1, 10): (19.2, 25.0), (4, 10): (19.1, 20.48), (8, 10): (10.3, 11.0), (8, 15): (1.8, 2.25)}


def real(messages: int, size: int, ledger: int) -> int:
    """Bytes of the same bitmaps as serialised by CRoaring."""
    cuts = sorted({*range(0, messages, size), *range(0, messages, ledger)})
    return sum(
        len(
            BitMap64(
                list(range(low % ledger, low % ledger + high - low)), optimize=False
            ).serialize()
        )
        for low, high in pairwise([*cuts, messages])
    )


@pytest.mark.parametrize(("version", "there"), [
    ("3.0.14", False), ("4.0.0", False), ("4.0.1", True), ("4.0.5", True), ("4.0.6", False), ("4.0.13", False), ("4.1.0", True),
    ("4.2.4", True), ("5.0.0-M1", True),
])  # fmt: skip
def test_time_buckets_exist_in_4_0_1_to_4_0_5_and_from_4_1_on(version: str, there: bool) -> None:
    assert time_buckets(version) is there


def test_a_version_has_three_numbers() -> None:
    with pytest.raises(ValueError, match=r"'latest' is not a version such as 4\.2\.4"):
        time_buckets("latest")


def test_a_heap_has_24_bytes_per_message() -> None:
    """For a day of 10 000 msg/s in batches of a hundred that would be 198 MiB; but delayed messages are never batched, so it is 19.3 GiB."""
    day = 24 * 3600 * 10_000
    assert round(heap(day // 100) / MIB) == 198
    assert round(heap(day) / (1 << 30), 1) == 19.3
    assert heap(MANY) == 240_000_000


@pytest.mark.parametrize("xy", TABLE)
def test_the_model_agrees_with_the_published_table(xy: tuple[int, int]) -> None:
    """The table is for ten million messages in ledgers of 50 000."""
    published = TABLE[xy][0]
    assert index_of_one_delay(MANY, *xy).bitmaps / MIB == pytest.approx(published, rel=0.023)


def test_java_objects_reproduce_the_measurement_within_15_percent() -> None:
    """The bytes per piece are the least-squares fit to the measured column."""
    found = {xy: index_of_one_delay(MANY, *xy) for xy in TABLE}
    over = {xy: measured * MIB - found[xy].bitmaps for xy, (_, measured) in TABLE.items()}
    fit = sum(over[xy] * found[xy].pieces for xy in TABLE) / sum(
        found[xy].pieces ** 2 for xy in TABLE
    )
    assert pytest.approx(fit, rel=0.01) == JAVA_OBJECTS
    for xy, (_, measured) in TABLE.items():
        assert found[xy].total / MIB == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("messages", "x", "bits", "ledger"), [
    (300_000, 1, 10, 50_000), (300_000, 8, 10, 50_000), (500_000, 8, 15, 50_000), (300_000, 4, 12, 70_000), (100_000, 1, 6, 50_000),
    (200_000, 300, 9, 200_000),
])  # fmt: skip
def test_the_model_agrees_with_a_real_roaring_library(
    messages: int, x: int, bits: int, ledger: int
) -> None:
    """Within 2 %, headers included."""
    assert index_of_one_delay(messages, x, bits, ledger).bitmaps == pytest.approx(
        real(messages, x << bits, ledger), rel=0.02
    )


@pytest.mark.parametrize(
    ("x", "bits", "published"),
    [(1, 10, 2.0), (4, 10, 2.0), (8, 10, 1.0), (16, 10, 0.5), (8, 15, 0.16384)],
)
def test_containers_agree_with_the_rule_of_thumb(x: int, bits: int, published: float) -> None:
    """About 2, 8192/M, and 8192/ledger = 0.163 bytes per message."""
    assert index_of_one_delay(MANY, x, bits).payload / MANY == pytest.approx(published, rel=0.25)


@given(st.integers(1, 200_000), st.floats(0.01, 50), st.integers(0, 16), st.integers(1000, 100_000))
def test_a_message_costs_two_bytes_at_most_and_a_bit_at_least(
    messages: int, per_ms: float, bits: int, ledger: int
) -> None:
    found = index_of_one_delay(messages, per_ms, bits, ledger)
    assert messages / 65536 * CONTAINER / 8 / 8 <= found.payload <= 2 * messages
    assert messages / ledger <= found.pieces <= messages


def test_random_delays_over_a_long_range_cost_more_than_a_heap() -> None:
    """Over a day each entry is in a piece of its own: more than ten times the heap. Over a minute entries share pieces: a fifth of the
    heap.
    """
    day, minute = 86_400_000, 60_000
    assert index_of_random_delays(day // 2, day, 9).total > 10 * heap(day // 2)
    assert index_of_random_delays(minute // 2, minute, 9).total < heap(minute // 2) / 5


def test_random_delays_have_as_many_pieces_as_a_random_draw() -> None:
    messages, range_ms, bits = 40_000, 100_000, 9
    delays = Delays(seed=3, least=0, most=range_ms - 1)
    import numpy as np

    seq = np.arange(messages)
    due = delays.on_the_wire(np.zeros(messages, np.int32), seq, np.zeros(messages, np.int64))
    pieces = len(np.unique((due >> bits) * 10 + seq // LEDGER))
    assert index_of_random_delays(messages, range_ms, bits).pieces == pytest.approx(
        pieces, rel=0.02
    )


@pytest.mark.parametrize(("tick", "bits"), [(1000, 9), (100, 6), (8000, 12), (1, 0)])
def test_a_tick_of_a_second_makes_buckets_of_512_ms(tick: int, bits: int) -> None:
    """As in Pulsar."""
    assert bits_of(tick) == bits


def test_pending_messages_are_those_sent_during_the_delay() -> None:
    """Ten seconds at 1000/s on two topics are 10 000 messages, twice for two subscriptions, but never more than are sent."""
    delays = Delays(seed=0, least=10_000, most=10_000)
    found = planned_index(delays, rate=1000, messages=100_000, topics=2, subscriptions=2, tick=1000)
    assert (found.pending, found.heap) == (10_000, 480_000)
    assert found.warning(1 << 30) is None
    few = planned_index(delays, rate=1000, messages=500, topics=1, subscriptions=1, tick=1000)
    assert few.pending == 500
    day = Delays(seed=0, at=24 * 3600 * SECOND)
    much = planned_index(
        day, rate=10_000, messages=864_000_000, topics=1, subscriptions=1, tick=1000
    )
    assert "19.3 GiB as a heap" in much.text
    assert str(much.warning(1 << 30)).startswith(
        "the broker has 1.00 GiB, the index needs 19.3 GiB as a heap"
    )
