"""Answers in parts."""

from __future__ import annotations

import numpy as np

from pytest_loadtest.drivers.base import Acks
from pytest_loadtest.drivers.pulsar.settings_facts import join_acks


def acks(*rows: int, resends: int | None = None) -> Acks:
    row = np.array(rows, np.int64)
    return Acks(row, row * 10, np.ones(len(row), np.int8), None if resends is None else np.full(len(row), resends, np.uint8))


def test_answers_are_joined_in_their_order() -> None:
    """Where no part has resends, nor has the whole; where one has, the others have none of them."""
    whole = join_acks([acks(3, 4), acks(1)])
    assert whole is not None
    assert (whole.row.tolist(), whole.time.tolist(), whole.status.tolist(), whole.resends) == ([3, 4, 1], [30, 40, 10], [1, 1, 1], None)
    some = join_acks([acks(3, 4), acks(1, resends=2)])
    assert some is not None
    assert some.resends is not None
    assert (some.resends.tolist(), some.resends.dtype) == ([0, 0, 2], np.uint8)


def test_one_part_is_the_whole_and_none_is_nothing() -> None:
    one = acks(7)
    assert join_acks([one]) is one
    assert join_acks([]) is None
