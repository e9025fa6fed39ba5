"""Broadcast rows contain the same as received rows, for any copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.broadcast import pack_copies, unpack_copies
from pytest_loadtest.message.samples import BROADCAST, RECEIVED, WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = [column for column in RECEIVED if column.name != "consumer"]
START = 10 * 2**31


def received(rows: list[tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return columns.

    :param rows: in the order of ``COLUMNS``.
    """
    return {
        column.name: np.array([row[i] for row in rows], column.type).reshape(-1) for i, column in enumerate(COLUMNS)
    }  # fmt: skip


def rows_of(columns: dict[str, NDArray[Any]]) -> list[tuple[int, ...]]:
    return sorted(zip(*(columns[column.name].tolist() for column in COLUMNS), strict=True))


COPIES = st.lists(
    st.tuples(
        st.integers(0, 200), st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.sampled_from([64, 63]), st.integers(0, 7),
        st.integers(0, 5), st.sampled_from([0, START]), st.integers(START - 50, START + 2**33),
        st.sampled_from([-1, 0, 2**31 - 1]),
    ),
    max_size=200,
)  # fmt: skip


@given(COPIES)
def test_every_copy_survives_the_conversion(rows: list[tuple[int, ...]]) -> None:
    """Second, late, damaged and very late copies too."""
    copies = received(rows)
    packed = pack_copies(copies)
    assert set(packed) == {column.name for column in BROADCAST}
    assert rows_of(unpack_copies(packed)) == rows_of(copies)
    after = (
        np.split(packed["after"], np.cumsum(np.bitwise_count(packed["got"].view(np.uint64)))[:-1])
        if len(packed["got"])
        else []
    )
    for first, last, own in zip(packed["first"], packed["last"], after, strict=True):
        assert own.min() == 0 and own.max() == last - first


def test_64_copies_of_a_message_are_one_row() -> None:
    """A million copies in any order are 15 625 rows; the mask uses the sign bit too."""
    n = 1_000_000
    order = np.random.default_rng(3).permutation(n)
    copies = {column.name: np.zeros(n, column.type) for column in COLUMNS}
    copies["subscription"] = order.astype(np.int32)
    copies["received"] = START + np.arange(n) * 1000
    packed = pack_copies(copies)
    assert len(packed["got"]) == n // WIDTH
    assert (packed["got"] == -1).all() and (packed["base"] == np.arange(n // WIDTH) * WIDTH).all()
    assert len(packed["after"]) == n


def test_keys_that_do_not_fit_one_integer_are_sorted_too() -> None:
    rows = [
        (i % 70, stream, 0, 0, 64, 0, seq, 0, START + i, i)
        for i in range(200)
        for stream, seq in ((0, i % 3), (2**31 - 1, 2**62 + i % 3))
    ]
    copies = received(rows)
    assert rows_of(unpack_copies(pack_copies(copies))) == rows_of(copies)
